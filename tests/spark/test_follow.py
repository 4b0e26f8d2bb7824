"""Followers get one batch for each timestamp, complete and in order, as soon as the timestamp is complete.

Sources are directories of recorded messages, ingested between two batches that a follower reads. Reading the next batch blocks
until it exists, so a batch that depended on a later one would never come.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Event, Timer
from typing import Any

import pytest

from lakehold.failpoints import Point
from lakehold.lake import Lake
from lakehold.subscribe.output_batches import Batch
from lakehold.times import now_ms
from tests import recorded_files
from tests.conftest import LakeFactory
from tests.debezium_messages import Topic
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

Row = tuple[Any, ...]


class Killed(BaseException):
    """The death of the process, which no handler for errors catches."""


class Feed:
    """A source of recorded JSON messages, whose topics each feed a table of the same name in the namespace `s`."""

    def __init__(self, lake: Lake, directory: Path, *tables: str) -> None:
        self.lake, self.directory, self.name = lake, directory, directory.name
        self.offsets: Counter[str] = Counter()
        directory.mkdir()
        lake.sql(f"CREATE SOURCE {self.name} FROM FILES '{directory}' FORMAT JSON")
        for table in tables:
            lake.sql(f"""
                CREATE TABLE s.{table} (id BIGINT, v STRING) FROM SOURCE {self.name} (TOPIC '{table}') ENVELOPE UPSERT
            """)

    def send(self, table: str, *rows: tuple[int, str | None]) -> None:
        """Send messages that set the row of an id, or delete it with None."""
        lines = []
        for id_, v in rows:
            value = None if v is None else json.dumps({"id": id_, "v": v}).encode()
            key = json.dumps({"id": id_}).encode()
            lines.append(recorded_files.line(table, 0, self.offsets[table], value, key))
            self.offsets[table] += 1
        recorded_files.append(self.directory / f"{table}.jsonl", lines)

    def ingest(self, table: str = "", *rows: tuple[int, str | None]) -> int:
        """Send rows and ingest them as one batch; return its timestamp."""
        if rows:
            self.send(table, *rows)
        (report,) = self.lake.ingest(self.name)
        assert not report.stopped
        return report.timestamp_ms

    def die(self, monkeypatch: pytest.MonkeyPatch, point: Point, nth: int = 1) -> int:
        """Ingest and die at the `nth` pass of the failpoint `point`; return the timestamp of the batch left open."""
        reached: Counter[Point] = Counter()

        def failpoint(here: Point) -> None:
            reached[here] += 1
            if (here, reached[here]) == (point, nth):
                raise Killed

        with monkeypatch.context() as patch:
            for module in ("ingest.batch", "ingest.write.apply", "tables.write_audit_publish"):
                patch.setattr(f"lakehold.{module}.failpoint", failpoint)
            with pytest.raises(Killed):
                self.lake.ingest(self.name)
        intent = self.lake.batches.readers(self.name)["main"].intent
        assert intent is not None
        return intent.mz_timestamp


@pytest.fixture
def feed(lake: Lake, tmp_path: Path) -> Feed:
    return Feed(lake, tmp_path / "feed", "t", "u")


def shown(batch: Batch) -> list[Row]:
    """Return the rows without their timestamps, which must all equal the batch's."""
    assert {row[0] for row in batch.rows} <= {batch.timestamp}
    return [row[1:] for row in batch.rows]


def replayed(batches: Iterable[Batch]) -> Counter[Row]:
    """Sum raw diffs."""
    found: Counter[Row] = Counter()
    for batch in batches:
        for _, diff, *row in batch.rows:
            found[tuple(row)] += diff
    return +found


class StopAfterPolls(Event):
    """An event that ends a follower once it has polled the lake a number of times more; the follower waits before each poll."""

    polls: int | None = None

    def wait(self, timeout: float | None = None) -> bool:
        if self.polls == 0:
            self.set()
        elif self.polls is not None:
            self.polls -= 1
        return super().wait(timeout)


def batches_of(follower: Iterator[Batch], stop: StopAfterPolls) -> list[Batch]:
    """Return the batches of a follower that polls the lake twice more."""
    stop.polls = 2
    return list(follower)


def test_each_timestamp_is_one_batch_as_soon_as_it_is_complete(feed: Feed) -> None:
    first = feed.ingest("t", (1, "a"), (2, "b"), (3, "c"))
    follower = feed.lake.follow("SUBSCRIBE s.t")
    batches = [next(follower)]
    assert batches[0].columns == ("mz_timestamp", "mz_diff", "id", "v")
    assert (batches[0].timestamp, shown(batches[0])) == (first, [(1, 1, "a"), (1, 2, "b"), (1, 3, "c")])
    second = feed.ingest("t", (2, "B"), (3, None), (4, "d"))
    batches.append(next(follower))
    assert batches[1].timestamp == second
    assert shown(batches[1]) == [(1, 2, "B"), (-1, 2, "b"), (-1, 3, "c"), (1, 4, "d")]
    feed.ingest("u", (1, "of another table"))
    third, fourth = feed.ingest("t", (1, None)), feed.ingest("t", (1, "back"))
    batches += [next(follower), next(follower)]
    assert [(batch.timestamp, shown(batch)) for batch in batches[2:]] == [
        (third, [(-1, 1, "a")]),
        (fourth, [(1, 1, "back")]),
    ]
    whole = feed.lake.sql(f"SUBSCRIBE s.t AS OF {first}").rows
    assert [row for batch in batches for row in batch.rows] == whole
    assert replayed(batches) == Counter(feed.lake.sql("SELECT * FROM s.t").rows)


def test_an_empty_snapshot_is_an_empty_batch(feed: Feed) -> None:
    feed.ingest("t", (1, "a"))
    feed.ingest("t", (1, None))
    follower = feed.lake.follow("SUBSCRIBE s.t")
    assert next(follower).rows == []
    second = feed.ingest("t", (2, "b"))
    assert next(follower).rows == [(second, 1, 2, "b")]


def test_a_follower_reads_the_past_and_then_new_batches(feed: Feed) -> None:
    made = [feed.ingest("t", (n, "new"), (n % 3, str(n))) for n in range(4)]
    follower = feed.lake.follow(f"SUBSCRIBE s.t ENVELOPE UPSERT (KEY (id)) WITH (SNAPSHOT = false) AS OF {made[0]}")
    past = [next(follower) for _ in made[1:]]
    assert [batch.timestamp for batch in past] == made[1:]
    assert [shown(batch) for batch in past] == [
        [("upsert", 1, "1")],
        [("upsert", 2, "2")],
        [("upsert", 0, "3"), ("upsert", 3, "new")],
    ]
    last = feed.ingest("t", (0, None), (7, "seven"))
    assert next(follower).rows == [(last, "delete", 0, None), (last, "upsert", 7, "seven")]


def test_progress_is_reported_with_every_timestamp_and_while_nothing_changes(feed: Feed) -> None:
    first = feed.ingest("t", (1, "a"))
    follower = feed.lake.follow("SUBSCRIBE s.t WITH (PROGRESS)")
    assert next(follower).rows == [
        (first, True, None, None, None),
        (first, False, 1, 1, "a"),
        (first + 1, True, None, None, None),
    ]
    wait_for(lambda: now_ms() > first + 1_500, within_s=10)
    idle = feed.ingest()
    assert next(follower).rows == [(idle + 1, True, None, None, None)]
    second = feed.ingest("t", (1, None))
    assert next(follower).rows == [(second, False, -1, 1, "a"), (second + 1, True, None, None, None)]


def test_progress_of_a_foreign_table_follows_the_clock(make_lake: LakeFactory) -> None:
    lake = make_lake(foreign_lag_ms=50)
    lake.sql("CREATE NAMESPACE s; CREATE TABLE s.t (id BIGINT) USING iceberg; INSERT INTO s.t VALUES (1)")
    follower = lake.follow("SUBSCRIBE s.t WITH (PROGRESS, SNAPSHOT = false)")
    progress: list[Row] = [row for _ in range(3) for row in next(follower).rows]
    assert all(row[1:] == (True, None, None) for row in progress)
    assert [row[0] for row in progress] == sorted({row[0] for row in progress})
    lake.sql("INSERT INTO s.t VALUES (2)")
    (version,) = lake.catalog.load_table("s.t").metadata.snapshot_log[1:]
    changed = next(batch for batch in follower if batch.rows[0][1] is False)
    assert changed.rows == [
        (version.timestamp_ms, False, 1, 2),
        (version.timestamp_ms + 1, True, None, None),
    ]


def test_up_to_ends_a_follower(make_lake: LakeFactory) -> None:
    lake = make_lake(foreign_lag_ms=50)
    lake.sql("CREATE NAMESPACE s; CREATE TABLE s.t (id BIGINT) USING iceberg; INSERT INTO s.t VALUES (1)")
    up_to_ms = now_ms() + 1_500
    follower = lake.follow(f"SUBSCRIBE s.t WITH (PROGRESS) UP TO {up_to_ms}")
    assert [row[2:] for row in next(follower).rows if not row[1]] == [(1, 1)]
    lake.sql("INSERT INTO s.t VALUES (2)")
    rows = [row for batch in follower for row in batch.rows]
    assert [row[2:] for row in rows if not row[1]] == [(1, 2)]
    assert max(row[0] for row in rows) < up_to_ms
    wait_for(lambda: now_ms() > up_to_ms + 100, within_s=5)
    lake.sql("INSERT INTO s.t VALUES (3)")
    again = [row for batch in lake.follow(f"SUBSCRIBE s.t UP TO {up_to_ms} AS OF {up_to_ms - 1}") for row in batch]
    assert [row[2:] for row in again] == [(1,), (2,)]


def test_up_to_may_equal_upper(feed: Feed) -> None:
    first, second = feed.ingest("t", (1, "a")), feed.ingest("t", (2, "b"))
    batches = list(feed.lake.follow(f"SUBSCRIBE s.t AS OF {first} UP TO {second + 1}"))
    assert [batch.timestamp for batch in batches] == [first, second]


def test_stop_ends_a_follower_between_two_batches(feed: Feed) -> None:
    feed.ingest("t", (1, "a"))
    stop = Event()
    follower = feed.lake.follow("SUBSCRIBE s.t", stop)
    assert len(next(follower).rows) == 1
    Timer(0.2, stop.set).start()
    assert list(follower) == []


def test_an_unread_batch_does_not_block_the_next_one(make_lake: LakeFactory, tmp_path: Path) -> None:
    """Drop a batch or keep it to read later, in this process or with Spark."""
    for limit in (200_000, 0):
        feed = Feed(make_lake(driver_diff_max_rows=limit), tmp_path / f"feed{limit}", "t")
        feed.ingest("t", *((n, "x" * 100) for n in range(300)))
        follower = feed.lake.follow("SUBSCRIBE s.t")
        kept = next(follower)
        second = feed.ingest("t", *((n, "y") for n in range(300)))
        assert next(follower).timestamp == second
        third = feed.ingest("t", (1, "z"))
        assert next(follower).rows == [(third, -1, 1, "y"), (third, 1, 1, "z")]
        assert len(kept.rows) == 300
        assert len(list(kept)) == 300


def test_tables_of_two_sources_are_joined_where_both_are_complete(lake: Lake, tmp_path: Path) -> None:
    orders, names = Feed(lake, tmp_path / "orders", "o"), Feed(lake, tmp_path / "names", "n")
    query = "SUBSCRIBE (SELECT n.v AS name, o.v AS ordered FROM s.o AS o JOIN s.n AS n ON o.id = n.id)"
    orders.ingest("o", (1, "tea"), (2, "salt"))
    complete = names.ingest("n", (1, "Ada"))
    with pytest.raises(Exception, match="no time at which all"):
        lake.sql(query)
    orders.ingest()
    follower = lake.follow(query)
    assert next(follower).rows == [(complete, 1, "Ada", "tea")]

    ordered = orders.ingest("o", (1, "coffee"))
    assert lake.open_subscription(query).window.until_ms == complete + 1
    assert all(row[2:] == ("Ada", "tea") for row in lake.sql(query).rows)
    named = names.ingest("n", (2, "Bob"))
    assert next(follower).rows == [(ordered, 1, "Ada", "coffee"), (ordered, -1, "Ada", "tea")]
    assert lake.open_subscription(query).window.until_ms == ordered + 1
    last = orders.ingest("o", (2, None))
    assert next(follower).rows == [(named, 1, "Bob", "salt")]
    names.ingest()
    assert next(follower).rows == [(last, -1, "Bob", "salt")]


@pytest.mark.parametrize(
    ("point", "nth"),
    [
        ("after-merge", 1),
        *(pytest.param(*later, marks=pytest.mark.soak) for later in (("after-merge", 2), ("before-commit", 1))),
    ],
)
def test_an_uncommitted_batch_is_not_visible(
    feed: Feed, monkeypatch: pytest.MonkeyPatch, point: Point, nth: int
) -> None:
    """Kill the writer after it merged one table, after it merged both, and just before its commit."""
    feed.send("t", (1, "a"))
    first = feed.ingest("u", (1, "A"))
    both = "SUBSCRIBE (SELECT t.v AS t, u.v AS u FROM s.t AS t FULL JOIN s.u AS u ON t.id = u.id)"
    follower, stop = feed.lake.follow(both), StopAfterPolls()
    of_t = feed.lake.follow("SUBSCRIBE s.t", stop)
    assert shown(next(follower)) == [(1, "a", "A")]
    assert shown(next(of_t)) == [(1, 1, "a")]

    feed.send("t", (1, "b"), (2, "new"))
    feed.send("u", (1, "B"), (2, "NEW"))
    open_ms = feed.die(monkeypatch, point, nth)
    assert (2, "new") in feed.lake.sql("SELECT * FROM s.t").rows, "Iceberg shows the uncommitted batch"
    assert [row[2:] for row in feed.lake.sql("SUBSCRIBE s.t").rows] == [(1, "a")]
    assert [row[2:] for row in feed.lake.sql(both).rows] == [("a", "A")]
    assert feed.lake.sql(f"SUBSCRIBE s.t AS OF {first}").rows == [(first, 1, 1, "a")]
    assert feed.lake.sql(f"SELECT * FROM s.t AS OF {first}").rows == [(1, "a")]
    assert batches_of(of_t, stop) == []

    feed.lake.ingest("feed")
    batch = next(follower)
    assert batch.timestamp == open_ms
    assert shown(batch) == [(-1, "a", "A"), (1, "b", "B"), (1, "new", "NEW")]


def test_a_follower_keeps_the_columns_it_began_with(lake: Lake, tmp_path: Path) -> None:
    """Add and widen columns upstream: a follower keeps the old columns and types, and the next subscription has the new ones."""
    directory = tmp_path / "topics"
    topic = Topic("t", {"id": {"type": "int64"}, "n": {"type": "int32"}})
    lake.sql(f"CREATE SOURCE feed FROM FILES '{directory}' FORMAT JSON")
    lake.sql("CREATE TABLE s.t FROM SOURCE feed (TOPIC 't') ENVELOPE DEBEZIUM UPSERT")

    def ingest() -> int:
        topic.write(directory)
        (report,) = lake.ingest("feed")
        return report.timestamp_ms

    topic.snapshot([{"id": 1, "n": 1}])
    first = ingest()
    follower = lake.follow("SUBSCRIBE s.t")
    assert next(follower).rows == [(first, 1, 1, 1)]
    topic.columns["city"] = {"type": "string"}
    topic.create({"id": 2, "n": 2, "city": "Ulm"})
    topic.update({"id": 1, "n": 1, "city": None}, {"id": 1, "n": 1, "city": "Bonn"})
    second = ingest()
    batch = next(follower)
    assert batch.columns == ("mz_timestamp", "mz_diff", "id", "n")
    assert batch.rows == [(second, 1, 2, 2)]
    assert lake.sql(f"SUBSCRIBE s.t AS OF {first}").rows == [
        (first, 1, 1, 1, None),
        (second, -1, 1, 1, None),
        (second, 1, 1, 1, "Bonn"),
        (second, 1, 2, 2, "Ulm"),
    ]


@pytest.mark.parametrize("clause", ["", pytest.param("WITHIN TIMESTAMP ORDER BY v DESC", marks=pytest.mark.soak)])
def test_a_follower_of_the_whole_history_ends_with_the_rows_of_the_table(feed: Feed, clause: str) -> None:
    """Follow inserts, updates, deletes, keys that return, and batches that change nothing."""
    first = feed.ingest("t", *((n, "first") for n in range(20)))
    for n in range(5):
        feed.ingest("t", (n, None), (n + 10, f"changed {n}"), (100 + n, "new"), (n, "back" if n % 2 else None))
        feed.ingest()
    stop = StopAfterPolls()
    batches = batches_of(feed.lake.follow(f"SUBSCRIBE s.t {clause} AS OF {first}", stop), stop)
    assert len(batches) == 6
    assert [batch.timestamp for batch in batches] == sorted({batch.timestamp for batch in batches})
    assert replayed(batches) == Counter(feed.lake.sql("SELECT * FROM s.t").rows)
