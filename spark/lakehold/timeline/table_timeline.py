"""The timeline of one table: its readable window `[since, upper)`, and its version at each timestamp in it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from functools import cached_property

from pyiceberg.table import Table

from lakehold.errors import NotReadable
from lakehold.model.readers import Stop
from lakehold.timeline.reader_lag import Changes
from lakehold.timeline.stops import each_in_sync
from lakehold.timeline.versions import Version, begins_empty, last_of_each
from lakehold.times import iso


@dataclass(frozen=True)
class Timeline:
    """The history of one table.

    Attributes:
        full_name: `namespace.table`.
        table: The table's Iceberg metadata when the timeline was built.
        source: The source that feeds the table, or the object id of a view; None for a table with foreign writers.
        versions: The versions as written, oldest first; readers see those in `shown`.
        since_ms: First readable timestamp (inclusive).
        upper_ms: First timestamp that is not readable yet (exclusive).
        complete_ms: When the first connector snapshot was complete, 0 for a table with foreign writers; `since_ms` is never
            earlier.
        stops: Time ranges in which the table was stopped, and so is not readable (`lakehold.timeline.stops`).
    """

    full_name: str
    table: Table = field(repr=False, compare=False)
    source: str | None
    versions: tuple[Version, ...]
    since_ms: int
    upper_ms: int
    complete_ms: int = 0
    stops: tuple[Stop, ...] = ()

    @cached_property
    def shown(self) -> tuple[Version, ...]:
        """Return the versions that readers see: of those written during a stop only the last, dated to the stop's end."""
        if not self.stops:
            return self.versions
        times_ms = each_in_sync(self.stops, (version.mz_timestamp for version in self.versions))
        dated = zip(times_ms, self.versions, strict=True)
        return last_of_each(replace(version, mz_timestamp=at_ms) for at_ms, version in dated)

    @cached_property
    def changes(self) -> Changes:
        """Return when the rows that readers see changed, as far as `versions` show it."""
        changed = [version for version in self.shown if version.follows_gap or not version.is_rewrite]
        gaps = {version.mz_timestamp for version in changed if version.follows_gap}
        if changed and not begins_empty(self.table, changed[0]):
            gaps.add(changed[0].mz_timestamp)
        return Changes(tuple(version.mz_timestamp for version in changed), frozenset(gaps))

    def version_at(self, time_ms: int) -> Version | None:
        """Return the last version at or before `time_ms`, expired or not; None before the first version."""
        place = bisect_right(self.shown, time_ms, key=lambda version: version.mz_timestamp)
        return self.shown[place - 1] if place else None

    def at(self, time_ms: int) -> Version | None:
        """Return the last version at or before `time_ms`; None before the first one, when the table was empty.

        Raises:
            NotReadable: The snapshot of that time has been expired.
        """
        found = self.version_at(time_ms)
        if found is not None and not found.remains:
            following = next((v for v in self.shown if v.mz_timestamp > time_ms and v.remains), None)
            raise NotReadable(
                f'"{self.full_name}" is no longer readable at {time_ms}',
                detail=f"Snapshot {found.snapshot_id} of {iso(found.mz_timestamp)} UTC has been expired. "
                + (
                    f"The next one is of {following.mz_timestamp} ({iso(following.mz_timestamp)} UTC)."
                    if following
                    else ""
                ),
                hint="Read from the time of a snapshot that remains.",
            )
        return found

    def between(self, after_exclusive_ms: int, until_exclusive_ms: int) -> tuple[Version, ...]:
        """Return the versions between two timestamps that can still be read: not those whose snapshots were expired.

        The changes of an expired version appear in the next version that remains.
        """
        return tuple(v for v in self.shown if after_exclusive_ms < v.mz_timestamp < until_exclusive_ms and v.remains)

    def remaining_after(self, time_ms: int) -> Timeline:
        """Return the timeline without the versions after `time_ms` that are expired: the one before them is shown longer."""
        remaining = tuple(v for v in self.shown if v.remains or v.mz_timestamp <= time_ms)
        return self if remaining == self.shown else replace(self, versions=remaining)

    def rollbacks(self, after_exclusive_ms: int, until_exclusive_ms: int) -> list[str]:
        """Describe for people when, in the interval, the table was set to a snapshot that it had shown before."""
        seen: set[int] = set()
        found = []
        for version in self.shown:
            if version.snapshot_id in seen and after_exclusive_ms < version.mz_timestamp < until_exclusive_ms:
                found.append(
                    f'"{self.full_name}" was set to snapshot {version.snapshot_id} at {version.mz_timestamp}: it had shown '
                    "that snapshot before, so its rows are the same as then"
                )
            seen.add(version.snapshot_id)
        return found

    def knows(self, time_ms: int) -> bool:
        """Return whether `versions` show which version was current at `time_ms`; otherwise earlier metadata files may.

        They do not if the time lies before all versions, or if the next version follows a gap, in which some were expired.
        """
        place = bisect_right(self.versions, time_ms, key=lambda version: version.mz_timestamp)
        return place > 0 and not any(version.follows_gap for version in self.versions[place : place + 1])

    def row_count(self, snapshot_id: int) -> int | None:
        """Return the number of rows in a snapshot's files, deleted ones included; None if its writer did not count them."""
        snapshot = self.table.snapshot_by_id(snapshot_id)
        summary = snapshot.summary.additional_properties if snapshot is not None and snapshot.summary else {}
        return int(summary["total-records"]) if "total-records" in summary else None

    @property
    def window(self) -> str:
        """Format the readable window as part of a sentence."""
        return (
            f'"{self.full_name}" on [{self.since_ms}, {self.upper_ms}), '
            f"{iso(self.since_ms)} to {iso(self.upper_ms)} UTC"
        )
