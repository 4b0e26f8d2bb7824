"""Hold commands on tables with real snapshots, without Spark: frontiers, tags, refusals, and recovery from a crash."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from lakehold.errors import DefinitionError, NotReadable
from lakehold.holds.commands import HoldCommands, NewHold
from lakehold.holds.group_commit import GroupCommit
from lakehold.holds.tags import TableTags
from lakehold.lake import Lake, connect
from lakehold.settings import Settings, load_settings
from lakehold.state.catalog_opening import open_catalog
from lakehold.state.holds import HOLDS, Hold, Holds, HoldStore
from lakehold.state.store import MemoryState
from lakehold.timeline.timelines import check_readable
from tests.dated_tables import FED, FOREIGN, START_MS, Shop
from tests.waiting import wait_for

OTHER = "shop.costs"
TIMEOUT_S = 30


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(warehouse=str(tmp_path), retain_history_ms=1_000, default_max_lag_ms=5_000)


@pytest.fixture
def shop(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """Return two foreign tables with snapshots at 100, 200 and 300, with the clock at 2,000 (their `upper` is 1,000)."""
    catalog = open_catalog(settings)
    catalog.create_namespace("shop")
    shop = Shop(catalog)
    monkeypatch.setattr("pyiceberg.table.snapshots.time", shop.clock)
    monkeypatch.setattr("pyiceberg.table.update.datetime", shop.clock)
    for name in (FOREIGN, OTHER):
        for ms in (100, 200, 300):
            shop.write(name, ms)
    shop.clock.ms = 2_000
    yield shop
    catalog.close()


@pytest.fixture
def store() -> HoldStore:
    return HoldStore(MemoryState())


@pytest.fixture
def tags(shop: Shop, store: HoldStore) -> TableTags:
    return TableTags(shop.catalog, shop.timelines, store)


@pytest.fixture
def holds(shop: Shop, store: HoldStore, settings: Settings, tags: TableTags) -> HoldCommands:
    return HoldCommands(store, shop.timelines, shop.definitions, settings, tags.put, lambda _: None)


def new(name: str | None = "h", *tables: str, at: int | None = None, namespace: str | None = None) -> NewHold:
    return NewHold(name, namespace, tables or (FOREIGN,), None if at is None else START_MS + at)


def time_of(hold: Hold) -> int | None:
    return None if hold.at_ms is None else hold.at_ms - START_MS


def tags_of(shop: Shop, name: str) -> set[str]:
    return {tag for tag in shop.catalog.load_table(name).metadata.refs if tag != "main"}


def test_a_hold_takes_the_first_common_time_and_tags_later_versions(shop: Shop, holds: HoldCommands) -> None:
    shop.expire(OTHER, shop.catalog.load_table(OTHER).history()[0].snapshot_id)
    hold = holds.create(new("h", FOREIGN, OTHER))
    assert (time_of(hold), hold.namespace, hold.max_lag_ms) == (200, "shop", 5_000)
    assert tags_of(shop, FOREIGN) == {"hold_h", f"mz_{START_MS + 300}"} == tags_of(shop, OTHER)
    assert holds.hold("shop.h") == hold == holds.hold("h")


def test_tags_follow_the_statements(shop: Shop, holds: HoldCommands) -> None:
    holds.create(new(at=200))
    first, second, third = (entry.snapshot_id for entry in shop.catalog.load_table(FOREIGN).history())
    holds.advance("h", START_MS + 300)
    assert shop.catalog.load_table(FOREIGN).metadata.refs["hold_h"].snapshot_id == third
    holds.advance("h", START_MS + 250)
    assert shop.catalog.load_table(FOREIGN).metadata.refs["hold_h"].snapshot_id == second
    holds.rename("h", "k")
    assert "hold_h" not in tags_of(shop, FOREIGN)
    assert shop.catalog.load_table(FOREIGN).metadata.refs["hold_k"].snapshot_id == second
    holds.drop("k")
    assert not any(tag.startswith("hold_") for tag in tags_of(shop, FOREIGN))
    assert first in {s.snapshot_id for s in shop.catalog.load_table(FOREIGN).metadata.snapshots}


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        (new("h", FOREIGN, at=99), "not-readable", f'Readable: "{FOREIGN}" from {START_MS + 100}'),
        (new("h", "shop.nothing"), "table-missing", 'table "shop.nothing" does not exist'),
        (new("h", "mz_catalog.mz_holds"), "not-holdable", "It is one of the lake's own tables"),
        (new("taken"), "hold-exists", f'"shop.taken" is on "{FOREIGN}"'),
        (new("h", namespace="nowhere"), "namespace-missing", 'namespace "nowhere" does not exist'),
        (new("h", namespace="mz_catalog"), "namespace-reserved", 'namespace "mz_catalog" is reserved'),
        (replace(new(), max_lag_ms=31 * 86_400_000), "hold-max-lag", "max_max_lag_ms allows 2592000000"),
    ],
)
def test_an_impossible_hold_is_refused_and_leaves_nothing(
    shop: Shop, holds: HoldCommands, wanted: NewHold, code: str, message: str
) -> None:
    holds.create(new("taken", at=300))
    before = (holds.all(), tags_of(shop, FOREIGN))
    with pytest.raises(DefinitionError) as refused:
        holds.create(wanted)
    assert refused.value.code == code
    assert message in str(refused.value)
    assert (holds.all(), tags_of(shop, FOREIGN)) == before


def test_a_hold_without_a_name_is_named_after_its_tables(shop: Shop, holds: HoldCommands) -> None:
    made = [holds.create(new(None)) for _ in range(3)]
    assert [hold.name for hold in made] == ["rates_hold", "rates_hold1", "rates_hold2"]
    holds.drop("rates_hold1")
    assert holds.create(new(None, at=200)).name == "rates_hold1"
    assert holds.create(new(None, OTHER, FOREIGN)).full_name == "shop.costs_rates_hold"
    assert {tag for tag in tags_of(shop, OTHER) if tag.startswith("hold_")} == {"hold_costs_rates_hold"}


def test_an_output_table_cannot_be_held(shop: Shop, holds: HoldCommands) -> None:
    with shop.catalog.load_table(OTHER).transaction() as change:
        change.set_properties({"lakehold.subscription": "s1"})
    with pytest.raises(DefinitionError, match="Hold the tables that the subscription reads") as refused:
        holds.create(new("h", OTHER))
    assert refused.value.code == "not-holdable"


def test_advance_goes_to_the_time_that_retention_keeps(shop: Shop, holds: HoldCommands) -> None:
    holds.create(new())
    shop.clock.ms = 2_150
    assert time_of(holds.advance("h")) == 149
    assert time_of(holds.advance("h", START_MS + 9_000)) == 9_000
    with pytest.raises(NotReadable, match=f"cannot go back to {START_MS + 140}"):
        holds.advance("h", START_MS + 140)


def test_a_hold_of_a_table_without_rows_begins_with_its_first_batch(shop: Shop, holds: HoldCommands) -> None:
    shop.feed()
    assert time_of(holds.create(new("h", FED))) is None
    shop.batch(2_100, since=2_100)
    shop.batch(2_200, since=2_100)
    assert time_of(holds.advance("h", START_MS + 2_100)) == 2_100
    shop.definitions.change(lambda d: d.with_entry(replace(d.tables[FED], object_id="new")))
    with pytest.raises(NotReadable, match="Leave out AT"):
        holds.create(new("k", FED, at=2_100))


def test_a_hold_on_an_undeclared_table_is_invisible(shop: Shop, holds: HoldCommands, store: HoldStore) -> None:
    shop.feed()
    holds.create(new("h", FED))
    shop.definitions.change(lambda d: d.without(d.tables[FED].definition))
    assert holds.all() == ()
    with pytest.raises(DefinitionError, match='hold "h" does not exist'):
        holds.advance("h")
    assert [hold.name for hold in store.holds()] == ["h"]
    holds.create(new("h"))
    assert [hold.tables[0].full_name for hold in store.holds()] == [FOREIGN]


def test_a_hold_of_a_transaction_exists_when_its_table_does(shop: Shop, holds: HoldCommands, store: HoldStore) -> None:
    with holds.created(new("h", FED), {FED: "t"}):
        assert holds.all() == ()
        store.change(lambda _: ())  # another process deletes it as abandoned
        shop.feed()
    assert [(hold.name, time_of(hold)) for hold in holds.all()] == [("h", None)]


def test_a_hold_of_a_transaction_fails_if_another_takes_its_name_meanwhile(shop: Shop, holds: HoldCommands) -> None:
    with holds.created(new("h", FED), {FED: "t"}):
        holds.create(new("h"))
        shop.feed()
    assert [(hold.name, hold.tables[0].full_name) for hold in holds.all()] == [("h", FOREIGN), ("h1", FED)]


def test_a_failed_transaction_removes_its_hold(holds: HoldCommands, store: HoldStore) -> None:
    with pytest.raises(DefinitionError, match="another came first"), holds.created(new("h", FED), {FED: "t"}):
        raise DefinitionError("another came first")
    assert store.holds() == ()


def test_a_hold_whose_snapshot_expires_during_its_creation_is_removed(
    shop: Shop, store: HoldStore, settings: Settings, tags: TableTags
) -> None:
    first = shop.catalog.load_table(FOREIGN).history()[0].snapshot_id

    def too_late(names: Sequence[str]) -> None:
        if any(s.snapshot_id == first for s in shop.catalog.load_table(FOREIGN).metadata.snapshots):
            shop.expire(FOREIGN, first)
        tags.put(names)

    holds = HoldCommands(store, shop.timelines, shop.definitions, settings, too_late, lambda _: None)
    with pytest.raises(NotReadable, match="no longer readable"):
        holds.create(new(at=100))
    assert store.holds() == ()
    assert not any(tag.startswith("hold_") for tag in tags_of(shop, FOREIGN))


def test_a_hold_that_can_no_longer_go_back_keeps_its_time(
    shop: Shop, store: HoldStore, settings: Settings, tags: TableTags
) -> None:
    first = shop.catalog.load_table(FOREIGN).history()[0].snapshot_id
    expire = False

    def too_late(names: Sequence[str]) -> None:
        nonlocal expire
        if expire:
            expire = False
            shop.expire(FOREIGN, first)
        tags.put(names)

    holds = HoldCommands(store, shop.timelines, shop.definitions, settings, too_late, lambda _: None)
    holds.create(new(at=200))
    expire = True
    with pytest.raises(NotReadable, match="no longer readable"):
        holds.advance("h", START_MS + 150)
    assert time_of(holds.hold("h")) == 200


class Crash(Exception):
    """The death of the process."""


def test_repeating_a_command_completes_the_work_that_a_crash_left_undone(
    shop: Shop, store: HoldStore, settings: Settings, holds: HoldCommands
) -> None:
    def crash(_: Sequence[str]) -> None:
        raise Crash

    holds.create(new(at=200))
    with pytest.raises(Crash):
        HoldCommands(store, shop.timelines, shop.definitions, settings, crash, lambda _: None).advance(
            "h", START_MS + 300
        )
    second = shop.catalog.load_table(FOREIGN).history()[1].snapshot_id
    assert shop.catalog.load_table(FOREIGN).metadata.refs["hold_h"].snapshot_id == second
    holds.advance("h", START_MS + 300)
    assert shop.catalog.load_table(FOREIGN).metadata.refs["hold_h"].snapshot_id == shop.head(FOREIGN)


def test_lag_is_enforced_and_tags_move(shop: Shop, holds: HoldCommands) -> None:
    holds.create(new("slow", at=100))
    holds.create(new("patient", at=100))
    shop.clock.ms = 6_250
    assert [(hold.name, time_of(hold), hold.forced_from_ms) for hold in holds.enforce_lag()] == [
        ("slow", 250, START_MS + 100),
        ("patient", 250, START_MS + 100),
    ]
    second = shop.catalog.load_table(FOREIGN).history()[1].snapshot_id
    assert shop.catalog.load_table(FOREIGN).metadata.refs["hold_slow"].snapshot_id == second
    assert holds.enforce_lag() == ()
    assert holds.advance("slow", START_MS + 300).forced_from_ms is None


def test_lag_is_enforced_where_another_tool_expires_the_history_after_the_hold(shop: Shop, holds: HoldCommands) -> None:
    holds.create(new(at=300))
    for ms in (20_000, 20_100, 20_200):
        shop.write(FOREIGN, ms)
    shop.clock.ms = 21_300
    assert holds.enforce_lag() == ()  # The first change after the hold is known.
    shop.expire(FOREIGN, *(entry.snapshot_id for entry in shop.catalog.load_table(FOREIGN).history()[3:5]))
    assert [(time_of(hold), hold.forced_from_ms) for hold in holds.enforce_lag()] == [(15_300, START_MS + 300)]


def test_the_error_of_an_early_read_names_the_hold_that_begins_later(shop: Shop, holds: HoldCommands) -> None:
    holds.create(new("late", at=200))
    shop.expire(FOREIGN, shop.catalog.load_table(FOREIGN).history()[0].snapshot_id)
    with pytest.raises(NotReadable, match=f'Hold "late" keeps "{FOREIGN}" from {START_MS + 200} '):
        check_readable([shop.timeline(FOREIGN)], START_MS + 150, holds.all)


# --- many at once -----------------------------------------------------------------------------------------------------


class CountedHolds(HoldStore):
    """A hold store that counts commits; the first commit waits until all callers have started."""

    def __init__(self) -> None:
        super().__init__(MemoryState())
        self.commits = 0
        self.may_commit: Callable[[], bool] = lambda: True

    def change(self, apply: Callable[[Holds], Iterable[Hold]]) -> Holds:
        wait_for(self.may_commit, within_s=TIMEOUT_S)
        self.commits += 1
        return super().change(apply)


def test_advances_of_many_callers_are_few_commits_and_each_caller_gets_its_own_result(
    shop: Shop, settings: Settings
) -> None:
    store, callers = CountedHolds(), 50
    holds = HoldCommands(store, shop.timelines, shop.definitions, settings, lambda _: None, lambda _: None)
    for number in range(callers):
        holds.create(new(f"h{number}", at=100))
    called: list[int] = []
    store.commits, store.may_commit = 0, lambda: len(called) == callers

    def advance(number: int) -> Hold | DefinitionError:
        called.append(number)
        try:
            return holds.advance(f"h{number}" if number % 10 else "nobody", START_MS + 1_000 + number)
        except DefinitionError as error:
            return error

    with ThreadPoolExecutor(callers) as threads:
        outcomes = list(threads.map(advance, range(callers)))
    for number, outcome in enumerate(outcomes):
        if number % 10:
            assert isinstance(outcome, Hold)
            assert (outcome.name, time_of(outcome)) == (f"h{number}", 1_000 + number)
        else:
            assert isinstance(outcome, DefinitionError)
            assert outcome.code == "hold-missing"
    assert {h.name: time_of(h) for h in holds.all()} == {f"h{n}": 1_000 + n if n % 10 else 100 for n in range(callers)}
    assert store.commits < 10


def advance_many(warehouse: str, process: int, callers: int) -> None:
    """Advance many holds of one lake, as one of several processes."""
    with connect(warehouse) as lake, ThreadPoolExecutor(callers) as threads:
        list(threads.map(lambda n: lake.holds.advance(f"h{process}_{n}", START_MS + 1_000 + n), range(callers)))


def commits(lake: Lake) -> int:
    snapshot = lake.catalog.load_table(HOLDS.table).current_snapshot()
    assert snapshot is not None
    assert snapshot.sequence_number is not None
    return snapshot.sequence_number


@pytest.mark.usefixtures("shop")
def test_advances_of_many_processes_lose_none_and_are_few_commits(settings: Settings) -> None:
    processes, callers = 3, 12
    with connect(settings.warehouse) as lake:
        for process in range(processes):
            for number in range(callers):
                lake.holds.create(new(f"h{process}_{number}", at=100))
        before = commits(lake)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["lakehold.lake"])
        workers = [
            context.Process(target=advance_many, args=(settings.warehouse, p, callers)) for p in range(processes)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert [worker.exitcode for worker in workers] == [0] * processes
        assert {hold.name: time_of(hold) for hold in lake.holds.all()} == {
            f"h{p}_{n}": 1_000 + n for p in range(processes) for n in range(callers)
        }
        assert commits(lake) - before < processes * callers / 2


def test_a_failed_commit_fails_for_all_its_callers_and_not_for_later_ones() -> None:
    failures = iter([ConnectionError("gone")])

    def run(requests: Sequence[int]) -> list[int | Exception]:
        for failure in failures:
            raise failure
        return [2 * request for request in requests]

    together = GroupCommit[int, int](run)
    with pytest.raises(ConnectionError):
        together.submit(1)
    assert together.submit(2) == 4
