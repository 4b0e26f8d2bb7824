"""Checks that a topic has what its table's envelope requires; the error says what to change upstream.

`docs/reference/envelopes.md` has the requirements: "Connectors", "Keys", "Tables without a key" and "Restored databases".
`apply.py` checks them for each batch, before it writes.
"""

from __future__ import annotations

from collections.abc import Collection

from lakehold.definitions import Table
from lakehold.errors import LakeholdError, TableStopped
from lakehold.ingest.deduplicate.statistics import BatchStatistics, WentBack
from lakehold.ingest.envelope.change_columns import KEYLESS, NULL_IN_KEY, OF_ONE_TABLE, UNORDERED, Changes
from lakehold.ingest.envelope.keys import key_changed
from lakehold.ingest.envelope.position import MYSQL, POSTGRES, written
from lakehold.kafka.faults import STAYS_IN_TOPIC
from lakehold.model.high_water_marks import Position


def check(table: Table, changes: Changes, statistics: BatchStatistics, partitions: int) -> None:
    """Raise `TableStopped` if the table's envelope cannot be correct for these messages.

    Args:
        table: The definition.
        changes: The changes.
        statistics: Their statistics; of a direct load those of the first and last changes.
        partitions: The number of the topic's partitions.
    """
    if table.envelope.skips_applied:
        _check_connectors(table, statistics)
    _require_keys(table, changes, statistics)
    if changes.is_multiset:
        _check_keyless(table, statistics, partitions)
    if changes.needs_before and statistics.before_missing:
        raise _before_missing(table, statistics, lacks_before=changes.lacks_before)
    if statistics.went_back is not None:
        raise _restored(table, statistics.went_back, statistics.connectors)


def _require_keys(table: Table, changes: Changes, statistics: BatchStatistics) -> None:
    """Raise `TableStopped` if messages have no key, or one that is no row's alone, though the table takes its key from there."""
    if with_null := statistics.reasons.get(NULL_IN_KEY, 0):
        raise TableStopped(
            f'message keys do not identify the rows of table "{table.full_name}"',
            table=table.full_name,
            code="key-null",
            detail=f"{with_null} of {statistics.records} messages of topic {table.topic} have a null in their key, "
            f"({', '.join(changes.key)}): it is that of a unique index, which may hold several rows with nulls.",
            hint="Give the upstream table a primary key, or set the columns NOT NULL, and load the table again; or drop it and "
            "create it with KEY (column, …) over columns that identify its rows.",
        )
    keyless = statistics.reasons.get(KEYLESS, 0)
    if not keyless:
        return
    if not changes.key:
        raise TableStopped(
            f'table "{table.full_name}" has no key',
            table=table.full_name,
            code="key-missing",
            detail=f"The messages of topic {table.topic} carry no key, and the table names none.",
            hint="Create the table with KEY (column, …), or give the upstream table a primary key.",
        )
    raise key_changed(
        table,
        f"Its rows are identified by ({', '.join(changes.key)}), the key that messages of topic {table.topic} had, and "
        f"{keyless} of {statistics.records} have none: upstream's primary key was dropped or added, and several rows "
        "may share one key.",
    )


def _check_keyless(table: Table, statistics: BatchStatistics, partitions: int) -> None:
    """Raise `TableStopped` if events of rows without a key may be repetitions that nothing shows."""
    name, reload = table.full_name, f"delete topic {table.topic}, and have the connector snapshot its tables again"
    if partitions > 1:
        raise TableStopped(
            f'table "{name}" has no key, and its topic has {partitions} partitions',
            table=name,
            code="keyless-partitions",
            detail="Messages without a key may be in any partition, and a repeated one in another: only the order of one "
            "partition shows that it is repeated.",
            hint=f"Give topic {table.topic} one partition, or create the table with KEY (column, …).",
        )
    if statistics.reasons.get(UNORDERED):
        raise TableStopped(
            f'table "{name}" has no key, and its events have no order',
            table=name,
            code="order-missing",
            detail=f"{statistics.reasons[UNORDERED]} of {statistics.records} events of topic {table.topic} have no "
            "transaction.total_order: an event that is sent again looks like another event of an equal row.",
            hint=f"Set provide.transaction.metadata=true in the connector, {reload}; or create the table with KEY (column, …).",
        )
    if statistics.reasons.get(OF_ONE_TABLE):
        raise TableStopped(
            f'table "{name}" has no key, and a snapshot of some tables alone has rows of it',
            table=name,
            code="keyless-snapshot",
            detail=f"{statistics.reasons[OF_ONE_TABLE]} of {statistics.records} events of topic {table.topic} are such rows: "
            "the table may have them already, and nothing distinguishes them from further equal rows.",
            hint="Drop the table and create it again: a captured table that has a primary key by now gets that key. For another "
            f"source {reload}; or create the table with KEY (column, …).",
        )
    if statistics.restarted_offset is not None:
        raise TableStopped(
            f'table "{name}" has no key, and its snapshot began again within a second',
            table=name,
            code="snapshot-restarted",
            detail=f"The row at offset {statistics.restarted_offset} of topic {table.topic} begins the snapshot again, at the "
            "same position of the database's log, and not later by the database's clock: nothing distinguishes rows that are "
            "sent again from further equal rows.",
            hint="Drop the table, create it again, and have the connector snapshot all of its tables (of a captured database "
            f"ALTER SOURCE … RESNAPSHOT); for another source first {reload}. Or create the table with KEY (column, …).",
        )


def _check_connectors(table: Table, statistics: BatchStatistics) -> None:
    other = statistics.connectors - {*POSTGRES, *MYSQL}
    if other:
        found = ", ".join(sorted(other))
        raise TableStopped(
            f'table "{table.full_name}" cannot use ENVELOPE {table.envelope.sql} with the {found} connector',
            table=table.full_name,
            code="envelope-connector",
            detail="Its events have no position that distinguishes a repeated event from a new one.",
            hint="Use ENVELOPE DEBEZIUM UPSERT, which needs none.",
        )


def _before_missing(table: Table, statistics: BatchStatistics, *, lacks_before: bool) -> TableStopped:
    if lacks_before:
        upstream = "Let the producer send before: something between the database and the topic removes the field."
        schema = " The schema of the values has no such field."
    else:
        upstream = "PostgreSQL: ALTER TABLE … REPLICA IDENTITY FULL. MySQL: binlog_row_image = FULL."
        schema = ""
    if table.envelope.needs_before:
        reason = f"ENVELOPE {table.envelope.sql} needs"
        instead = f"{STAYS_IN_TOPIC} Or create it with ENVELOPE DEBEZIUM UPSERT, which does not read before."
    else:
        reason = f"KEY ({', '.join(table.key)}) is not in every message key: it takes"
        instead = STAYS_IN_TOPIC
    return TableStopped(
        f'table "{table.full_name}" gets updates without "before"',
        table=table.full_name,
        code="before-missing",
        detail=(
            f"{statistics.before_missing} of {statistics.records} messages, the first at offset "
            f"{statistics.before_missing_offset} of topic {table.topic}.{schema} {reason} the whole row before each change."
        ),
        hint=f"{upstream} {instead}",
    )


def _restored(table: Table, found: WentBack, connectors: frozenset[str]) -> TableStopped:
    def shown(position: Position) -> str:
        return written(position, connectors)

    reload = "drop the table, delete its topic, have the connector snapshot the table again, and create the table again"
    return TableStopped(
        f'the database of table "{table.full_name}" went back to an earlier state',
        table=table.full_name,
        code="database-restored",
        detail=f"The change at offset {found.offset} of topic {table.topic}, partition {found.partition}, is at "
        f"{shown(found.position)} in the database's log, and is newer than those up to {shown(found.earlier)}: the database was "
        "restored from a backup, or is another one. lakehold would skip new changes as repeats.",
        hint=f"Load it again from a topic without the old changes: {reload}. With a transaction topic do so for all of the "
        "source's tables and for that topic. For a captured database, DROP SOURCE … CASCADE and creating it again does all of "
        "that.",
    )


def value_unavailable(table: Table, columns: Collection[str], error: LakeholdError | None = None) -> TableStopped:
    """Return the error of rows that lack large values; `error` is why the captured database cannot be asked for them."""
    names = ", ".join(f'"{name}"' for name in sorted(columns))
    unsent = (
        "PostgreSQL does not send a large value that an update did not touch. So a row whose key changed, or that the table "
        "does not have, arrives without it"
    )
    if error is not None:
        detail = f"{unsent}, and the database cannot be asked: {error.message}."
        hint = "Correct that; the next ingest tries it again. The other tables continue."
    else:
        detail = f"{unsent}: topic {table.topic} has no earlier message with the value."
        hint = f"ALTER TABLE … REPLICA IDENTITY FULL makes PostgreSQL send all values. {STAYS_IN_TOPIC}"
    return TableStopped(
        f'new rows of table "{table.full_name}" lack their values of {names}',
        table=table.full_name,
        code="value-unavailable",
        detail=detail,
        hint=hint,
    )
