"""Iceberg tags on the snapshots that holds need: other tools that expire snapshots keep those with a tag.

`hold_<name>` is on the snapshot at the time of a hold, `mz_<timestamp>` on that of each later version. A version is a snapshot
together with the timestamp from which the table showed it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from lakehold.errors import DefinitionError
from lakehold.holds.rules import needed_from_ms, protecting
from lakehold.iceberg.refs import RefChanges, change_refs
from lakehold.state.holds import HeldTable, Hold, Holds, HoldStore
from lakehold.timeline.stops import first_in_sync
from lakehold.timeline.table_timeline import Timeline
from lakehold.timeline.tagged_versions import HOLD_TAG, VERSION_TAG, own_tags
from lakehold.timeline.timelines import Timelines


def wanted_tags(timeline: Timeline, holds: Holds) -> dict[str, int]:
    """Map each tag that a table must have to the id of its snapshot.

    A hold needs the last version at or before its time. A hold before all versions has no tag: the table had no rows then.
    A snapshot that was current several times is the version of several timestamps.

    Args:
        timeline: The timeline of the table.
        holds: The holds on the table.
    """
    if not holds:
        return {}
    wanted: dict[str, int] = {}
    for hold in holds:
        held = timeline.version_at(first_in_sync(timeline.stops, _needed_ms(hold, timeline)))
        if held is not None and held.remains:
            wanted[HOLD_TAG + hold.name] = held.snapshot_id
    first_ms = _first_ms(timeline, holds)
    later = (v for v in timeline.versions if v.mz_timestamp > first_ms and v.remains)
    return wanted | {f"mz_{version.mz_timestamp}": version.snapshot_id for version in later}


def unneeded_tags(timeline: Timeline, holds: Holds) -> tuple[str, ...]:
    """List lakehold's tags on a table that no hold needs, in order of their names.

    A tag later than the earliest hold stays even if the timeline does not know its version: the snapshot log of a table
    starts again when another tool expires a snapshot that had no tag yet. While a hold has no known version, no tag of a hold
    goes: it may be the one that keeps its snapshot, under an earlier name.
    """
    wanted = wanted_tags(timeline, holds)
    first_ms = _first_ms(timeline, holds) if holds else None
    is_unknown = any(HOLD_TAG + hold.name not in wanted for hold in holds)

    def stays(name: str) -> bool:
        version = VERSION_TAG.fullmatch(name)
        if version is None:
            return is_unknown
        return first_ms is not None and int(version[1]) > first_ms

    return tuple(sorted(name for name in own_tags(timeline.table) if name not in wanted and not stays(name)))


def _needed_ms(hold: Hold, timeline: Timeline) -> int:
    return needed_from_ms(hold, timeline.since_ms, timeline.upper_ms)


def _first_ms(timeline: Timeline, holds: Holds) -> int:
    return min(_needed_ms(hold, timeline) for hold in holds)


def holds_on(timeline: Timeline, holds: Holds) -> Holds:
    """Select the holds on this table, and not on an earlier table of its name."""
    table_uuid = str(timeline.table.metadata.table_uuid)

    def is_it(held: HeldTable) -> bool:
        return held.full_name == timeline.full_name and (held.is_fed or held.object_id == table_uuid)

    return tuple(hold for hold in holds if any(map(is_it, hold.tables)))


@dataclass(frozen=True)
class TableTags:
    """The commits that bring the tags of tables to what the holds on them need.

    Args:
        catalog: The lake's catalog.
        timelines: The tables' histories.
        store: The holds.
    """

    catalog: Catalog
    timelines: Timelines
    store: HoldStore
    _complete: dict[str, tuple[str, Holds]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """By table: the metadata file that lacks no tag, and the holds for which it lacks none."""

    def put(self, full_names: Sequence[str]) -> None:
        """Add missing tags and remove `hold_*` tags that no hold needs, in at most one commit for each table.

        Without any hold on a table, all of lakehold's tags go: nothing might maintain the table any more. A table that
        does not exist, or cannot be read yet, is skipped.

        Raises:
            CommitConflict: Others kept changing a table.
            UpstreamUnavailable: The catalog does not answer.
        """
        for tagging in self._taggings(full_names):
            try:
                changed, committed = self._commit(tagging, _stale)
            except DefinitionError as error:
                if error.code != "table-missing":
                    raise
                continue
            timeline, holds = committed.timeline, committed.holds
            if not changed and all(hold.at_ms is not None for hold in holds):
                self._complete[timeline.full_name] = timeline.table.metadata_location, holds

    def is_held(self, full_name: str) -> bool:
        """Return whether some hold is on a table."""
        return any(hold.is_on(full_name) for hold in self.store.holds())

    def keep(self, full_name: str) -> Holds:
        """Put the tags of one table, for frequent calls: without holds or missing tags a call costs one read.

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

    def unneeded(self, timeline: Timeline, holds: Holds) -> tuple[str, ...]:
        """List lakehold's tags on a table that none of `holds` needs."""
        return self._tagging(timeline, holds).unneeded

    def remove(self, full_name: str, tags: Collection[str]) -> None:
        """Remove the given tags unless a hold needs them by now, and add missing ones, in one commit."""
        for tagging in self._taggings([full_name]):
            self._commit(tagging, lambda newest: set(tags).intersection(newest.unneeded))

    def _taggings(self, full_names: Sequence[str]) -> Iterator[_Tagging]:
        holds = self._protecting()
        for timeline in self.timelines.readable(full_names).values():
            yield self._tagging(timeline, holds)

    def _tagging(self, timeline: Timeline, holds: Holds) -> _Tagging:
        found = holds_on(timeline, holds)
        return _Tagging(self.timelines.reaching(timeline, _first_ms(timeline, found)) if found else timeline, found)

    def _protecting(self) -> Holds:
        return protecting(self.store.holds(), self.timelines.definitions.definitions())

    def _commit(self, tagging: _Tagging, removed: Callable[[_Tagging], Collection[str]]) -> tuple[bool, _Tagging]:
        """Commit the changes of tags that `tagging` needs, and those that `removed` selects.

        Returns:
            Whether tags had to change, and the tagging with the holds as they were at the commit.
        """
        name = tagging.timeline.full_name
        if not tagging.changes(tagging.timeline.table, removed(tagging)):
            return False, tagging

        def plan(table: Table) -> RefChanges:
            nonlocal tagging
            holds = self._protecting()
            # A hold is stored before its tags are put. So these holds include all whose tags `table` may have, and what
            # they do not need can go.
            if holds_on(tagging.timeline, holds) != tagging.holds:
                tagging = self._tagging(self.timelines.of([name])[name], holds)
            return tagging.changes(table, removed(tagging))

        return change_refs(self.catalog, name, plan) is not None, tagging


@dataclass(frozen=True)
class _Tagging:
    """The holds on a table and its history back to the earliest of them: together they decide the table's tags."""

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
    return [tag for tag in tagging.unneeded if tag.startswith(HOLD_TAG) or not tagging.holds]
