"""Two ingests of one source: one works and the other is refused; one that lost its lease while suspended writes nothing twice."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lakehold.errors import LeaseLost, SourceBusy
from lakehold.failpoints import Point
from lakehold.ingest.batch_report import BatchReport
from lakehold.ingest.write import apply, merge
from lakehold.lake import Lake
from lakehold.state.batch_protocol import BatchStore
from lakehold.state.iceberg_state import IcebergState
from lakehold.times import iso, now_ms
from tests.conftest import LakeFactory
from tests.debezium_messages import Topic
from tests.lakehold_process import IngestProcesses
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

LATER_MS = 3_600_000
"""The lead of a successor's clock, for which the lease of a working writer has expired."""


def row(id_: int, name: str) -> dict[str, Any]:
    return {"id": id_, "name": name}


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    """Write three batches of two messages each; the last batch changes the rows of the second one."""
    topic = Topic("t", {"id": {"type": "int64"}, "name": {"type": "string"}})
    topic.snapshot([row(1, "a"), row(2, "a")])
    topic.update(row(1, "a"), row(1, "b"))
    topic.create(row(3, "c"))
    topic.update(row(1, "b"), row(1, "last"))
    topic.delete(row(3, "c"), tombstone=False)
    topic.write(tmp_path / "topics")
    return topic


@pytest.fixture
def first(make_lake: LakeFactory, topic: Topic, tmp_path: Path) -> Lake:
    lake = make_lake(tmp_path / "lake", max_batch_records=2, buckets=2)
    lake.sql(f"""
        CREATE SOURCE shop FROM FILES '{tmp_path}/topics' FORMAT JSON;
        CREATE TABLE s.{topic.name} FROM SOURCE shop (TOPIC '{topic.name}') ENVELOPE DEBEZIUM
    """)
    return lake


@pytest.fixture
def second(make_lake: LakeFactory, first: Lake, tmp_path: Path) -> Lake:
    """Open the lake once more."""
    return make_lake(tmp_path / "lake", max_batch_records=2, buckets=2, catalog_name=first.settings.catalog_name)


@pytest.fixture
def successor(make_lake: LakeFactory, first: Lake, tmp_path: Path) -> Lake:
    """Open the lake with a clock for which every current lease has expired."""
    lake = make_lake(
        tmp_path / "lake",
        max_batch_records=2,
        buckets=2,
        catalog_name=first.settings.catalog_name,
        lease_ms=2 * LATER_MS,
    )
    lake._parts.batches = BatchStore(IcebergState(lake.catalog), clock=lambda: now_ms() + LATER_MS)
    lake.batches = lake._parts.batches
    return lake


@pytest.fixture
def zombie(make_lake: LakeFactory, first: Lake, tmp_path: Path) -> Callable[[int], Lake]:
    """Return a function that opens the lake for a process that notices a lost lease only after some milliseconds."""

    def opened(renew_ms: int) -> Lake:
        return make_lake(
            tmp_path / "lake",
            max_batch_records=2,
            buckets=2,
            catalog_name=first.settings.catalog_name,
            lease_ms=max(15_000, 2 * renew_ms),
            lease_renew_ms=renew_ms,
        )

    return opened


def rows(lake: Lake) -> list[tuple[Any, ...]]:
    found = lake.catalog.load_table("s.t").scan().to_arrow().to_pylist()
    return sorted((r["id"], r["name"]) for r in found)


def effects(lake: Lake) -> list[tuple[str, str]]:
    """Return the timestamp and the step of each snapshot of the table."""
    state = lake.tables.table_state("s.t")
    assert state is not None
    return [(s.summary["lakehold.timestamp"], s.summary["lakehold.step"]) for s in reversed(state.history)]


def assert_all_is_there_once(lake: Lake) -> None:
    assert rows(lake) == [(1, "last"), (2, "a")]
    history = lake.batches.history("shop")
    assert effects(lake) == [(str(batch.mz_timestamp), "1") for batch in history if batch.records]
    assert sum(batch.records for batch in history) == 6


def test_a_second_ingest_is_refused_with_the_lease_holder_and_expiry(first: Lake, second: Lake) -> None:
    working = first.batches_of("shop")
    next(working)
    lease = first.batches.readers("shop")["main"].lease
    assert lease is not None
    with pytest.raises(SourceBusy) as busy:
        second.ingest("shop")
    assert lease.holder in busy.value.detail
    assert iso(lease.since_ms) in busy.value.detail
    assert busy.value.retryable
    assert len(list(working)) == 2
    (report,) = second.ingest("shop")
    assert report.records == 0
    assert_all_is_there_once(second)


def test_two_concurrent_ingests_do_the_work_of_one(first: Lake, second: Lake) -> None:
    together = threading.Barrier(2)

    def ingest(lake: Lake) -> bool:
        together.wait()
        try:
            lake.ingest("shop")
        except SourceBusy:
            return False
        return True

    with ThreadPoolExecutor(2) as threads:
        assert any(list(threads.map(ingest, (first, second))))
    assert_all_is_there_once(first)


def test_the_lease_of_a_killed_holder_is_awaited_and_taken_over(
    first: Lake, second: Lake, spark_connect: str, tmp_path: Path
) -> None:
    settings: dict[str, str | int] = {
        "catalog_name": first.settings.catalog_name,
        "lease_ms": 4_000,
        "lease_renew_ms": 500,
        "spark_remote": spark_connect,
    }
    processes = IngestProcesses(tmp_path / "lake", "shop", settings | {"max_batch_records": 2})
    code, output = processes.run(kill_at="after-intent")
    assert code == -signal.SIGKILL, output
    lease = first.batches.readers("shop")["main"].lease
    assert lease is not None
    with pytest.raises(SourceBusy) as busy:
        first.ingest("shop")
    assert lease.holder in busy.value.detail
    assert iso(lease.until_ms) in busy.value.detail
    wait_for(lambda: now_ms() > lease.until_ms, within_s=10)
    open_intent = first.batches.readers("shop")["main"].intent
    assert open_intent is not None
    reports = second.ingest("shop")
    assert [r.records for r in reports] == [2, 2, 2]
    assert reports[0].timestamp_ms == open_intent.mz_timestamp
    assert_all_is_there_once(second)


def at(monkeypatch: pytest.MonkeyPatch, point: Point, nth: int, run: Callable[[], object]) -> None:
    """Act once, when the writer in this thread passes the failpoint `point` for the n-th time."""
    reached = 0

    def failpoint(here: Point) -> None:
        nonlocal reached
        reached += here == point
        if here == point and reached == nth:
            run()

    monkeypatch.setattr(apply, "failpoint", failpoint)


def suspend_after(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, step: str, nth: int, run: Callable[[], object]
) -> Iterator[int]:
    """Act once, after a writer did a step for the n-th time; return a counter of how often the step was done."""
    original, called = getattr(module, step), count()

    def suspended(*arguments: Any) -> Any:
        result = original(*arguments)
        if next(called) == nth - 1:
            run()
        return result

    monkeypatch.setattr(module, step, suspended)
    return called


@pytest.mark.parametrize("batch", [1, 2])
def test_a_writer_that_notices_its_lost_lease_commits_nothing(
    first: Lake, successor: Lake, monkeypatch: pytest.MonkeyPatch, batch: int, zombie: Callable[[int], Lake]
) -> None:
    def lose_lease() -> None:
        successor.batches.acquire("shop", "successor", now_ms() + 2 * LATER_MS)
        wait_for(
            lambda: all(thread.name != "lease of shop" for thread in threading.enumerate()),
            within_s=30,
        )

    at(monkeypatch, "before-merge", batch, lose_lease)
    with pytest.raises(LeaseLost) as lost:
        zombie(100).ingest("shop")
    assert '"successor" took it over' in lost.value.detail
    assert len(effects(first)) == batch - 1
    successor.batches.release("shop", "successor")
    successor.ingest("shop")
    assert_all_is_there_once(first)


@pytest.mark.parametrize("batch", [1, 2])
def test_a_writer_that_wakes_up_after_its_commit_goes_no_further(
    first: Lake, successor: Lake, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """Finish a writer's batch in its place: the writer learns of its lost lease only from the lake."""
    successors: list[Any] = []

    def end_the_batch() -> None:
        going_on = successor.batches_of("shop")
        next(going_on)
        successors.append(going_on)

    at(monkeypatch, "after-merge", batch, end_the_batch)
    with pytest.raises(LeaseLost):
        first.ingest("shop")
    for report in successors[0]:
        assert not report.stopped
    assert_all_is_there_once(first)


@pytest.mark.parametrize(
    ("module", "step", "nth"),
    [(apply, "path_of", 1), (apply, "path_of", 2), (merge, "append", 1), (merge, "merge", 1)],
    ids=["an append decided", "a merge decided", "an append written", "a merge staged"],
)
def test_a_writer_suspended_as_it_commits_writes_nothing_twice(
    first: Lake,
    successor: Lake,
    zombie: Callable[[int], Lake],
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    step: str,
    nth: int,
) -> None:
    """Suspend a writer at the longest gap, after it found no effects and a valid lease, until another did all batches."""
    called = suspend_after(monkeypatch, module, step, nth, lambda: successor.ingest("shop"))
    zombie(LATER_MS // 4).ingest("shop")
    assert next(called) >= nth
    assert_all_is_there_once(first)


@pytest.mark.parametrize(
    ("module", "step", "nth"),
    [(apply, "path_of", 1), (apply, "path_of", 2), (merge, "append", 1), (merge, "merge", 1)],
    ids=["the first rows decided", "more rows decided", "the first rows written", "more rows staged"],
)
def test_a_suspended_writer_adds_no_message_twice(
    first: Lake,
    successor: Lake,
    zombie: Callable[[int], Lake],
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    step: str,
    nth: int,
) -> None:
    """Suspend a writer to a table without a key, which cannot tell that a row exists already."""
    first.sql("DROP TABLE s.t; CREATE TABLE s.t FROM SOURCE shop (TOPIC 't') INCLUDE OFFSET ENVELOPE NONE")
    called = suspend_after(monkeypatch, module, step, nth, lambda: successor.ingest("shop"))
    zombie(LATER_MS // 4).ingest("shop")
    assert next(called) >= nth
    offsets = first.catalog.load_table("s.t").scan(selected_fields=("offset",)).to_arrow()["offset"]
    assert sorted(offsets.to_pylist()) == [0, 1, 2, 3, 4, 5]
    assert len(effects(first)) == 3


def test_a_writer_that_wakes_up_after_its_errors_healed_opens_none_again(
    first: Lake,
    successor: Lake,
    zombie: Callable[[int], Lake],
    monkeypatch: pytest.MonkeyPatch,
    topic: Topic,
    tmp_path: Path,
) -> None:
    topic.raw(topic._key(row(9, "")), b"not json")
    topic.create(row(10, "j"))
    topic.create(row(9, "healed"))
    topic.delete(row(10, "j"), tombstone=False)
    topic.write(tmp_path / "topics")
    at(monkeypatch, "after-evolution", 4, lambda: successor.ingest("shop"))
    zombie(LATER_MS // 4).ingest("shop")
    assert rows(first) == [(1, "last"), (2, "a"), (9, "healed")]
    (error,) = first.catalog.load_table("mz_catalog.mz_source_errors").scan().to_arrow().to_pylist()
    bad, good = [batch.mz_timestamp for batch in first.batches.history("shop") if batch.records][-2:]
    assert (error["offset"], error["mz_timestamp"], error["healed_at"]) == (6, bad, good)
    assert first.batches.readers("shop")["main"].tables["s.t"].open_errors == 0


def test_sources_in_threads_of_one_program_do_not_mix(first: Lake, topic: Topic, tmp_path: Path) -> None:
    """Ingest in threads that share a Spark session, whose settings carry a batch's name to its snapshots."""
    first.sql(f"""
        CREATE SOURCE other FROM FILES '{tmp_path}/topics' FORMAT JSON;
        CREATE TABLE s.other FROM SOURCE other (TOPIC '{topic.name}') ENVELOPE DEBEZIUM
    """)
    together = threading.Barrier(2)

    def ingest(source: str) -> list[BatchReport]:
        together.wait()
        return first.ingest(source)

    with ThreadPoolExecutor(2) as threads:
        reports = list(threads.map(ingest, ("shop", "other")))
    assert [[r.stopped for r in of_source] for of_source in reports] == [[{}] * 3] * 2
    assert_all_is_there_once(first)
    state = first.tables.table_state("s.other")
    assert state is not None
    assert [s.summary["lakehold.source"] for s in state.history] == ["other"] * 3
