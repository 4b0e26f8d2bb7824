"""Tables of one source that stop, catch up and join again, against a model: at every readable time all tables agree."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table import Table

from lakehold.errors import NotReadable
from lakehold.model import readers as decide
from lakehold.model.offsets import TopicPartition
from lakehold.model.readers import MAIN_READER, Intent, ReaderError, Readers, Stop, TableProgress
from lakehold.state.batch_protocol import Batch, BatchStore
from lakehold.state.store import MemoryState
from lakehold.subscribe.timeline_steps import steps
from lakehold.timeline.stops import each_in_sync, first_in_sync, last_in_sync
from lakehold.timeline.table_timeline import Timeline
from lakehold.timeline.timelines import check_readable, common_window, together
from lakehold.timeline.versions import Version

TABLES = ("s.a", "s.b", "s.c")
P0 = TopicPartition("topic", 0)
ERROR = ReaderError("table-failed", "it failed")

stops_of_a_table = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8)), max_size=5).map(
    lambda found: [Stop(begin, begin + length) for begin, length in found]
)


@given(stops_of_a_table, st.integers(0, 40))
def test_the_nearest_times_around_stops_are_found(stops: list[Stop], time_ms: int) -> None:
    free = [ms for ms in range(-1, 60) if not any(stop.from_ms <= ms < stop.until_ms for stop in stops)]
    assert first_in_sync(stops, time_ms) == min(ms for ms in free if ms >= time_ms)
    assert last_in_sync(stops, time_ms) == max(ms for ms in free if ms <= time_ms)


@given(stops_of_a_table, st.lists(st.integers(0, 40), max_size=6).map(sorted))
def test_several_times_are_moved_out_of_stops_as_each_of_them_is(stops: list[Stop], times_ms: list[int]) -> None:
    assert each_in_sync(stops, times_ms) == [first_in_sync(stops, time_ms) for time_ms in times_ms]


@dataclass
class Feed:
    """A source whose tables all show how many messages they have applied, and the readers of these tables.

    Attributes:
        batches: The source's readers.
        versions: Versions of each table; the snapshot id is the number of messages.
        clock_ms: The last timestamp, or later.
        rates_upper_ms: The `upper` of a table of another source, which advances independently.
        seen: The values read from each table at each time.
        followed: Position of a SUBSCRIBE over all tables, and the value that it has for each.
    """

    batches: BatchStore = field(default_factory=lambda: BatchStore(MemoryState()))
    versions: dict[str, list[Version]] = field(default_factory=lambda: {name: [] for name in TABLES})
    clock_ms: int = 10
    rates_upper_ms: int = 12
    seen: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    followed: tuple[int, dict[str, int]] | None = None

    def __post_init__(self) -> None:
        self.batches.acquire("feed", "me", 1 << 60)
        tables = {name: TableProgress() for name in TABLES}
        self.change(lambda readers: {MAIN_READER: replace(readers[MAIN_READER], tables=tables, position={P0: 0})})
        self.batch(MAIN_READER, 1, frozenset())

    @property
    def upper_ms(self) -> int | None:
        return self.readers[MAIN_READER].upper_ms

    @property
    def readers(self) -> Readers:
        return self.batches.readers("feed")

    def change(self, apply: object) -> None:
        self.batches.change_readers("feed", "me", apply)  # type: ignore[arg-type]

    def batch(self, reader: str, end: int, failing: frozenset[str]) -> None:
        """Run a batch up to the message `end`; tables that are `failing` stop in the middle of it."""
        state = self.readers[reader]
        self.clock_ms += 1
        intent = Intent("feed", reader, self.clock_ms, {P0: end}, frozenset())
        self.batches.begin(intent, "me")
        progress = {}
        for name, before in state.tables.items():
            value = -1 if name in failing else end
            if end > state.position[P0]:
                self.versions[name].append(Version(self.clock_ms, value))
            joined = reader == MAIN_READER and before.since_ms is None
            progress[name] = replace(before, since_ms=self.clock_ms) if joined else before
        stopped = {name: ERROR for name in state.tables if name in failing}
        self.batches.commit(intent, "me", progress, Batch("feed", reader, self.clock_ms, {}, {P0: end}), stopped)

    def take(self, step: tuple[str, str, int]) -> None:
        verb, name, number = step
        main = self.readers[MAIN_READER]
        may_stop = name in main.tables and len(main.tables) > 1
        match verb:
            case "wait":
                self.clock_ms += number
            case "rates":
                self.rates_upper_ms = min(self.rates_upper_ms + number, self.clock_ms + 1)
            case "batch":
                self.batch(MAIN_READER, main.position[P0] + number, frozenset())
            case "fail" if may_stop:
                self.batch(MAIN_READER, main.position[P0] + number, frozenset([name]))
            case "leave" if may_stop:
                self.change(lambda readers: decide.split_off(readers, name, ERROR))
            case "catch up" if name in self.readers:
                own = self.readers[name].position[P0]
                self.batch(name, min(own + number, main.position[P0]), frozenset())
            case "fail again" if name in self.readers:
                self.batch(name, main.position[P0], frozenset([name]))
            case "join" if name in self.readers:
                if self.readers[name].position[P0] < main.position[P0]:
                    self.batch(name, main.position[P0], frozenset())
                self.change(lambda readers: decide.joined(readers, name))

    def timelines(self) -> dict[str, Timeline]:
        found = {}
        for state in self.readers.values():
            for name, progress in state.tables.items():
                upper_ms = state.upper_of(name)
                assert progress.since_ms is not None
                assert upper_ms is not None
                versions = tuple(self.versions[name])
                no_table = cast(Table, None)
                found[name] = Timeline(
                    name, no_table, "feed", versions, progress.since_ms, upper_ms, stops=progress.stops
                )
        return found

    def read(self, *timelines: Timeline, at_ms: int) -> list[int] | None:
        """Read what the tables show together at a time; None if that is refused."""
        try:
            check_readable(timelines, at_ms)
        except NotReadable:
            return None
        found = [timeline.at(at_ms) for timeline in timelines]
        return [version.snapshot_id for version in found if version is not None]

    def follow(self) -> None:
        """Continue a SUBSCRIBE over all tables and one of another source, from its position or as a new subscription."""
        timelines = self.timelines()
        rates = Timeline("s.rates", cast(Table, None), "rates", (Version(1, 1),), 1, self.rates_upper_ms)
        _, upper_ms = common_window([*timelines.values(), rates])
        if self.followed is None:
            until_ms, has = upper_ms, {}
            for name, timeline in timelines.items():
                version = timeline.at(upper_ms - 1)
                assert version is not None
                has[name] = version.snapshot_id
        else:
            until_ms, has = self.followed
            assert self.read(*timelines.values(), at_ms=until_ms - 1) == list(has.values()), (
                "a new process may continue"
            )
        changes = {
            (step.mz_timestamp, name): (step.before, step.after)
            for name, timeline in together(timelines).items()
            for step in steps(timeline, until_ms - 1, upper_ms)
        }
        for (at_ms, name), (before, after) in sorted(changes.items()):
            assert before == has[name]
            assert after is not None
            has[name] = after
            assert self.read(*timelines.values(), at_ms=at_ms) is not None, (
                "there is no change at a time at which a table was stopped"
            )
            if not any(at_ms == other_ms and name < other for other_ms, other in changes):
                assert len(set(has.values())) == 1
        self.followed = upper_ms, {name: has[name] for name in timelines}


verbs = ("wait", "rates", "batch", "fail", "leave", "catch up", "fail again", "join")


@given(st.lists(st.tuples(st.sampled_from(verbs), st.sampled_from(TABLES), st.integers(0, 3)), max_size=40))
def test_all_tables_agree_at_every_readable_time(history: list[tuple[str, str, int]]) -> None:
    feed = Feed()
    for step in history:
        feed.take(step)
        timelines = feed.timelines()
        for at_ms in range(10, feed.clock_ms + 3):
            for name, timeline in timelines.items():
                found = feed.read(timeline, at_ms=at_ms)
                assert found == feed.seen.get((name, at_ms), found), (
                    "a readable time stays readable, with the same values"
                )
                if found is not None:
                    feed.seen[name, at_ms] = found
            assert len(set(feed.read(*timelines.values(), at_ms=at_ms) or [])) <= 1
        feed.follow()
        if set(feed.readers) == {MAIN_READER}:
            assert common_window(list(timelines.values()))[1] == feed.upper_ms, "tables in sync are readable up to now"
    for name in feed.timelines():
        feed.take(("join", name, 0))
        feed.follow()
    assert set(feed.readers) == {MAIN_READER}
    assert feed.upper_ms is not None
    assert (
        feed.read(*feed.timelines().values(), at_ms=feed.upper_ms - 1) == [feed.readers[MAIN_READER].position[P0]] * 3
    )
