"""Headers in the driver, as Arrow: the facts about each record that whole transactions need. They are not Kafka's headers.

The planner of whole transactions reads them to decide where a batch ends. `runs.py` groups those of
consecutive records of one transaction. They come from the changes of a topic that a table decoded, or from `header_reader.py`.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakehold.ingest.envelope.change_columns import OFFSET, PARTITION, TRANSACTION

POSITION = ("a", "b", "c", "d")
"""Columns with the four numbers of a position (`lakehold.ingest.envelope.position`), all null where it is unknown."""

HEADERS = pa.schema(
    [
        ("topic", pa.dictionary(pa.int32(), pa.string())),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("sent_ms", pa.int64()),
        ("kind", pa.dictionary(pa.int32(), pa.string())),
        ("transaction_id", pa.string()),
        ("total_order", pa.int64()),
        ("collection_order", pa.int64()),
        *((name, pa.int64()) for name in POSITION),
        ("commits", pa.bool_()),
    ]
)
"""The facts that are needed about each record.

`sent_ms` is Kafka's timestamp (epoch milliseconds), `kind` is a `lakehold.ingest.envelope.header_columns.Kind`. Only an event of
a transaction has all fields; a row of a connector snapshot has no transaction. `total_order` counts the events of a transaction
from 1, `collection_order` those of one table in it; `commits` marks an event that is its whole transaction, without an END.
"""


def headers_of_changes(changes: pa.Table, topic: str) -> pa.Table:
    """Extract `HEADERS` from the columns of one topic's changes, each record once.

    Only one of the two changes of a record that moves a row to another key has a header; some records have none.

    Args:
        changes: Changes with the columns `_lh_partition`, `_lh_offset` and `_lh_transaction`.
        topic: The topic.
    """
    of_runs = changes.filter(pc.is_valid(changes[TRANSACTION]))
    header = of_runs[TRANSACTION]
    found = pa.table({"partition": of_runs[PARTITION], "offset": of_runs[OFFSET]})
    for field in header.type:
        found = found.append_column(field.name, pc.struct_field(header, field.name))
    only = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), found.num_rows), [topic])
    return as_headers(found.append_column("topic", only))


def as_headers(found: pa.Table) -> pa.Table:
    """Convert a table to the schema of `HEADERS`, with the numbers of `position` as columns."""
    for name in POSITION:
        found = found.append_column(name, pc.struct_field(found["position"], name))
    return found.select(HEADERS.names).cast(HEADERS)
