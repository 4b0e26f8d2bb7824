"""The header of a change: the facts about its record that whole transactions need, as SQL over decoded records.

From the headers of a batch `ingest/transactions` finds where the batch may end. They are not Kafka's headers.
"""

from __future__ import annotations

from enum import StrEnum

from lakehold.ingest.envelope.change_columns import POSITION, POSITION_TYPE
from lakehold.ingest.envelope.position import commits_by_itself, position_of
from lakehold.spark_sql import struct_of


class Kind(StrEnum):
    """The kind of a record, for whole transactions; records of other kinds, such as tombstones, have no header."""

    EVENTS = "events"
    """An event of a transaction."""
    SNAPSHOT = "snapshot"
    """A row of a connector snapshot."""
    SNAPSHOT_END = "snapshot-end"
    """The last row of a snapshot, of all tables of the connector."""
    UNREADABLE = "unreadable"
    """A record that cannot be read: it may be an event of any transaction."""


_TYPE = (
    "struct<sent_ms:bigint,kind:string,transaction_id:string,total_order:bigint,collection_order:bigint,commits:boolean,"
    f"position:{POSITION_TYPE}>"
)


def header_columns() -> dict[str, str]:
    """Write the SQL of a header, except for the offset of its record.

    It reads the columns `op`, `source`, `transaction` and `is_readable` (`lakehold.ingest.decode.debezium.head`).

    Returns:
        SQL of `sent_ms, kind, transaction_id, total_order, collection_order, commits` and `position struct<a, b, c, d bigint>`;
        `kind` is null for a record that has no header.
    """
    return {
        "sent_ms": "timestamp_ms",
        "kind": f"CASE WHEN transaction.id IS NOT NULL THEN '{Kind.EVENTS}'"
        f" WHEN op = 'r' AND source.snapshot = 'last' THEN '{Kind.SNAPSHOT_END}' WHEN op = 'r' THEN '{Kind.SNAPSHOT}'"
        f" WHEN NOT is_readable THEN '{Kind.UNREADABLE}' END",
        "transaction_id": "transaction.id",
        "total_order": "transaction.total_order",
        "collection_order": "transaction.collection_order",
        "commits": commits_by_itself("source", "op"),
        "position": position_of("source", "transaction", "op"),
    }


def header_of_change() -> str:
    """Write the SQL of the column `_lh_transaction` of changes (`lakehold.ingest.envelope.change_columns`)."""
    columns = header_columns() | {"position": POSITION}
    # The delete of a former key that was added beside an update has no header of its own: its `is_readable` is null.
    has_one = "is_readable IS NOT NULL AND (transaction.id IS NOT NULL OR op <=> 'r' OR NOT is_readable)"
    # Cast, so that fields may be null: Arrow refuses a null structure whose fields may not be.
    return f"CAST(CASE WHEN {has_one} THEN {struct_of(columns)} END AS {_TYPE})"
