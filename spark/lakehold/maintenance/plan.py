"""What should be done to a table now: a value, made without touching anything."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakehold.maintenance.history import Freed, Needs, freed, unneeded_snapshots
from lakehold.maintenance.layout import Rewrite
from lakehold.timeline.timelines import Timeline


@dataclass(frozen=True)
class TablePlan:
    """What is to be done to one table, in this order.

    Attributes:
        full_name: `namespace.table`.
        kept_from_ms: From when on it stays readable, inclusive; None: nothing of its history goes.
        unneeded_tags: Tags of lakehold that no hold needs: they go before what they are on.
        expired: Ids of the snapshots that go.
        freed: About what goes with them.
        rewrite: Files that are worth writing anew.
        orphans_before_ms: Files made before then (exclusive) that the table does not refer to go; None: they are not looked for.
    """

    full_name: str
    kept_from_ms: int | None = None
    unneeded_tags: tuple[str, ...] = ()
    expired: tuple[int, ...] = ()
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
    """What is to be done to a table.

    Args:
        timeline: The table, with all versions that its metadata files know.
        needs: What keeps its history; None: its history is somebody else's to shorten.
        unneeded_tags: Tags of lakehold that no hold needs.
        rewrite: Files that are worth writing anew.
        orphans_before_ms: See `TablePlan`.
    """
    expired = unneeded_snapshots(timeline, needs, unneeded_tags) if needs is not None else ()
    return TablePlan(
        full_name=timeline.full_name,
        kept_from_ms=needs.kept_from_ms if needs is not None else None,
        unneeded_tags=unneeded_tags,
        expired=tuple(snapshot.snapshot_id for snapshot in expired),
        freed=freed(timeline, expired),
        rewrite=rewrite,
        orphans_before_ms=orphans_before_ms,
    )
