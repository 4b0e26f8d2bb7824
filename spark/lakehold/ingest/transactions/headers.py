"""Headers: what whole transactions need of each record, in SQL of what was decoded, and as Arrow in the driver."""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from lakehold.ingest.changes import OFFSET, PARTITION, POSITION_TYPE, TRANSACTION
from lakehold.ingest.changes import POSITION as CHANGE_POSITION
from lakehold.ingest.position import commits_by_itself, position_of
from lakehold.spark_sql import struct_of


class Kind(StrEnum):
    """The kinds of records that matter to whole transactions; others, such as tombstones, have no header."""

    EVENTS = "events"
    SNAPSHOT = "snapshot"
    SNAPSHOT_END = "snapshot-end"
    """The last row of a snapshot, of all tables of the connector."""
    UNREADABLE = "unreadable"


POSITION = ("a", "b", "c", "d")
"""Columns with the four numbers of a position (`lakehold.ingest.position`), all null where it is unknown."""

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
"""What is needed of each record.

`sent_ms` is when it was sent (epoch milliseconds), `kind` one of `Kind`. Rows of snapshots also have positions, events have all.
`total_order` counts from 1 in the transaction, `collection_order` in its events of one table; `commits` says that the event
commits by itself.
"""

_TYPE = (
    "struct<sent_ms:bigint,kind:string,transaction_id:string,total_order:bigint,collection_order:bigint,commits:boolean,"
    f"position:{POSITION_TYPE}>"
)


def header_columns(around: str = "") -> dict[str, str]:
    """Write the SQL of a header, but of where its record stands.

    Args:
        around: What `op`, `source`, `transaction` and `is_readable` (`lakehold.ingest.decode.debezium.head`) are fields of: the
            prefix of their names.

    Returns:
        SQL of `sent_ms, kind, transaction_id, total_order, collection_order, commits` and `position struct<a, b, c, d bigint>`;
        `kind` is null of a record that is in no run.
    """
    op, source, transaction = (f"{around}{name}" for name in ("op", "source", "transaction"))
    return {
        "sent_ms": "timestamp_ms",
        "kind": f"CASE WHEN {transaction}.id IS NOT NULL THEN '{Kind.EVENTS}'"
        f" WHEN {op} = 'r' AND {source}.snapshot = 'last' THEN '{Kind.SNAPSHOT_END}' WHEN {op} = 'r' THEN '{Kind.SNAPSHOT}'"
        f" WHEN NOT {around}is_readable THEN '{Kind.UNREADABLE}' END",
        "transaction_id": f"{transaction}.id",
        "total_order": f"{transaction}.total_order",
        "collection_order": f"{transaction}.collection_order",
        "commits": commits_by_itself(source, op),
        "position": position_of(source, transaction, op),
    }


def header_of_change() -> str:
    """Write the SQL of the column `_lh_transaction` of changes (`lakehold.ingest.changes`), of decoded records."""
    columns = header_columns() | {"position": CHANGE_POSITION}
    # The delete of a former key that stands beside an update has no header of its own: its `is_readable` is null.
    has_one = "is_readable IS NOT NULL AND (transaction.id IS NOT NULL OR op <=> 'r' OR NOT is_readable)"
    # Cast, so that fields may be null: Arrow refuses a null structure whose fields may not be.
    return f"CAST(CASE WHEN {has_one} THEN {struct_of(columns)} END AS {_TYPE})"


def headers_of_changes(changes: pa.Table, topic: str) -> pa.Table:
    """Take `HEADERS` from the columns of one topic's changes, of each record once.

    Args:
        changes: Has `_lh_partition`, `_lh_offset` and `_lh_transaction`.
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
    """Bring a table to `HEADERS`, with the numbers of `position` as columns."""
    for name in POSITION:
        found = found.append_column(name, pc.struct_field(found["position"], name))
    return found.select(HEADERS.names).cast(HEADERS)
