"""One process at a time changes the upstream of a source: a statement beside an ingest, which reconciles the source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lakehold.errors import DefinitionError, LeaseLost, SourceBusy, UpstreamRefused, UpstreamUnavailable
from lakehold.ingest.write.repeats import Snapshots
from lakehold.lake import Lake, connect
from lakehold.state.iceberg_state import IcebergState
from lakehold.state.upstream_leases import UpstreamLeases
from lakehold.times import next_timestamp, now_ms
from lakehold.upstream import sources
from lakehold.upstream.changing import ChangingSources
from lakehold.upstream.found.connector_status import ConnectorStatus
from lakehold.upstream.plan.capture_plan import plan
from lakehold.upstream.plan.capture_steps import CreateConnector, Steps
from lakehold.upstream.report.gone import gone_hints
from lakehold.upstream.wanted.targets import Target
from tests.upstream_world import World
from tests.waiting import wait_for

_STEPS_MOST = 8
_ROUNDS = 6

DECLARED = """
CREATE CONNECTION kafka TO KAFKA (BROKER 'k:1');
CREATE CONNECTION pg TO POSTGRES (HOST 'db', USER 'u', DATABASE 'shop');
CREATE CONNECTION connect TO CONNECT (URL 'http://c');
"""
CREATE_SOURCE = """
CREATE SOURCE shop FROM POSTGRES CONNECTION pg VIA CONNECT CONNECTION connect INTO KAFKA CONNECTION kafka FORMAT JSON
"""
CREATE_A = "CREATE TABLE shop.a FROM SOURCE shop (TABLE 'public.a') ENVELOPE DEBEZIUM"
CREATE_B = CREATE_A.replace("shop.a", "shop.b").replace("public.a", "public.b")


@dataclass
class ModelCapturing:
    """A `lakehold.upstream.capturing` over a model; `meanwhile` runs before each step and after the last one."""

    world: World
    meanwhile: Callable[[], None] = field(default=lambda: None)

    def plan(self, target: Target, *, resnapshot: bool = False, with_backoff: bool = False) -> Steps:  # noqa: ARG002
        assert not resnapshot
        return plan(target.wanted, self.world.inspect(target.wanted))

    def record_seen(self, target: Target) -> int | None:
        return next_timestamp(target.wanted.seen_upstream_ms)

    def faults(self, target: Target) -> tuple[Steps, tuple[str, ...]]:
        return self.plan(target), tuple(gone_hints(target.wanted, self.world.inspect(target.wanted)))

    def status(self, target: Target) -> ConnectorStatus | None:
        connector = self.world.inspect(target.wanted).connector
        return connector.status if connector is not None else None

    def snapshots(self, target: Target) -> Snapshots:
        coming = frozenset(table.object_id for table in target.wanted.tables) - self.world.snapshots.keys()
        return Snapshots(coming, coming)

    def reconcile(
        self, target: Target, confirm: Callable[[], None], *, resnapshot: bool = False, with_backoff: bool = False
    ) -> Steps:
        done = []
        for _ in range(_ROUNDS):
            planned = self.plan(target, resnapshot=resnapshot, with_backoff=with_backoff)
            for step in planned.steps:
                self.meanwhile()
                confirm()
                self.world.apply_step(step)
                done.append(step)
                if isinstance(step, CreateConnector):
                    break
            if not planned.steps:
                self.meanwhile()
                return Steps(tuple(done))
        raise AssertionError("reconciling does not end")


@dataclass
class Beside:
    """Two processes on one lake: `lake` runs statements, `follow` reconciles the source."""

    world: World
    lake: Lake
    follow: Lake
    capturing: ModelCapturing

    def reconcile_at(self, number: int) -> None:
        """Make `follow` reconcile the source once, before the step of that number of the next statement."""
        steps = count()

        def reconcile() -> None:
            if next(steps) == number:
                self.follow.captured.reconcile("shop")

        self.capturing.meanwhile = reconcile

    def reconcile_never(self) -> None:
        self.capturing.meanwhile = lambda: None

    @property
    def leases(self) -> UpstreamLeases:
        return UpstreamLeases(IcebergState(self.lake.catalog))


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Beside]:
    """Return a source with table `a`, captured; the ingest inspects it whenever it is asked to."""
    world = World(frozenset({"public.a", "public.b"}))
    capturing = ModelCapturing(world)
    made = iter([capturing, ModelCapturing(world)])
    monkeypatch.setattr(sources, "Capturing", lambda *_: next(made))
    monkeypatch.setattr(sources, "INSPECT_EVERY_S", 0.0)
    monkeypatch.setattr(sources, "WHILE_BUSY_S", 0.0)
    settings: dict[str, Any] = {"lease_ms": 400, "lease_renew_ms": 100, "upstream_timeout_ms": 1}
    with connect(str(tmp_path), **settings) as lake, connect(str(tmp_path), **settings) as follow:
        lake.sql(f"{DECLARED} {CREATE_SOURCE}; {CREATE_A}")
        follow.captured.reconcile("shop")
        assert world.captured() == {"public.a"}
        yield Beside(world, lake, follow, capturing)


def test_nothing_is_left_of_a_source_that_is_dropped_beside_an_ingest(beside: Beside) -> None:
    world = beside.world
    for number in range(_STEPS_MOST):
        beside.reconcile_at(number)
        beside.lake.sql("DROP SOURCE shop CASCADE")
        assert (world.config, world.slot, world.publication, world.topics) == (None, None, None, set())
        with pytest.raises(DefinitionError) as refusal:
            beside.follow.captured.reconcile("shop")
        assert refusal.value.code == "source-missing"
        beside.reconcile_never()
        beside.lake.sql(f"{CREATE_SOURCE}; {CREATE_A}")
        assert world.captured() == {"public.a"}


def test_topics_missing_while_a_source_is_dropped_are_no_error(beside: Beside) -> None:
    """Delete the topics before the definition, so that an ingest must check whether the source still exists."""
    follow, codes = beside.follow.captured, []

    def ask() -> None:
        with pytest.raises(SourceBusy) as busy:
            follow.confirm_defined("shop")
        codes.append(busy.value.code)

    follow.confirm_defined("shop")
    beside.capturing.meanwhile = ask
    beside.lake.sql("DROP SOURCE shop CASCADE")
    assert set(codes) == {"source-busy"}
    with pytest.raises(DefinitionError) as refusal:
        follow.confirm_defined("shop")
    assert refusal.value.code == "source-missing"


def test_one_snapshot_is_requested_for_a_table_that_is_created_beside_an_ingest(beside: Beside) -> None:
    world = beside.world
    for number in range(_STEPS_MOST):
        beside.reconcile_at(number)
        beside.lake.sql(CREATE_B)
        snapshot = world.snapshots[beside.lake.definitions.definitions().table("shop.b").object_id]
        assert (snapshot.requested, snapshot.succeeded) == (1, True)
        assert world.captured() == {"public.a", "public.b"}
        beside.reconcile_never()
        beside.lake.sql("DROP TABLE shop.b")


def test_a_statement_waits_for_a_process_that_died_and_not_for_ever_for_one_that_lives(beside: Beside) -> None:
    with beside.follow.captured.changing(["shop"]):
        with pytest.raises(SourceBusy) as refusal:
            beside.lake.sql(CREATE_B)
        assert (refusal.value.code, refusal.value.retryable) == ("source-busy", True)
        assert "has held the lease since" in refusal.value.detail
    assert "shop.b" not in beside.lake.definitions.definitions().tables

    beside.leases.acquire("shop", "one that died", now_ms() + 100)
    beside.lake.sql(CREATE_B)
    assert beside.world.captured() == {"public.a", "public.b"}


def test_a_refusal_of_the_database_is_reported_and_stops_no_ingest(
    beside: Beside, caplog: pytest.LogCaptureFixture
) -> None:
    beside.world.may_publish = False
    with pytest.raises(UpstreamRefused, match=r"may not add public\.b"):
        beside.lake.sql(CREATE_B)
    assert "shop.b" not in beside.lake.definitions.definitions().tables
    assert beside.lake.captured.problems() == []

    beside.world.unpublish("public.a")
    beside.follow.captured.reconcile("shop")
    (reported,) = beside.lake.captured.problems()
    assert "source shop is reconciled: record that changes were missed of public.a" in caplog.messages
    assert reported.startswith("source shop: publication lakehold_shop does not list public.a any more")
    beside.world.may_publish = True
    beside.lake.sql("ALTER SOURCE shop REPAIR")
    assert beside.lake.captured.problems() == []


def test_a_declared_table_that_is_not_captured_is_reported(beside: Beside) -> None:
    def goes_away() -> None:
        raise UpstreamUnavailable("Kafka Connect does not answer", detail="It is stopped.")

    beside.capturing.meanwhile = goes_away
    with pytest.raises(UpstreamUnavailable) as failure:
        beside.lake.sql(CREATE_B)
    assert "The definitions are committed" in failure.value.hint
    goes_on = "shop.b is not captured yet: the next ingest, or ALTER SOURCE shop REPAIR, continues"
    assert beside.lake.captured.problems() == [f"source shop: {goes_on}"]
    beside.world.state = "STOPPED"
    assert beside.lake.captured.problems() == ["source shop: shop.b is not captured yet: its connector is stopped"]
    beside.follow.captured.reconcile("shop")
    assert beside.lake.captured.problems() == []


@pytest.mark.parametrize(
    "statement",
    ["DROP SOURCE shop CASCADE", "DROP CONNECTION connect CASCADE", "DROP TABLE shop.a", "EXPLAIN DROP TABLE shop.a"],
)
def test_a_source_whose_systems_no_longer_exist_can_be_dropped(
    beside: Beside, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    def is_gone(_: Target, **__: bool) -> Steps:
        raise UpstreamUnavailable("Kafka Connect does not answer", hint="Check that the worker runs.")

    monkeypatch.setattr(beside.capturing, "plan", is_gone)
    with pytest.raises(UpstreamUnavailable) as failure:
        beside.lake.sql(statement)
    way_out = "DROP SOURCE shop CASCADE KEEP UPSTREAM"
    assert failure.value.hint == (
        f"Check that the worker runs. If it is gone for good, {way_out} drops the source and its tables without it."
    )
    assert beside.lake.definitions.definitions().tables.keys() == {"shop.a"}
    beside.lake.sql(way_out)
    assert not beside.lake.definitions.definitions().sources


def test_a_transaction_is_explained_with_its_actual_steps(beside: Beside) -> None:
    beside.lake.sql("DROP SOURCE shop CASCADE")
    made = (
        f"{CREATE_SOURCE}; {CREATE_A}; {CREATE_B}; CREATE HOLD b ON shop.b; CREATE SUBSCRIPTION s AS SUBSCRIBE shop.a"
    )
    explained = [line for (line,) in beside.lake.sql(f"EXPLAIN BEGIN; {made}; COMMIT").rows]
    assert explained[:5] == [
        "declare source shop",
        "declare table shop.a",
        "declare table shop.b",
        "create hold shop.b on shop.b",
        "declare subscription s",
    ]
    upstream = explained[5:]
    assert "create publication lakehold_shop for public.a, public.b" in upstream
    assert len(set(upstream)) == len(upstream), "both tables are captured in one change"
    assert not beside.lake.definitions.definitions().sources
    assert beside.world.config is None


def is_lost(held: ChangingSources) -> bool:
    try:
        held.confirm()
    except LeaseLost:
        return True
    return False


def test_a_statement_that_lost_its_lease_ends_before_its_next_step(beside: Beside) -> None:
    later = UpstreamLeases(IcebergState(beside.lake.catalog), clock=lambda: now_ms() + 60_000)

    def take_over() -> None:
        beside.reconcile_never()
        later.acquire("shop", "another", now_ms() + 120_000)
        wait_for(lambda: is_lost(held), within_s=10)  # the renewal of the lease notices

    with beside.lake.captured.changing(["shop"]) as held:
        beside.capturing.meanwhile = take_over
        before = beside.lake.definitions.definitions()
        with pytest.raises(LeaseLost):
            held.release("shop", before, before.without(before.table("shop.a").definition))
    assert beside.world.captured() == {"public.a"}
    assert beside.world.state == "RUNNING"


def test_an_ingest_takes_no_lease_where_nothing_differs(beside: Beside) -> None:
    with beside.lake.captured.changing(["shop"]):
        beside.world.topics.discard("shop.public.a")
        beside.follow.captured.reconcile("shop")
        assert "shop.public.a" not in beside.world.topics
    beside.follow.captured.reconcile("shop")
    assert "shop.public.a" in beside.world.topics
    before = beside.lake.catalog.load_table("mz_catalog.mz_upstream_leases").current_snapshot()
    beside.follow.captured.reconcile("shop")
    assert beside.lake.catalog.load_table("mz_catalog.mz_upstream_leases").current_snapshot() == before
