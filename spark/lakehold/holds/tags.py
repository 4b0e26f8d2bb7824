"""Tags: what makes every other tool that expires snapshots leave alone what a hold needs.

`hold_<name>` is on the snapshot that a hold stands at, `mz_<timestamp>` on that of each version after it (design, "Holds").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType

from lakehold.holds.rules import protecting
from lakehold.iceberg.refs import FOREVER_MS, RefChanges, change_refs
from lakehold.state.holds import HeldTable, Holds, HoldStore
from lakehold.timeline.stops import first_behind
from lakehold.timeline.timelines import Timeline, Timelines

_HOLD = "hold_"
_VERSION = re.compile(r"mz_(\d+)")


def wanted_tags(timeline: Timeline, holds: Holds) -> dict[str, int]:
    """The tags that a table must have, and the snapshots that they are on.

    A hold stands at the last version at or before its time: none has a tag for one in front of all versions, where the
    table had no rows. A snapshot that was current several times is the version of several timestamps.

    Args:
        timeline: The table's.
        holds: Those that are on it.
    """
    if not holds:
        return {}
    wanted: dict[str, int] = {}
    for hold in holds:
        stands_at = timeline.version_at(first_behind(timeline.stops, _at_ms(hold.at_ms, timeline)))
        if stands_at is not None and stands_at.remains:
            wanted[_HOLD + hold.name] = stands_at.snapshot_id
    first_ms = _first_ms(timeline, holds)
    later = (v for v in timeline.versions if v.mz_timestamp > first_ms and v.remains)
    return wanted | {f"mz_{version.mz_timestamp}": version.snapshot_id for version in later}


def unneeded_tags(timeline: Timeline, holds: Holds) -> tuple[str, ...]:
    """The tags of ours on a table that no hold needs, in order of their names.

    One later than all holds stays even if the timeline does not know it: a table's log begins anew when another tool
    expires a snapshot that had no tag yet.
    """
    wanted = wanted_tags(timeline, holds)
    first_ms = _first_ms(timeline, holds) if holds else None

    def is_later(name: str) -> bool:
        version = _VERSION.fullmatch(name)
        return version is not None and first_ms is not None and int(version[1]) > first_ms

    return tuple(sorted(name for name in own_tags(timeline.table) if name not in wanted and not is_later(name)))


def _at_ms(at_ms: int | None, timeline: Timeline) -> int:
    return timeline.since_ms if at_ms is None else at_ms


def _first_ms(timeline: Timeline, holds: Holds) -> int:
    return min(_at_ms(hold.at_ms, timeline) for hold in holds)


def own_tags(table: Table) -> list[str]:
    """The tags that were put here: people may call theirs alike, and mostly let them age."""
    return [
        name
        for name, ref in table.metadata.refs.items()
        if ref.max_ref_age_ms == FOREVER_MS
        and ref.snapshot_ref_type is SnapshotRefType.TAG
        and (name.startswith(_HOLD) or _VERSION.fullmatch(name))
    ]


def _on(timeline: Timeline, holds: Holds) -> Holds:
    """Those of `holds` that are on the table which has the name now."""
    table_uuid = str(timeline.table.metadata.table_uuid)

    def is_it(held: HeldTable) -> bool:
        return held.full_name == timeline.full_name and (held.is_fed or held.object_id == table_uuid)

    return tuple(hold for hold in holds if any(map(is_it, hold.tables)))


@dataclass(frozen=True)
class TableTags:
    """Brings the tags of tables to what the holds on them need.

    Args:
        catalog: The lake's catalog.
        timelines: The tables' histories.
        store: The holds.
    """

    catalog: Catalog
    timelines: Timelines
    store: HoldStore
    _complete: dict[str, tuple[str, Holds]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """By table: the metadata file that lacks no tag, and for which holds."""

    def put(self, full_names: Sequence[str]) -> None:
        """Make the tags that are missing, and take away `hold_*` that are not needed: one commit a table, or none.

        Once no hold is left, all tags of ours go: nobody might look after the table any more.

        A table that is not there, or cannot be read yet, has nothing to be tagged.

        Raises:
            CommitConflict: Others kept changing a table.
            UpstreamUnavailable: The catalog does not answer.
        """
        for tagging in self._taggings(full_names):
            changed, followed = self._follow(tagging, _stale)
            timeline, holds = followed.timeline, followed.holds
            if not changed and all(hold.at_ms is not None for hold in holds):
                self._complete[timeline.full_name] = timeline.table.metadata_location, holds

    def is_held(self, full_name: str) -> bool:
        """Whether some hold is on a table."""
        return any(hold.is_on(full_name) for hold in self.store.holds())

    def keep(self, full_name: str) -> Holds:
        """Do what `put` does, for who asks often: a table without holds, or without anything missing, costs one read.

        Returns:
            The holds on the table.
        """
        holds = tuple(hold for hold in self.store.holds() if hold.is_on(full_name))
        if not holds:
            return holds
        state = self.timelines.tables.table_state(full_name)
        if state is not None and self._complete.get(full_name) != (state.table.metadata_location, holds):
            self.put((full_name,))
        return holds

    def unneeded(self, full_name: str) -> tuple[str, ...]:
        """The tags of ours on a table that no hold needs; none of a table that cannot be read."""
        return tuple(tag for tagging in self._taggings([full_name]) for tag in tagging.unneeded)

    def remove(self, full_name: str, tags: Collection[str]) -> None:
        """Take away those of `tags` that are still not needed, and make the ones that are missing, in one commit."""
        for tagging in self._taggings([full_name]):
            self._follow(tagging, lambda newest: set(tags).intersection(newest.unneeded))

    def _taggings(self, full_names: Sequence[str]) -> Iterator[_Tagging]:
        holds = self._protecting()
        for timeline in self.timelines.readable(full_names).values():
            yield self._tagging(timeline, holds)

    def _tagging(self, timeline: Timeline, holds: Holds) -> _Tagging:
        on_it = _on(timeline, holds)
        return _Tagging(self.timelines.reaching(timeline, _first_ms(timeline, on_it)) if on_it else timeline, on_it)

    def _protecting(self) -> Holds:
        return protecting(self.store.holds(), self.timelines.definitions.definitions())

    def _follow(self, tagging: _Tagging, removed: Callable[[_Tagging], Collection[str]]) -> tuple[bool, _Tagging]:
        """Whether anything was to change, and what was followed: the holds as they were when it was committed."""
        name = tagging.timeline.full_name
        if not tagging.changes(tagging.timeline.table, removed(tagging)):
            return False, tagging

        def plan(table: Table) -> RefChanges:
            nonlocal tagging
            holds = self._protecting()
            # Whose tags are on the table is written by now: only what these holds do not need is needed by nobody.
            if _on(tagging.timeline, holds) != tagging.holds:
                tagging = self._tagging(self.timelines.of([name])[name], holds)
            return tagging.changes(table, removed(tagging))

        return change_refs(self.catalog, name, plan) is not None, tagging


@dataclass(frozen=True)
class _Tagging:
    """What the tags of a table are decided from: its history as far back as its holds go, and those."""

    timeline: Timeline
    holds: Holds

    @property
    def unneeded(self) -> tuple[str, ...]:
        return unneeded_tags(self.timeline, self.holds)

    def changes(self, table: Table, removed: Collection[str]) -> RefChanges:
        refs = table.metadata.refs
        remaining = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
        missing = {
            name: snapshot_id
            for name, snapshot_id in wanted_tags(self.timeline, self.holds).items()
            if snapshot_id in remaining and (name not in refs or refs[name].snapshot_id != snapshot_id)
        }
        return RefChanges(tags=missing, removed=frozenset(removed).intersection(refs))


def _stale(tagging: _Tagging) -> list[str]:
    return [tag for tag in tagging.unneeded if tag.startswith(_HOLD) or not tagging.holds]
