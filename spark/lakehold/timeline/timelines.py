"""Every table is readable on `[since, upper)`: where the bounds come from, and which version a time means."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

from pyiceberg.table import Table

from lakehold.errors import DefinitionError, NotReadable
from lakehold.iceberg.data_tables import DataTables
from lakehold.model.definitions import DefinitionReader, Definitions
from lakehold.model.readers import Readers, Stop, TableProgress
from lakehold.state.batches import BatchStore
from lakehold.state.holds import Holds
from lakehold.timeline.stops import check_level, first_behind, last_before
from lakehold.timeline.versions import Version, begins_empty, earlier_versions, versions
from lakehold.times import iso, now_ms


@dataclass(frozen=True)
class Timeline:
    """One table's history.

    Attributes:
        full_name: `namespace.table`.
        table: Its Iceberg metadata, as it was when the timeline was made.
        source: The source that feeds it; None for a table that others write.
        versions: Oldest first, as they were written; `shown` are those that readers see.
        since_ms: Read frontier, inclusive.
        upper_ms: Write frontier, exclusive.
        complete_ms: When the first snapshot of the connector was complete; `since_ms` is never earlier.
        stops: Times in `[since, upper)` at which it cannot be read all the same, as it was stopped (`lakehold.timeline.stops`).
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
        """The versions that readers see: what came while the table was stopped shows at the end of that, as one."""
        if not self.stops:
            return self.versions
        dated = {first_behind(self.stops, version.mz_timestamp): version for version in self.versions}
        return tuple(replace(version, mz_timestamp=at_ms) for at_ms, version in dated.items())

    def version_at(self, time_ms: int) -> Version | None:
        """The last version at or before `time_ms`, expired or not; None before the first."""
        place = bisect_right(self.shown, time_ms, key=lambda version: version.mz_timestamp)
        return self.shown[place - 1] if place else None

    def at(self, time_ms: int) -> Version | None:
        """The version at `time_ms`, the last one at or before it; None before the first: the table had no rows.

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
        """The versions in the interval that can still be read; a change over a gap is seen at the gap's end."""
        return tuple(v for v in self.shown if after_exclusive_ms < v.mz_timestamp < until_exclusive_ms and v.remains)

    def rollbacks(self, after_exclusive_ms: int, until_exclusive_ms: int) -> list[str]:
        """What a person should know of the interval: the times at which the table was set to a snapshot it had shown before."""
        seen: set[int] = set()
        found = []
        for version in self.shown:
            if version.snapshot_id in seen and after_exclusive_ms < version.mz_timestamp < until_exclusive_ms:
                found.append(
                    f'"{self.full_name}" was set to snapshot {version.snapshot_id} at {version.mz_timestamp}, which it had '
                    "shown before: its rows are again what they were then"
                )
            seen.add(version.snapshot_id)
        return found

    def knows(self, time_ms: int) -> bool:
        """Whether `at` needs no earlier metadata for `time_ms`: it lies neither before all versions nor in front of a gap."""
        place = bisect_right(self.versions, time_ms, key=lambda version: version.mz_timestamp)
        return place > 0 and not any(version.follows_gap for version in self.versions[place : place + 1])

    def row_count(self, snapshot_id: int) -> int | None:
        """Rows in the files of a snapshot, deleted ones included; None where its writer did not count them."""
        snapshot = self.table.snapshot_by_id(snapshot_id)
        summary = snapshot.summary.additional_properties if snapshot is not None and snapshot.summary else {}
        return int(summary["total-records"]) if "total-records" in summary else None

    @property
    def window(self) -> str:
        """The interval as a sentence's part."""
        return (
            f'"{self.full_name}" on [{self.since_ms}, {self.upper_ms}), '
            f"{iso(self.since_ms)} to {iso(self.upper_ms)} UTC"
        )


def no_holds() -> Holds:
    """Of a lake without holds."""
    return ()


@dataclass(frozen=True)
class Timelines:
    """Makes timelines.

    Args:
        tables: The lake's tables.
        definitions: Which of them a source feeds.
        batches: How far the sources are.
        foreign_lag_ms: How far `upper` of other tables stays behind the clock: a writer's snapshot carries the time at which
            it began to commit.
        clock: Epoch milliseconds.
        wait: Waits for so many seconds.
        holds: What keeps tables readable; asked for only to say more in an error.
    """

    tables: DataTables
    definitions: DefinitionReader
    batches: BatchStore
    foreign_lag_ms: int
    clock: Callable[[], int] = now_ms
    wait: Callable[[float], None] = time.sleep
    holds: Callable[[], Holds] = no_holds

    def of(self, names: Sequence[str]) -> dict[str, Timeline]:
        """The timelines of `names` now.

        Raises:
            DefinitionError: A table is not there.
            NotReadable: A table's first snapshot is not complete.
        """
        defined, readers = self.definitions.definitions(), cache(self.batches.readers)
        return {name: self._timeline(name, defined, readers) for name in dict.fromkeys(names)}

    def readable(self, names: Iterable[str]) -> dict[str, Timeline]:
        """The timelines of those of `names` that are there and can be read now."""
        defined, readers = self.definitions.definitions(), cache(self.batches.readers)
        found: dict[str, Timeline] = {}
        for name in dict.fromkeys(names):
            with suppress(DefinitionError):
                found[name] = self._timeline(name, defined, readers)
        return found

    def settled(self, names: Sequence[str], wanted_ms: Sequence[int] = ()) -> dict[str, Timeline]:
        """The timelines of `names`; of tables that others write with all that was committed before the call.

        It waits for their lag as far as it must: until `upper` has passed their newest snapshot and what of `wanted_ms` is not
        in the future. It never waits for a source, nor for a writer whose clock is ahead.
        """
        now = self.clock()
        found = self.of(names)
        foreign = [timeline for timeline in found.values() if timeline.source is None]
        heads = [timeline.versions[-1].mz_timestamp if timeline.versions else timeline.since_ms for timeline in foreign]
        needed_ms = max((min(ms, now) for ms in (*heads, *wanted_ms)), default=now)
        late_ms = needed_ms + 1 - min((timeline.upper_ms for timeline in foreign), default=needed_ms + 1)
        if late_ms <= 0:
            return found
        self.wait(late_ms / 1000)
        return self.of(names)

    def reaching(self, timeline: Timeline, time_ms: int) -> Timeline:
        """`timeline` with what earlier metadata files know, if it does not know `time_ms`."""
        if timeline.knows(time_ms):
            return timeline
        found = earlier_versions(timeline.table, timeline.source)
        first = next((v.mz_timestamp for v in found if v.remains), timeline.since_ms)
        since_ms = first_behind(timeline.stops, max(first, timeline.complete_ms))
        return replace(timeline, versions=found, since_ms=min(timeline.since_ms, since_ms))

    def check_level(self, names: Sequence[str], time_ms: int) -> None:
        """None of `names` may have been stopped at a time, whether or not it can be read otherwise; reads no table.

        Raises:
            NotReadable: One was.
        """
        defined, readers = self.definitions.definitions(), cache(self.batches.readers)
        fed = {name: _fed_by(name, defined, readers) for name in names if name in defined.tables}
        check_level({name: by[0].stops for name, by in fed.items() if by is not None}, time_ms)

    def _timeline(self, name: str, defined: Definitions, readers: Callable[[str], Readers]) -> Timeline:
        # Before the metadata: what a batch committed below this `upper` is in metadata loaded afterwards.
        frontier = _fed_frontier(name, defined, readers) if name in defined.tables else None
        clock_ms = self.clock()
        state = self.tables.table_state(name)
        if state is None:
            raise self._missing(name, defined)
        if frontier is None:
            found = versions(state.table, None)
            since_ms = found[0].mz_timestamp if found else state.table.metadata.last_updated_ms
            return Timeline(name, state.table, None, found, since_ms, clock_ms - self.foreign_lag_ms)
        source, complete_ms, upper_ms, stops = frontier
        found, since_ms = versions(state.table, source), complete_ms
        if found and not begins_empty(state.table, found[0]):
            since_ms = max(since_ms, found[0].mz_timestamp)
        since_ms = first_behind(stops, since_ms)
        return Timeline(name, state.table, source, found, since_ms, upper_ms, complete_ms, stops)

    def _missing(self, name: str, defined: Definitions) -> DefinitionError:
        if name in defined.tables:
            source = defined.tables[name].definition.source
            return NotReadable(
                f'"{name}" has no rows and no columns yet',
                detail=f'No message of its topic has been read from source "{source}".',
                hint=f"lakehold ingest {source}",
            )
        table = name.rpartition(".")[0]
        if "." in table and self.tables.table_state(table) is not None:
            return DefinitionError(
                f'"{name}" is a part of "{table}" and has no history of its own',
                code="table-missing",
                detail="What is read over time is a table's main branch, not other branches, tags or metadata.",
                hint=f"Read {table}.",
            )
        return DefinitionError(
            f'table "{name}" does not exist',
            code="table-missing",
            hint="SHOW TABLES IN a namespace lists what is there.",
        )


def _fed_frontier(
    name: str, defined: Definitions, readers: Callable[[str], Readers]
) -> tuple[str, int, int, tuple[Stop, ...]]:
    source, found = defined.tables[name].definition.source, _fed_by(name, defined, readers)
    if found is not None:
        progress, upper_ms = found
        if progress.since_ms is not None:
            return source, progress.since_ms, upper_ms, progress.stops
    raise NotReadable(
        f'"{name}" is not readable yet',
        detail=f'Its first snapshot from source "{source}" is not complete.',
        hint=f"lakehold ingest {source}",
    )


def _fed_by(name: str, defined: Definitions, readers: Callable[[str], Readers]) -> tuple[TableProgress, int] | None:
    """How far a table that a source feeds is, and its `upper`; None: no batch has been committed for it."""
    entry = defined.tables[name]
    for state in readers(entry.definition.source).values():
        progress = state.tables.get(name)
        if progress is None or progress.object_id != entry.object_id:
            continue
        upper_ms = state.upper_of(name)
        if upper_ms is not None:
            return progress, upper_ms
    return None


def common_window(timelines: Sequence[Timeline]) -> tuple[int, int]:
    """`[since, upper)` in which all of `timelines` are readable: the latest `since`, the least `upper`.

    Neither its first nor its last time is one at which a table was stopped.
    """
    since_ms = first_behind(_stops(timelines), max(t.since_ms for t in timelines))
    return since_ms, last_frontier(timelines, min(t.upper_ms for t in timelines))


def last_frontier(timelines: Iterable[Timeline], frontier_ms: int) -> int:
    """The last frontier (exclusive) up to `frontier_ms` that has a time just below it at which no table was stopped.

    Who has read all below it can go on from that time.
    """
    return last_before(_stops(timelines), frontier_ms - 1) + 1


def together(timelines: Mapping[str, Timeline]) -> dict[str, Timeline]:
    """`timelines` of tables that are read along time together: where one of them was stopped none shows a change."""
    stops = _stops(timelines.values())
    return {name: replace(timeline, stops=stops) if stops else timeline for name, timeline in timelines.items()}


def _stops(timelines: Iterable[Timeline]) -> tuple[Stop, ...]:
    return tuple(stop for timeline in timelines for stop in timeline.stops)


def check_readable(timelines: Sequence[Timeline], time_ms: int, holds: Callable[[], Holds] = no_holds) -> None:
    """All of `timelines` must be readable at `time_ms`.

    Args:
        timelines: What is read.
        time_ms: Epoch milliseconds.
        holds: Those of the lake, asked for only by an error.

    Raises:
        NotReadable: Some are not; it says what is readable, and which holds on them begin later.
    """
    failing = [t for t in timelines if not t.since_ms <= time_ms < t.upper_ms]
    since_ms, upper_ms = common_window(timelines)
    if not failing:
        check_level({timeline.full_name: timeline.stops for timeline in timelines}, time_ms, since_ms, upper_ms)
        return
    if since_ms < upper_ms:
        hint = f"Choose a time from {since_ms} to {upper_ms - 1}."
    else:
        hint = "There is no time at which all of them are readable yet."
    raise NotReadable(
        f'"{failing[0].full_name}" is not readable at {time_ms}',
        detail=f"Readable: {'; '.join(t.window for t in timelines)}.{_later_holds(failing, time_ms, holds())}",
        hint=hint,
    )


def _later_holds(timelines: Sequence[Timeline], time_ms: int, holds: Holds) -> str:
    """A sentence for each hold that keeps one of `timelines` readable, but only from later than `time_ms` on."""
    return "".join(
        f' Hold "{hold.name}" keeps "{timeline.full_name}" from {hold.at_ms} ({iso(hold.at_ms)} UTC) on.'
        for timeline in timelines
        for hold in holds
        if hold.at_ms is not None
        and time_ms < hold.at_ms
        and time_ms < timeline.since_ms
        and hold.is_on(timeline.full_name)
    )
