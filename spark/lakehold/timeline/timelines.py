"""Timelines of tables: the readable window `[since, upper)`, and the version of the table at each timestamp.

A table is fed by a source, whose batches have timestamps, or it is a materialized view, whose timestamps are those of the tables
that it reads, or it has *foreign writers*, which know nothing of lakehold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

from lakehold.definitions import MaterializedView
from lakehold.errors import DefinitionError, NotReadable
from lakehold.iceberg.data_tables import DataTables
from lakehold.model.lake_definitions import DefinitionReader, Definitions, Entry
from lakehold.model.readers import Readers, Stop, TableProgress
from lakehold.model.summary_keys import POSITION_PROPERTY, SINCE_PROPERTY, SOURCE_PROPERTY
from lakehold.nearest import did_you_mean
from lakehold.state.batch_protocol import BatchStore
from lakehold.state.holds import Holds
from lakehold.state.subscribers import Subscriber, position_of
from lakehold.timeline.stops import check_in_sync, first_in_sync, last_in_sync
from lakehold.timeline.table_timeline import Timeline
from lakehold.timeline.tagged_versions import with_tagged
from lakehold.timeline.versions import begins_empty, earlier_versions, versions
from lakehold.times import iso, now_ms


def no_holds() -> Holds:
    """Return no holds, as for a lake without any."""
    return ()


def no_subscriber(_: str) -> None:
    """Return no subscriber, as for a lake without views."""


@dataclass(frozen=True)
class Timelines:
    """A factory of timelines.

    Args:
        tables: The lake's tables.
        definitions: Reads the definitions, which show which source feeds a table.
        batches: Reads the states of the sources' readers, which show how far the tables are.
        foreign_lag_ms: How far `upper` of tables with foreign writers is behind the clock: a commit that has begun may still add
            a snapshot with an earlier timestamp.
        clock: Returns the current time, epoch milliseconds.
        wait: Waits for a number of seconds.
        holds: Returns the lake's holds; only called to describe an error, and where only tags show what was current.
        subscriber: Returns a subscriber by id, which shows how far a view is refreshed.
    """

    tables: DataTables
    definitions: DefinitionReader
    batches: BatchStore
    foreign_lag_ms: int
    clock: Callable[[], int] = now_ms
    wait: Callable[[float], None] = time.sleep
    holds: Callable[[], Holds] = no_holds
    subscriber: Callable[[str], Subscriber | None] = no_subscriber

    def of(self, names: Sequence[str]) -> dict[str, Timeline]:
        """Build the timelines of `names` as of now.

        Raises:
            DefinitionError: A table does not exist.
            NotReadable: A table's first snapshot is not complete.
        """
        defined, readers = self.definitions.definitions(), cache(self.batches.readers)
        return {name: self._timeline(name, defined, readers) for name in dict.fromkeys(names)}

    def readable(self, names: Iterable[str]) -> dict[str, Timeline]:
        """Build the timelines of those tables in `names` that exist and are readable now."""
        defined, readers = self.definitions.definitions(), cache(self.batches.readers)
        found: dict[str, Timeline] = {}
        wanted = tuple(dict.fromkeys(names))
        if len(wanted) > 1:
            self.tables.read_ahead(wanted)
        for name in wanted:
            with suppress(DefinitionError):
                found[name] = self._timeline(name, defined, readers)
        return found

    def after_foreign_lag(self, names: Sequence[str], wanted_ms: Sequence[int] = ()) -> dict[str, Timeline]:
        """Build the timelines of `names`, including everything that foreign writers committed before the call.

        `upper` of a table with foreign writers is `foreign_lag_ms` behind the clock. If necessary this waits until it is above
        the table's newest snapshot, and above each time in `wanted_ms` that is not in the future. It never waits for a source,
        nor for a writer whose clock is ahead.
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
        """Return `timeline` with the versions in earlier metadata files, if its own do not show what was current at `time_ms`.

        Tags of holds show it if neither do.
        """
        if timeline.knows(time_ms):
            return timeline
        found = earlier_versions(timeline.table, timeline.source)
        if found and time_ms < found[0].mz_timestamp:
            held = (hold for hold in self.holds() if hold.at_ms is not None and hold.is_on(timeline.full_name))
            held_ms = {hold.name: first_in_sync(timeline.stops, hold.at_ms or 0) for hold in held}
            found = with_tagged(found, timeline.table, held_ms)
        first = next((v.mz_timestamp for v in found if v.remains), timeline.since_ms)
        since_ms = first_in_sync(timeline.stops, max(first, timeline.complete_ms))
        return replace(timeline, versions=found, since_ms=min(timeline.since_ms, since_ms))

    def check_in_sync(self, names: Sequence[str], time_ms: int) -> None:
        """Raise if one of the tables was stopped at `time_ms`, which need not be readable. Loads no table.

        Raises:
            NotReadable: A table was stopped.
        """
        defined, readers = self.definitions.definitions(), cache(self.batches.readers)
        fed = {name: _fed_by(name, defined, readers) for name in names if name in defined.tables}
        check_in_sync({name: by[0].stops for name, by in fed.items() if by is not None}, time_ms)

    def _timeline(self, name: str, defined: Definitions, readers: Callable[[str], Readers]) -> Timeline:
        # Read the frontiers before the table's metadata: so the metadata contains all batches that were committed below `upper`.
        fed = _fed(name, defined, readers) if name in defined.tables else None
        if name in defined.views:
            return self._view_timeline(defined.views[name])
        clock_ms = self.clock()
        state = self.tables.table_state(name)
        if state is None:
            raise self._missing(name, defined)
        if fed is None:
            found = versions(state.table, None)
            since_ms = found[0].mz_timestamp if found else state.table.metadata.last_updated_ms
            return Timeline(name, state.table, None, found, since_ms, clock_ms - self.foreign_lag_ms)
        found, since_ms = versions(state.table, fed.source), fed.complete_ms
        if found and not begins_empty(state.table, found[0]):
            since_ms = max(since_ms, found[0].mz_timestamp)
        since_ms = first_in_sync(fed.stops, since_ms)
        return Timeline(name, state.table, fed.source, found, since_ms, fed.upper_ms, fed.complete_ms, fed.stops)

    def _view_timeline(self, entry: Entry[MaterializedView]) -> Timeline:
        """Build the timeline of a view: it is readable from its first refresh, up to where it is refreshed.

        Raises:
            NotReadable: It was never refreshed.
        """
        name, subscriber = entry.definition.full_name, self.subscriber(entry.object_id)
        state = self.tables.table_state(name)
        is_own = state is not None and state.properties.get(SOURCE_PROPERTY) == entry.object_id
        properties = state.properties if state is not None and is_own else {}
        written_ms = int(properties[POSITION_PROPERTY]) if POSITION_PROPERTY in properties else None
        upper_ms = position_of(subscriber, written_ms)
        if state is None or upper_ms is None:
            raise NotReadable(
                f'"{name}" is not readable yet',
                detail="The materialized view was never refreshed.",
                hint=f"lakehold publish {name}",
            )
        since_ms, found = int(properties[SINCE_PROPERTY]), versions(state.table, entry.object_id)
        if found and not begins_empty(state.table, found[0]):
            since_ms = max(since_ms, found[0].mz_timestamp)
        return Timeline(name, state.table, entry.object_id, found, since_ms, upper_ms, since_ms)

    def _missing(self, name: str, defined: Definitions) -> DefinitionError:
        if name in defined.tables:
            # A table without rows is readable only once it exists.
            return DefinitionError(
                f'the Iceberg table "{name}" does not exist any more',
                code="table-missing",
                detail=f'Source "{defined.tables[name].definition.source}" fed it, and another program dropped or renamed it.',
                hint=f"Rename or restore it to {name}; or DROP TABLE {name}, and create it again to load all rows.",
            )
        table = name.rpartition(".")[0]
        if "." in table and self.tables.table_state(table) is not None:
            return DefinitionError(
                f'"{name}" is a part of "{table}" and has no history of its own',
                code="table-missing",
                detail="Only a table's main branch can be read over time, not other branches, tags or metadata.",
                hint=f"Read {table}.",
            )
        return DefinitionError(
            f'table "{name}" does not exist',
            code="table-missing",
            hint=did_you_mean(
                name, {*defined.all_tables, *self.tables.all_names()}, "SHOW TABLES IN a namespace lists its tables."
            ),
        )


@dataclass(frozen=True)
class _Fed:
    """A table that a source feeds, as the readers of the source know it.

    Attributes:
        source: The source.
        complete_ms: When the first connector snapshot was complete.
        upper_ms: First timestamp that is not readable yet.
        stops: Time ranges in which the table was stopped.
    """

    source: str
    complete_ms: int
    upper_ms: int
    stops: tuple[Stop, ...]


def _fed(name: str, defined: Definitions, readers: Callable[[str], Readers]) -> _Fed:
    """Return what is known of a table that a source feeds.

    Raises:
        NotReadable: The first connector snapshot is not complete.
    """
    source, found = defined.tables[name].definition.source, _fed_by(name, defined, readers)
    if found is not None:
        progress, upper_ms = found
        if progress.since_ms is not None:
            return _Fed(source, progress.since_ms, upper_ms, progress.stops)
    raise NotReadable(
        f'"{name}" is not readable yet',
        detail=f'Its first snapshot from source "{source}" is not complete.',
        hint=f"lakehold ingest {source}",
    )


def _fed_by(name: str, defined: Definitions, readers: Callable[[str], Readers]) -> tuple[TableProgress, int] | None:
    """Return the progress and `upper` of a table that a source feeds; None if no batch has been committed for the table."""
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
    """Return the window `[since, upper)` in which all of `timelines` are readable: the latest `since`, the earliest `upper`.

    The window is cut so that no table was stopped at the first or last timestamp in it.
    """
    since_ms = first_in_sync(_stops(timelines), max(t.since_ms for t in timelines))
    return since_ms, last_frontier(timelines, min(t.upper_ms for t in timelines))


def last_frontier(timelines: Iterable[Timeline], frontier_ms: int) -> int:
    """Return the last time up to `frontier_ms` at which a reader of these tables may pause and continue later.

    The reader has then read all timestamps below the returned one. No table was stopped at the last of these.
    """
    return last_in_sync(_stops(timelines), frontier_ms - 1) + 1


def together(timelines: Mapping[str, Timeline]) -> dict[str, Timeline]:
    """Combine the stops of tables that are read together: while one table was stopped, none of them shows a change."""
    stops = _stops(timelines.values())
    return {name: replace(timeline, stops=stops) if stops else timeline for name, timeline in timelines.items()}


def _stops(timelines: Iterable[Timeline]) -> tuple[Stop, ...]:
    return tuple(stop for timeline in timelines for stop in timeline.stops)


def check_readable(timelines: Sequence[Timeline], time_ms: int, holds: Callable[[], Holds] = no_holds) -> None:
    """Require that all of `timelines` are readable at `time_ms`.

    Args:
        timelines: The tables to read.
        time_ms: Epoch milliseconds.
        holds: Returns the lake's holds; only called to describe an error.

    Raises:
        NotReadable: A table is not; the error names the readable windows, and holds that begin later.
    """
    failing = [t for t in timelines if not t.since_ms <= time_ms < t.upper_ms]
    since_ms, upper_ms = common_window(timelines)
    if not failing:
        check_in_sync({timeline.full_name: timeline.stops for timeline in timelines}, time_ms, since_ms, upper_ms)
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
    """Describe the holds that keep one of `timelines` readable, but only from a time later than `time_ms`."""
    return "".join(
        f' Hold "{hold.name}" keeps "{timeline.full_name}" from {hold.at_ms} ({iso(hold.at_ms)} UTC) on.'
        for timeline in timelines
        for hold in holds
        if hold.at_ms is not None
        and time_ms < hold.at_ms
        and time_ms < timeline.since_ms
        and hold.is_on(timeline.full_name)
    )
