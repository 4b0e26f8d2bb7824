"""Partitions of PostgreSQL whose changes arrive under the name of their parent table. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from lakehold.definitions import ConnectionType
from lakehold.errors import UpstreamError
from lakehold.object_names import full_name_text
from lakehold.upstream.found.columns import FoundColumn
from lakehold.upstream.found.found import NOTHING, OTHER_COLUMNS, UNLOGGED, FoundDatabase, FoundLeaf
from lakehold.upstream.types.identifier_quoting import table_text
from lakehold.upstream.wanted.wanted import CapturedTable, Wanted

NOT_FULL = frozenset({NOTHING, OTHER_COLUMNS, "i", "d"})
"""The replica identities of tables whose updates may lack the row before."""
_NAMED_AT_MOST = 5


def refuse_partitions(wanted: Wanted, database: FoundDatabase) -> None:
    """Refuse a partition beside its parent table, whichever of the two a statement declares."""
    declared = {table.upstream for table in wanted.tables if table.object_id in (wanted.declared or ())}
    for table, whole in _silent(wanted, database):
        if declared & {table.upstream, whole}:
            raise UpstreamError(
                f'changes of partition "{table.upstream}" come as those of "{whole}" in source "{wanted.source}"',
                code="upstream-table-unfit",
                detail=f"The publication has {whole}, and PostgreSQL writes changes of its partitions by its name alone.",
                hint=f"Capture {whole} alone, and make a view of its rows in the lake; or its partitions alone, each of them, "
                "by a publication that does not have it.",
            )


def silent_hints(wanted: Wanted, database: FoundDatabase | None) -> Iterator[str]:
    """Yield a sentence for each captured partition that gets no changes any more, unless a statement is about other tables."""
    if wanted.declared is None and database is not None:
        for table, whole in _silent(wanted, database):
            yield (
                f"changes of partition {table.upstream} come as those of {whole}, and none as its own: "
                f"DROP TABLE {full_name_text(table.full_name)}"
            )


def _silent(wanted: Wanted, database: FoundDatabase) -> Iterator[tuple[CapturedTable, str]]:
    """Yield each captured partition that the publication publishes under a parent's name, with that parent."""
    names = set(wanted.upstream_tables)
    publication = database.publication
    for table in wanted.tables:
        if table.upstream not in database.tables:
            continue
        published: frozenset[str] = frozenset()
        # lakehold removes tables that are not captured from the source's own publication.
        if publication is not None and not publication.is_own and table.upstream not in publication.members:
            published = publication.tables
        whole = next((each for each in database.tables[table.upstream].ancestors if each in names | published), None)
        if whole is not None:
            yield table, whole


def weak_leaves(database: FoundDatabase | None, upstream: str, identities: Collection[str]) -> Sequence[str]:
    """Return the partitions of a table that are logged by one of some replica identities; none of a plain table."""
    leaves = database.tables[upstream].leaves if database is not None else ()
    return [leaf.name for leaf in leaves if not leaf.unlogged and leaf.replica_identity in identities]


def is_misidentified(table: CapturedTable, database: FoundDatabase | None, columns: Sequence[FoundColumn]) -> bool:
    """Return whether PostgreSQL logs other columns of deleted rows than those of the key, so that others are deleted or none.

    Columns that KEY names have nothing to do with the primary key: the table takes their values from the row before.
    """
    if database is None or table.upstream not in database.tables:
        return False
    is_key_given = bool(table.key) and {*table.key} != {column.name for column in columns if column.is_key}
    return database.tables[table.upstream].replica_identity == OTHER_COLUMNS and not is_key_given


def full_identity(upstream: str, leaves: Sequence[str]) -> str:
    """Write the statements with which PostgreSQL logs whole rows of a table, or of some of its partitions."""
    quoted = [table_text(name, ConnectionType.POSTGRES) for name in leaves or [upstream]]
    statements = "; ".join(f"ALTER TABLE {name} REPLICA IDENTITY FULL" for name in quoted[:_NAMED_AT_MOST])
    more = len(quoted) - _NAMED_AT_MOST
    also = f"; and {more} more partitions alike" if more > 0 else ""
    why = ". PostgreSQL logs by the setting of each partition, and a new one does not take it from its table"
    return f"{statements}{also}{why if leaves else ''}"


def refuse_unlogged_leaves(wanted: Wanted, database: FoundDatabase) -> None:
    """Refuse a declared table with a partition whose changes PostgreSQL does not log."""
    for table, leaf in _unlogged(wanted, database):
        if table.object_id in (wanted.declared or ()):
            raise UpstreamError(
                f'partition "{leaf.name}" of "{table.upstream}" is {_kind(leaf)} in the database of source "{wanted.source}"',
                code="upstream-table-unfit",
                detail="The connector's snapshot brings its rows, but PostgreSQL logs no change of them.",
                hint=f"{_way_out(leaf)}.",
            )


def unlogged_leaf_hints(wanted: Wanted, database: FoundDatabase | None) -> Iterator[str]:
    """Yield a sentence for each partition whose changes PostgreSQL does not log, unless a statement is about other tables."""
    if wanted.declared is None and database is not None:
        for table, leaf in _unlogged(wanted, database):
            yield (
                f"partition {leaf.name} of {table.upstream} is {_kind(leaf)}: a snapshot brings its rows, but PostgreSQL logs no "
                f"change of them. {_way_out(leaf)}"
            )


def _unlogged(wanted: Wanted, database: FoundDatabase) -> Iterator[tuple[CapturedTable, FoundLeaf]]:
    for table in wanted.tables:
        if table.upstream in database.tables:
            yield from ((table, leaf) for leaf in database.tables[table.upstream].leaves if leaf.unlogged)


def _kind(leaf: FoundLeaf) -> str:
    return f"a{'n' if leaf.unlogged == UNLOGGED else ''} {leaf.unlogged}"


def _way_out(leaf: FoundLeaf) -> str:
    """Return what to do about a partition that is not logged, without a full stop; it has the table snapshotted again."""
    name = table_text(leaf.name, ConnectionType.POSTGRES)
    return f"ALTER TABLE {name} SET LOGGED" if leaf.unlogged == UNLOGGED else f"ALTER TABLE … DETACH PARTITION {name}"
