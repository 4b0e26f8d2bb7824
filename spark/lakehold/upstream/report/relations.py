"""Refuse a declared table that cannot be captured: no table upstream, no topic of its own, or columns that do not fit. Pure.

Raises an `UpstreamError` that says what to do, before anything is declared. `refusals.py` refuses a table that
PostgreSQL does not have, and lists all of its tables.
"""

from __future__ import annotations

from lakehold.definitions import ConnectionType
from lakehold.errors import UpstreamError, UpstreamRefused
from lakehold.upstream.differences.lost_values import refuse_values
from lakehold.upstream.differences.unfit import TABLE_KINDS, unfit
from lakehold.upstream.found.found import (
    ABSENT,
    OF_DOTTED_SCHEMA,
    TEMPORARY,
    UNLOGGED,
    Found,
)
from lakehold.upstream.report.declared_columns import refuse_columns
from lakehold.upstream.types.identifier_quoting import identifier_text, table_text
from lakehold.upstream.wanted.wanted import CapturedTable, Wanted

_WAYS_OUT = {
    UNLOGGED: "ALTER TABLE {} SET LOGGED.",
    TEMPORARY: "Capture a table that stays.",
    OF_DOTTED_SCHEMA: "ALTER SCHEMA … RENAME TO a name without a dot.",
}
"""What to do about tables that cannot be captured as they are."""
_WHY = {
    UNLOGGED: "A database logs changes of logged tables only.",
    TEMPORARY: "Its changes are not logged, and it goes with the session that made it.",
    OF_DOTTED_SCHEMA: "The first dot of a name separates the schema from the table.",
}
_LONGEST_TOPIC = 249
"""Longest name of a topic, in characters."""


def declared(wanted: Wanted) -> tuple[CapturedTable, ...]:
    """Return the tables that a statement declares; none if none does."""
    return tuple(table for table in wanted.tables if table.object_id in (wanted.declared or ()))


def refuse_uncapturable(wanted: Wanted, upstream: Found) -> None:
    """Refuse declared tables that do not exist, are not tables, or have columns that prevent capturing them."""
    for table in declared(wanted):
        _refuse_topic(table, wanted)
        found = upstream.relations.get(table.upstream)
        if found is None and wanted.capture.database is ConnectionType.POSTGRES:
            continue
        if found is None or found.kind == ABSENT:
            raise UpstreamError(
                f'table "{table.upstream}" is not in the database of source "{wanted.source}"',
                code="upstream-table-missing",
                detail=f'User "{wanted.config["database.user"]}" finds none of this name.',
                hint="Write database and table as the server has them, and let the user read the table: GRANT SELECT.",
            )
        if found.kind in _WAYS_OUT:
            raise UpstreamError(
                f'"{table.upstream}" in the database of source "{wanted.source}" is a{"n" if found.kind == UNLOGGED else ""} '
                f"{found.kind}",
                code="upstream-table-unfit",
                detail=_WHY[found.kind],
                hint=_WAYS_OUT[found.kind].format(table_text(table.upstream, wanted.capture.database)),
            )
        if found.kind not in TABLE_KINDS:
            raise UpstreamError(
                f'"{table.upstream}" in the database of source "{wanted.source}" is a {found.kind}',
                code="upstream-view",
                detail="A database logs changes of tables only: nothing else can be captured.",
                hint="Capture the tables that it reads, and make a view of them in the lake.",
            )
        if not found.may_read:
            raise _unreadable(table.upstream, wanted)
        _refuse_unfit(table, wanted, upstream)
        refuse_columns(table, upstream.columns.get(table.upstream, ()), wanted)
        refuse_values(table, upstream, wanted)


def refuse_unseen(wanted: Wanted, found: Found) -> None:
    """Refuse to snapshot all tables while the user may not see a captured one of MySQL or MariaDB.

    The connector would not find the table, and its rows would be missing as those of an empty table are.
    """
    for table in wanted.tables:
        if wanted.capture.database is not ConnectionType.POSTGRES and table.upstream not in found.relations:
            raise _unreadable(table.upstream, wanted)


def _refuse_unfit(table: CapturedTable, wanted: Wanted, found: Found) -> None:
    reason = unfit(table.upstream, found, wanted.capture.database)
    if reason is not None:
        raise UpstreamError(
            f'"{table.upstream}" in the database of source "{wanted.source}" {reason.what}',
            code="upstream-table-unfit",
            detail=f"{reason.why}.",
            hint=f"{reason.way_out}, or leave the table out.",
        )


def _unreadable(upstream: str, wanted: Wanted) -> UpstreamRefused:
    database, name = wanted.capture.database, wanted.config["database.user"]
    user = identifier_text(name, database) if database is ConnectionType.POSTGRES else name
    granted = f"GRANT SELECT ON {table_text(upstream, database)} TO {user};"
    if database is ConnectionType.POSTGRES:
        schema = identifier_text(upstream.partition(".")[0], database)
        granted = f"GRANT USAGE ON SCHEMA {schema} TO {user}; {granted}"
    return UpstreamRefused(
        f'user "{name}" of source "{wanted.source}" may not read table "{upstream}"',
        detail="The connector reads what the table has before it sends the table's changes.",
        hint=granted,
    )


def _refuse_topic(table: CapturedTable, wanted: Wanted) -> None:
    """Refuse a table whose topic would be too long, or another table's: Kafka allows few characters in a topic's name."""
    other = next((each for each in wanted.tables if _share(each, table)), None)
    if other is not None:
        raise UpstreamError(
            f'tables "{other.upstream}" and "{table.upstream}" of source "{wanted.source}" would share one topic',
            code="topic-shared",
            detail=f"Their topics are {other.topic} and {table.topic}: Kafka does not distinguish these names.",
            hint="Capture one of them by another source, which has a TOPIC PREFIX of its own, or rename it in the database.",
        )
    if len(table.topic) > _LONGEST_TOPIC:
        raise UpstreamError(
            f'the topic of table "{table.upstream}" of source "{wanted.source}" would have {len(table.topic)} characters',
            code="topic-too-long",
            detail=f"Kafka allows {_LONGEST_TOPIC}: {table.topic}.",
            hint="Create the source with a shorter TOPIC PREFIX.",
        )


def _share(one: CapturedTable, other: CapturedTable) -> bool:
    """Return whether two tables upstream would have one topic, or two that a broker does not allow side by side."""
    return one.upstream != other.upstream and one.topic.replace(".", "_") == other.topic.replace(".", "_")
