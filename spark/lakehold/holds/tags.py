"""Tags: what makes every other tool that expires snapshots leave alone what a hold needs.

`hold_<name>` is on the snapshot that a hold stands at, `mz_<timestamp>` on that of each version after it (design, "Holds").
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType

from lakehold.catalog.holds import HeldTable, Holds, HoldStore
from lakehold.catalog.refs import FOREVER_MS, RefChanges, change_refs
from lakehold.errors import DefinitionError
from lakehold.holds.rules import protecting
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
        stands_at = timeline.version_at(_at_ms(hold.at_ms, timeline))
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

    return tuple(sorted(name for name in _ours(timeline.table) if name not in wanted and not is_later(name)))


def _at_ms(at_ms: int | None, timeline: Timeline) -> int:
    return timeline.since_ms if at_ms is None else at_ms


def _first_ms(timeline: Timeline, holds: Holds) -> int:
    return min(_at_ms(hold.at_ms, timeline) for hold in holds)


def _ours(table: Table) -> list[str]:
    """The tags that were put here: people may call theirs alike, and mostly let them age."""
    return [
        name
        for name, ref in table.metadata.refs.items()
        if ref.max_ref_age_ms == FOREVER_MS
        and ref.snapshot_ref_type is SnapshotRefType.TAG
        and (name.startswith(_HOLD) or _VERSION.fullmatch(name))
    ]


def _is_of(held: HeldTable, timeline: Timeline) -> bool:
    """Whether a held table is the one that has its name now."""
    is_there = held.is_fed or held.object_id == str(timeline.table.metadata.table_uuid)
    return held.full_name == timeline.full_name and is_there


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

        A table that is not there, or cannot be read yet, has nothing to be tagged.

        Raises:
            CommitConflict: Others kept changing a table.
            UpstreamUnavailable: The catalog does not answer.
        """
        for name in dict.fromkeys(full_names):
            found = self._timeline(name)
            if found is not None:
                timeline, holds = found
                stale = [tag for tag in unneeded_tags(timeline, holds) if tag.startswith(_HOLD)]
                changed = self._change(name, wanted_tags(timeline, holds), stale)
                if not changed and all(hold.at_ms is not None for hold in holds):
                    self._complete[name] = timeline.table.metadata_location, holds

    def is_held(self, full_name: str) -> bool:
        """Whether some hold is on a table."""
        return any(hold.is_on(full_name) for hold in self.store.holds())

    def keep(self, full_name: str) -> None:
        """`put` for who asks often: a table without holds, or as it was when nothing was missing, costs a look only."""
        holds = tuple(hold for hold in self.store.holds() if hold.is_on(full_name))
        if not holds:
            return
        state = self.timelines.tables.table_state(full_name)
        if state is not None and self._complete.get(full_name) != (state.table.metadata_location, holds):
            self.put((full_name,))

    def unneeded(self, full_name: str) -> tuple[str, ...]:
        """The tags of ours on a table that no hold needs; none of a table that cannot be read."""
        found = self._timeline(full_name)
        return unneeded_tags(*found) if found is not None else ()

    def remove(self, full_name: str, tags: Collection[str]) -> None:
        """Take away those of `tags` that are still not needed, and make the ones that are missing, in one commit."""
        found = self._timeline(full_name)
        if found is not None:
            self._change(full_name, wanted_tags(*found), set(tags).intersection(unneeded_tags(*found)))

    def _timeline(self, full_name: str) -> tuple[Timeline, Holds] | None:
        # The holds first: what was held then is not taken for needless because of one that came later.
        holds = protecting(self.store.holds(), self.timelines.definitions.definitions())
        try:
            timeline = self.timelines.of([full_name])[full_name]
        except DefinitionError:
            return None
        on_it = tuple(hold for hold in holds if any(_is_of(table, timeline) for table in hold.tables))
        if on_it:
            timeline = self.timelines.reaching(timeline, _first_ms(timeline, on_it))
        return timeline, on_it

    def _change(self, full_name: str, wanted: Mapping[str, int], removed: Collection[str]) -> bool:
        def plan(table: Table) -> RefChanges:
            refs = table.metadata.refs
            remaining = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
            missing = {
                name: snapshot_id
                for name, snapshot_id in wanted.items()
                if snapshot_id in remaining and (name not in refs or refs[name].snapshot_id != snapshot_id)
            }
            return RefChanges(tags=missing, removed=frozenset(removed).intersection(refs))

        return change_refs(self.catalog, full_name, plan) is not None
