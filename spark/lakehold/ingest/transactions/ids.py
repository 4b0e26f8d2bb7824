"""Reads transactions and log positions from whole columns of Debezium's transaction ids. Pure.

The forms of ids, and what a log is, are in `lakehold.model.log_positions`. An id of PostgreSQL is `txId:LSN`, one of MySQL
`file=binlog.000003,pos=154`, for example.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehold.ingest.transactions.columns import Numbers, numbered
from lakehold.model.log_positions import ID_FORMS, POSTGRES_ID

UNKNOWN = -1
"""Stands for the number of an unknown log."""


def transactions_of(transaction_ids: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return the transaction that each id names: the `txId` of PostgreSQL's ids, other ids as they are; null for null."""
    found = pc.extract_regex(transaction_ids, POSTGRES_ID)
    return pc.coalesce(pc.struct_field(found, "transaction"), transaction_ids)


def positions_of(transaction_ids: pa.Array, logs: dict[str, int]) -> tuple[Numbers, Numbers]:
    """Find where transactions commit, from the ids of their ENDs.

    Args:
        transaction_ids: The ids.
        logs: The numbers of logs, to which new logs are added.

    Returns:
        The number of each id's log (`UNKNOWN` if the id has no known form), and columns with the numbers of its log position: as
        many as the longest log position has.
    """
    log, at = np.full(len(transaction_ids), UNKNOWN, np.int16), np.zeros((1, len(transaction_ids)), np.int64)
    for form in ID_FORMS:
        if UNKNOWN not in log:
            break
        found = pc.extract_regex(transaction_ids, form.pattern)
        rows = np.flatnonzero(found.is_valid())
        if not len(rows):
            continue
        at = np.vstack([at, np.zeros((max(0, len(form.numbers) - len(at)), len(log)), np.int64)])
        found = found.take(pa.array(rows))
        for column, name in enumerate(form.numbers):
            text = found.field(name)
            at[column, rows] = pc.cast(pc.binary_join_element_wise("0x", text, "") if form.is_hex else text, "int64")
        texts = found.field("log") if found.type.get_field_index("log") >= 0 else pa.array([""] * len(rows))
        names, of_rows = numbered(texts)
        numbers = np.array([logs.setdefault(f"{form.log}{name}", len(logs)) for name in names.to_pylist()])
        log[rows] = numbers[of_rows]
    return log, at
