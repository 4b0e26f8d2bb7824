"""Partitions of PostgreSQL whose changes arrive under the name of their parent table. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lakehold.definitions import full_name_text
from lakehold.errors import UpstreamError
from lakehold.upstream.found import FoundDatabase
from lakehold.upstream.wanted import CapturedTable, Wanted


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
