"""The plan for a table's maintenance: a value, made without effects."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakehold.maintenance.file_layout import Rewrite
from lakehold.maintenance.history import Freed, Needs, freed, unneeded_snapshots
from lakehold.timeline.table_timeline import Timeline


@dataclass(frozen=True)
class TablePlan:
    """The steps for one table, in this order.

    Attributes:
        full_name: `namespace.table`.
        kept_from_ms: From when on it stays readable, inclusive; None: another program decides about its history.
        unneeded_tags: Tags of lakehold that no hold needs: they are removed before their snapshots.
        expired: Ids of the snapshots to expire.
        manifest_lists: Their manifest lists, one of each, which no other snapshot has.
        freed: An estimate of what that frees.
        rewrite: Files that are worth rewriting.
        orphans_before_ms: Unreferenced files made before then (exclusive) are deleted; None: they are not searched for.
    """

    full_name: str
    kept_from_ms: int | None = None
    unneeded_tags: tuple[str, ...] = ()
    expired: tuple[int, ...] = ()
    manifest_lists: tuple[str, ...] = ()
    freed: Freed = field(default_factory=Freed)
    rewrite: Rewrite = field(default_factory=Rewrite)
    orphans_before_ms: int | None = None


def plan_table(
    timeline: Timeline,
    needs: Needs | None,
    unneeded_tags: tuple[str, ...],
    rewrite: Rewrite,
    orphans_before_ms: int | None,
) -> TablePlan:
    """Plan the maintenance of a table.

    Args:
        timeline: The table, with all versions in its metadata files.
        needs: The needs that keep its history; None: another program decides about its history.
        unneeded_tags: Tags of lakehold that no hold needs.
        rewrite: Files that are worth rewriting.
        orphans_before_ms: See `TablePlan`.
    """
    expired = unneeded_snapshots(timeline, needs, unneeded_tags) if needs is not None else ()
    return TablePlan(
        full_name=timeline.full_name,
        kept_from_ms=needs.kept_from_ms if needs is not None else None,
        unneeded_tags=unneeded_tags,
        expired=tuple(snapshot.snapshot_id for snapshot in expired),
        manifest_lists=tuple(snapshot.manifest_list for snapshot in expired),
        freed=freed(timeline, expired),
        rewrite=rewrite,
        orphans_before_ms=orphans_before_ms,
    )
