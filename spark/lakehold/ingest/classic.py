"""What ENVELOPE DEBEZIUM asks of a topic, refused with what to change upstream (`envelopes.md`, "Goals" and "Description")."""

from __future__ import annotations

from lakehold.definitions import Table
from lakehold.errors import TableStopped
from lakehold.ingest.judge.arrivals import Arrivals
from lakehold.ingest.position import MYSQL, POSTGRES


def check(table: Table, arrived: Arrivals) -> None:
    """Raise `TableStopped` when the classic envelope cannot be right for these messages."""
    other = arrived.connectors - {*POSTGRES, *MYSQL}
    if other:
        found = ", ".join(sorted(other))
        raise TableStopped(
            f'table "{table.full_name}" cannot use ENVELOPE DEBEZIUM with the {found} connector',
            table=table.full_name,
            code="envelope-connector",
            detail="Its events carry no position that tells a repeated event from a new one.",
            hint="Use ENVELOPE DEBEZIUM UPSERT, which needs none.",
        )
    if arrived.before_missing:
        raise TableStopped(
            f'table "{table.full_name}" gets updates without "before"',
            table=table.full_name,
            code="before-missing",
            detail=(
                f"{arrived.before_missing} of {arrived.records} messages, the first at offset {arrived.before_missing_offset} "
                f"of topic {table.topic}. ENVELOPE DEBEZIUM needs the whole row before each change."
            ),
            hint=(
                "PostgreSQL: ALTER TABLE … REPLICA IDENTITY FULL. MySQL: binlog_row_image = FULL. "
                "Or use ENVELOPE DEBEZIUM UPSERT, which does not read it."
            ),
        )
