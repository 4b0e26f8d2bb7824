"""Hints: what a person should know, or do in the database or in the lake. Pure: sentences, each once.

Statements show the hints of their plan, ingests log them, and `lakehold status` reports those about tables at fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from lakehold.definitions import ConnectionType
from lakehold.object_names import full_name_text, object_text
from lakehold.upstream.differences.failover import failover_hints
from lakehold.upstream.differences.fitting import collision_hints, defaults_hints, imprecise_hints
from lakehold.upstream.differences.gaps import (
    cannot_snapshot_alone,
    failing_tables,
    joining_tables,
    silently_changed,
    tables_awaiting_repair,
    tables_missing_changes,
    tables_with_deferrable_key,
    unordered_key,
    unrepairable_tables,
    whole_row_tables,
)
from lakehold.upstream.differences.heirs import parent_hints
from lakehold.upstream.differences.log_settings import WHOLE_ROWS, lossy_log_hints, row_image
from lakehold.upstream.differences.lost_values import escaped_hints, lost_values_hints
from lakehold.upstream.differences.partitions import (
    NOT_FULL,
    full_identity,
    is_misidentified,
    silent_hints,
    unlogged_leaf_hints,
    weak_leaves,
)
from lakehold.upstream.differences.snapshot_values import unfound_hints
from lakehold.upstream.differences.unfit import returning_tables, unfit_tables, way_out
from lakehold.upstream.differences.unsent_values import unsent_hints
from lakehold.upstream.found.columns import FoundColumn
from lakehold.upstream.found.found import FULL, NOTHING, OTHER_COLUMNS, Found, FoundDatabase
from lakehold.upstream.found.snapshots import NO_SNAPSHOT
from lakehold.upstream.report.declared_columns import missing_hints
from lakehold.upstream.report.gone import gone_hints
from lakehold.upstream.report.refusals import ROW_IMAGE_HINT
from lakehold.upstream.types.captured_columns import left_out_hints, lost_hints
from lakehold.upstream.types.field_names import field_name
from lakehold.upstream.types.postgres_types import is_compared
from lakehold.upstream.wanted.signal_table import wants_signal_table
from lakehold.upstream.wanted.wanted import CapturedTable, Wanted

_VERSION = re.compile(r"([0-9]+)\.([0-9]+)")
_KEEPS_CHANGES = (3, 7)
"""The first version of Debezium for PostgreSQL that keeps the beginning of overlapping transactions."""


def hints(wanted: Wanted, found: Found) -> tuple[str, ...]:
    """List hints about the connector and the tables that a statement declares; about all tables if none declares or drops any."""
    out = unfit_tables(wanted, found)
    about = [
        table
        for table in wanted.tables
        if table.upstream not in out and (wanted.declared is None or table.object_id in wanted.declared)
    ]
    found_hints = [
        *_of_connector(wanted, found),
        *lossy_log_hints(wanted, found),
        *misidentified_hints(wanted, found),
        *unsent_hints(wanted, found),
        *escaped_hints(wanted, found),
        *gone_hints(wanted, found),
        *missing_hints(wanted, found),
        *_missed_hints(wanted, found),
    ]
    found_hints += [*silent_hints(wanted, found.database), *parent_hints(wanted, found.database)]
    found_hints += [*unlogged_leaf_hints(wanted, found.database), *deferrable_key_hints(wanted, found)]
    found_hints += failover_hints(wanted, found.database)
    found_hints += [*unfit_hints(wanted, found), *unrepaired_hints(wanted, found), *failing_hints(wanted, found)]
    found_hints += [hint for table in about for hint in _of_table(table, wanted, found)]
    upstream, database = [table.upstream for table in about], wanted.capture.database
    found_hints += left_out_hints(upstream, found.columns, database)
    found_hints += unlogged_hints(upstream, wanted, found)
    found_hints += [*collision_hints(upstream, wanted, found), *imprecise_hints(wanted, found)]
    if wanted.declared is not None:
        found_hints += [*lost_hints(upstream, found.columns, database), *lost_values_hints(upstream, found)]
        found_hints += [*unfound_hints(about, wanted, found), *defaults_hints(upstream, wanted, found)]
    return tuple(dict.fromkeys(found_hints))


def fault_hints(wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield a sentence for each fault of captured tables.

    Faults are settings that lose changes; tables that the database no longer has, that the connector leaves out or that lack
    changes; and columns that arrive inexactly or not.
    """
    yield from gone_hints(wanted, found)
    yield from missing_hints(wanted, found)
    yield from lossy_log_hints(wanted, found)
    yield from unfit_hints(wanted, found)
    yield from silent_hints(wanted, found.database)
    yield from weak_leaf_hints(wanted, found.database)
    yield from misidentified_hints(wanted, found)
    yield from unsent_hints(wanted, found)
    yield from escaped_hints(wanted, found)
    yield from unlogged_leaf_hints(wanted, found.database)
    yield from parent_hints(wanted, found.database)
    yield from deferrable_key_hints(wanted, found)
    yield from unrepaired_hints(wanted, found)
    yield from failing_hints(wanted, found)
    yield from coming_hints(wanted, found)
    captured = [name for name in wanted.upstream_tables if name not in unfit_tables(wanted, found)]
    yield from unlogged_hints(captured, wanted, found)
    yield from left_out_hints(captured, found.columns, wanted.capture.database)
    yield from collision_hints(captured, wanted, found)
    yield from imprecise_hints(wanted, found)


def _of_connector(wanted: Wanted, found: Found) -> Iterator[str]:
    if found.connector is not None and found.connector.state == "PAUSED":
        yield f"connector {wanted.connector} was paused by hand, and stays paused until its configuration changes"
    if found.database is not None and _will_wait(wanted, found):
        yield (
            f"user {wanted.config['database.user']} cannot have the signal table {wanted.signal_table}: while rows"
            " of a table that joins are read, the other tables of the source wait. docs/operate/connectors.md says which rights"
            " it needs"
        )
    if not found.writes_transactions:
        yield (
            "the workers of Kafka Connect do not write in Kafka transactions: with their setting exactly.once.source.support"
            " = enabled what a connector sends arrives complete and once, even if it is killed"
        )
    if found.registry_level not in ("", "NONE"):
        yield (
            f"the schema registry has the compatibility level {found.registry_level}: it may refuse the schema of a table that is"
            " altered, and the connector then fails with all its tables. lakehold needs no level: PUT /config with"
            ' {"compatibility": "NONE"}'
        )
    if wanted.capture.database is ConnectionType.POSTGRES and _loses_changes(found.connector_version):
        yield (
            f"the workers of Kafka Connect have Debezium {found.connector_version} for PostgreSQL: a connector that is started"
            " again may lose the beginning of a transaction that overlaps another one. Debezium 3.7 does not"
        )


def _loses_changes(version: str) -> bool:
    """Return whether a version takes another transaction's event for its last commit (docs/operate/connectors.md)."""
    found = _VERSION.match(version)
    return found is not None and (int(found[1]), int(found[2])) < _KEEPS_CHANGES


def _will_wait(wanted: Wanted, found: Found) -> bool:
    """Return whether a table joins, beside others, a connector that has no signal table."""
    has_position = found.connector is not None and found.connector.has_position
    new = {table.upstream for table in joining_tables(wanted, found) if not cannot_snapshot_alone(table, found)}
    return has_position and not wants_signal_table(wanted) and bool(new) and new != {*wanted.upstream_tables}


def _missed_hints(wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield a sentence, once, for each table whose changes were missed, whatever a statement is about."""
    for table in dict.fromkeys((*tables_missing_changes(wanted, found), *dict(silently_changed(wanted, found)))):
        yield _missed_hint(table, wanted, found)


def unrepaired_hints(wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield a sentence for each table that lacks changes until all tables are snapshotted, unless a statement is about others."""
    if wanted.declared is None:
        yield from dict.fromkeys(_missed_hint(table, wanted, found) for table in unrepairable_tables(wanted, found))


def failing_hints(wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield a sentence for each table whose snapshot fails, unless a statement is about others."""
    if wanted.declared is None:
        for table, reason in failing_tables(wanted, found):
            key = [column for column in found.columns.get(table.upstream, ()) if column.is_key]
            if found.database is not None and (uncompared := [column for column in key if not is_compared(column)]):
                yield (
                    f"the snapshot of {table.upstream} failed: {reason}. With {_named(uncompared)} in its primary key Debezium "
                    f"snapshots no more than 1,024 rows alone. ALTER SOURCE {object_text(wanted.source)} RESNAPSHOT snapshots "
                    "all tables, and brings all rows"
                )
                continue
            yield (
                f"the snapshot of {table.upstream} failed: {reason}. The log of Kafka Connect's worker says more. lakehold "
                f"requests it again after growing pauses; ALTER SOURCE {object_text(wanted.source)} REPAIR does at once"
            )


def coming_hints(wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield a sentence for each table whose changes were missed, until the lake has them."""
    for table in dict.fromkeys((*tables_awaiting_repair(wanted, found), *dict(silently_changed(wanted, found)))):
        yield (
            f"{_missed(table)}: until the lake has a new snapshot of it, rows may be outdated or no longer exist upstream"
        )


def unlogged_hints(tables: Iterable[str], wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield a sentence for each table of MySQL or MariaDB whose rows a foreign key deletes or changes."""
    for table in tables:
        for key in found.acting_keys.get(table, ()):
            yield (
                f"foreign key {key} changes rows of {table} that the database does not log: the lake keeps them as they were "
                f"until they change themselves, or until ALTER SOURCE {object_text(wanted.source)} RESNAPSHOT. Have the "
                "application change these rows, and create the foreign key without these actions"
            )


def replaced_hints(tables: Iterable[CapturedTable], wanted: Wanted) -> Iterator[str]:
    """Yield a sentence for each table of which Debezium does not know the columns."""
    for table in tables:
        yield (
            f"Debezium does not know the columns of table {table.upstream}, because of a statement that it cannot read, a CREATE "
            f"OR REPLACE TABLE, or columns that took each other's names: {_all_again(wanted)}"
        )


def returned_hints(wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield a sentence for each table that the connector need not leave out any more."""
    for name in returning_tables(wanted, found):
        yield f"table {name} can be captured again: {_all_again(wanted)}"


def _all_again(wanted: Wanted) -> str:
    return f"connector {wanted.connector} takes its first snapshot again, of all its tables"


def unfit_hints(wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield a sentence for each table that the connector leaves out, unless a statement is about others."""
    reasons = unfit_tables(wanted, found) if wanted.declared is None else {}
    for table in wanted.tables:
        if (reason := reasons.get(table.upstream)) is not None:
            yield (
                f"table {table.upstream} {reason.what}, so connector {wanted.connector} leaves it out. {reason.why}. The table "
                f"stops, and the other tables of the source continue. {way_out(table, reason)}"
            )


def deferrable_key_hints(wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield a sentence for each table whose DEFERRABLE key the lake takes for a key, unless a statement is about others.

    A statement also says that a table which it declares has no key for this reason.
    """
    deferrable, declared = tables_with_deferrable_key(wanted, found), wanted.declared
    for table in (table for table in wanted.tables if table.upstream in deferrable):
        what, in_lake = f"the key of table {table.upstream} is DEFERRABLE", full_name_text(table.full_name)
        if declared is not None and table.object_id not in declared:
            continue
        if _has_deferrable_key(table, wanted, found):
            yield (
                f"{what}: rows that exchange its values in one transaction get lost in {in_lake}. Drop {in_lake} and create it "
                "again with ENVELOPE DEBEZIUM, without KEY; or make the constraint NOT DEFERRABLE, and "
                f"ALTER SOURCE {object_text(wanted.source)} RESNAPSHOT brings lost rows"
            )
        elif declared and not table.key:
            yield f"{what}, so {in_lake} has no key: until a transaction commits, several rows may have one of its values"


def _has_deferrable_key(table: CapturedTable, wanted: Wanted, found: Found) -> bool:
    """Return whether a table of the lake identifies rows by a key that is DEFERRABLE upstream."""
    if table.key and found.database is not None:
        key = found.database.tables[table.upstream].deferrable_key
        return {*table.key} == {field_name(name, wanted.config) for name in key}
    return table.object_id in wanted.lake and table.upstream not in found.multisets


def _missed_hint(table: CapturedTable, wanted: Wanted, found: Found) -> str:
    way_out = (
        f"{_why_not_alone(table, found)}, so only ALTER SOURCE {object_text(wanted.source)} RESNAPSHOT brings them"
        if cannot_snapshot_alone(table, found)
        else "a new snapshot brings its rows, and at its end lakehold deletes those that were deleted meanwhile"
    )
    return f"{_missed(table)}: {way_out}"


def _named(columns: Sequence[FoundColumn]) -> str:
    return ", ".join(f"{column.name} ({column.text})" for column in columns)


def _why_not_alone(table: CapturedTable, found: Found) -> str:
    if columns := unordered_key(table.upstream, found):
        harm = "by which Debezium would lose rows" if found.database is None else "at which the connector would fail"
        return f"it has {_named(columns)} in its primary key, {harm}"
    known = found.database.tables.get(table.upstream) if found.database is not None else None
    if known is not None and known.deferrable_key:
        return "it has a DEFERRABLE key"
    has_key = known is not None and known.has_key
    return "it had no primary key when the lake began it" if has_key else "it has no primary key"


def _missed(table: CapturedTable) -> str:
    why = "the connector did not capture it, ALTER TABLE changed its rows without a message, or a large value was not sent"
    return f"changes of {table.upstream} were missed ({why})"


def _of_table(table: CapturedTable, wanted: Wanted, found: Found) -> Iterator[str]:
    if _lacks_snapshot(table, wanted, found):
        yield (
            f"table {table.upstream} {_why_not_alone(table, found).removeprefix('it ')}, so it cannot be "
            "snapshotted alone. It gets changes from now on. "
            f"ALTER SOURCE {object_text(wanted.source)} RESNAPSHOT snapshots all tables, and makes it readable"
        )
    if row_image(found) != WHOLE_ROWS and table in whole_row_tables(wanted, found):
        yield f"table {table.upstream} has no primary key, and its changes lack columns: {ROW_IMAGE_HINT}"
    if found.database is not None and table.upstream in found.database.tables:
        yield from _of_replica_identity(table, wanted, found.database)


def _lacks_snapshot(table: CapturedTable, wanted: Wanted, found: Found) -> bool:
    """Return whether a table that cannot be snapshotted alone joins, or joined, a connector that is past its first snapshot."""
    snapshot = found.snapshots.get(table.object_id, NO_SNAPSHOT)
    is_late = snapshot.requested > 0 or (
        found.connector is not None and found.connector.has_position and table in joining_tables(wanted, found)
    )
    return is_late and cannot_snapshot_alone(table, found) and not snapshot.is_first and not snapshot.succeeded


def misidentified_hints(wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield a sentence for each captured table whose deleted rows cannot be recognised."""
    for table in wanted.tables:
        if is_misidentified(table, found.database, found.columns.get(table.upstream, ())):
            weak = weak_leaves(found.database, table.upstream, {OTHER_COLUMNS})
            yield (
                f"deletes of {'some partitions of ' if weak else ''}table {table.upstream} are lost, or hit other rows: REPLICA "
                f"IDENTITY names an index that lacks columns of the key. {full_identity(table.upstream, weak)}; then ALTER "
                f"SOURCE {object_text(wanted.source)} RESNAPSHOT"
            )


def weak_leaf_hints(wanted: Wanted, database: FoundDatabase | None) -> Iterator[str]:
    """Yield a sentence for each partitioned table that got partitions of which too little is logged."""
    if database is not None:
        upstream = [name for name in wanted.upstream_tables if name in database.tables]
        tables = {table.upstream: table for table in wanted.tables}
        for name in (name for name in upstream if database.tables[name].leaves):
            yield from _of_replica_identity(tables[name], wanted, database)


def _of_replica_identity(table: CapturedTable, wanted: Wanted, database: FoundDatabase) -> Iterator[str]:
    name, columns = table.upstream, database.tables[table.upstream]
    needs_before = any(each.needs_before for each in wanted.tables if each.upstream == name)
    is_unknown = not columns.has_key or columns.replica_identity == NOTHING
    if columns.replica_identity != FULL and (needs_before or is_unknown):
        weak = weak_leaves(database, name, {NOTHING} if columns.has_key and not needs_before else NOT_FULL)
        of = f"table {name}" if not weak else f"some partitions of table {name}"
        yield f"updates of {of} lack the row before: {full_identity(name, weak)}"
