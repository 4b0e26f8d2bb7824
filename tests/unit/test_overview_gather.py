"""`gather` on a real lake, without Spark: a fed table, a foreign one with holds and followers, verdicts, a crash."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from lakehold.cli.app import app
from lakehold.holds.commands import NewHold
from lakehold.lake import connect
from lakehold.model.readers import ReaderError, split_off
from lakehold.overview import gather, render
from lakehold.overview.facts import TableFacts
from lakehold.overview.lag import Lag
from lakehold.overview.table_status import State
from lakehold.state.hold_checks import HoldCheck
from lakehold.state.subscribers import Subscriber, SubscriberKind
from lakehold.times import now_ms
from tests.fed_shop import SCHEMA, Shop
from tests.waiting import wait_for

HOUR_MS = 3_600_000


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path / "lake")
    yield shop
    shop.lake.close()


def test_an_empty_lake_has_nothing(tmp_path: Path) -> None:
    with connect(str(tmp_path / "lake")) as lake:
        overview = gather(lake)
    assert (overview.tables, overview.sources) == ((), ())
    assert overview.warehouse.endswith("/lake")


def test_a_fed_table_is_new_then_live_then_stopped(shop: Shop) -> None:
    assert shop.table("shop.orders") == TableFacts("shop.orders", "feed", State.NEW, rows=0)
    shop.reads()
    first, second = now_ms() - 2_000, now_ms() - 1_000
    shop.batch(first)
    found = shop.table("shop.orders")
    assert 2_000 < (found.lag.most_ms or 0) < 60_000
    assert replace(found, lag=Lag()) == TableFacts(
        "shop.orders", "feed", State.LIVE, first, first + 1, rows=2, open_errors=2, snapshots_ms=(first,)
    )
    error = ReaderError("type-changed", "it changed", "Before it was another.", "Change it back.")
    shop.batch(second, stock=error)
    stopped = shop.table("shop.stock")
    assert (stopped.state, stopped.error, stopped.since_ms, stopped.snapshots_ms) == (State.STOPPED, error, None, ())
    assert shop.table("shop.orders").snapshots_ms == (first, second)
    (source,) = shop.overview().sources
    assert (source.tables, source.stopped, source.upper_ms, source.run_by) == (2, 1, second + 1, "me")


def test_a_table_that_stops_keeps_its_history(shop: Shop) -> None:
    shop.reads()
    ms = now_ms()
    shop.batch(ms)
    error = ReaderError("bad-input", "a message cannot be applied")
    shop.lake.batches.change_readers("feed", "me", lambda readers: split_off(readers, "shop.orders", error))
    facts = shop.table("shop.orders")
    assert (facts.state, facts.since_ms, facts.upper_ms, facts.snapshots_ms) == (State.STOPPED, ms, ms + 1, (ms,))


def test_an_abandoned_batch_is_shown_when_its_lease_has_expired(shop: Shop) -> None:
    shop.reads()
    ms = now_ms()
    shop.begin(ms)
    (source,) = shop.overview().sources
    assert (source.run_by, source.interrupted_ms) == ("me", None)
    shop.lake.batches.release("feed", "me")
    (source,) = shop.overview().sources
    assert (source.run_by, source.interrupted_ms) == (None, ms)


def test_a_source_that_lost_its_last_table_is_neither_late_nor_interrupted(shop: Shop) -> None:
    shop.reads()
    shop.batch(now_ms() - HOUR_MS)
    shop.begin(now_ms() - HOUR_MS + 1)
    shop.lake.batches.release("feed", "me")
    for name in ("orders", "stock"):
        shop.lake.sql(f"DROP TABLE shop.{name}")
    (source,) = shop.overview().sources
    assert (source.tables, source.stopped, source.upper_ms, source.interrupted_ms) == (0, 0, None, None)


def test_a_foreign_table_is_shown_as_long_as_something_needs_it(shop: Shop) -> None:
    assert [facts.name for facts in shop.overview().tables] == ["shop.orders", "shop.stock"]
    hold = shop.lake.holds.create(NewHold("report", None, ("shop.rates",), max_lag_ms=HOUR_MS))
    facts = shop.table("shop.rates")
    assert (facts.source, facts.state, facts.rows, len(facts.snapshots_ms)) == (None, State.FOREIGN, 2, 1)
    (held,) = facts.holds
    assert (held.name, held.at_ms, held.max_lag_ms, held.is_exceeded) == ("report", hold.at_ms, HOUR_MS, False)
    assert held.lag_ms == 0  # The table has not changed since.
    assert shop.table("shop.orders").holds == ()


def test_a_hold_is_as_far_behind_as_the_first_of_its_tables_is(shop: Shop) -> None:
    shop.reads()
    ms = now_ms()
    shop.batch(ms)
    shop.lake.holds.create(NewHold("both", None, ("shop.rates", "shop.orders"), max_lag_ms=HOUR_MS))
    overview = shop.overview()
    assert [facts.holds[0].upper_ms for facts in overview.tables if facts.holds] == [ms + 1, ms + 1]
    assert [hold.name for hold in overview.holds] == ["both"]


def test_subscriptions_and_clients_are_shown_at_their_positions(shop: Shop) -> None:
    shop.lake.sql("CREATE SUBSCRIPTION changes INTO bi.changes AS SUBSCRIBE shop.rates")
    statement = "SUBSCRIBE shop.rates"
    start_ms = shop.table("shop.rates").since_ms or 0
    read = {"shop.rates": {"rate": 1}}
    gone = Subscriber("pricing", SubscriberKind.CLIENT, "pricing", statement, position_ms=start_ms, columns=read)
    shop.lake.subscriptions.store.register(gone)
    subscription, client = shop.table("shop.rates").followers
    assert (subscription.kind, subscription.name, subscription.state) == (SubscriberKind.SUBSCRIPTION, "changes", "new")
    assert subscription.hold is not None
    assert subscription.hold.name == "subscription_changes"
    assert (client.name, client.state, client.position_ms, client.hold) == ("pricing", "lapsed", start_ms, None)
    assert shop.table("shop.rates").holds == ()
    shop.lake.subscriptions.store.acquire("pricing", "me", now_ms() + 60_000)
    assert shop.table("shop.rates").followers[1].state == "running"


def test_a_client_of_several_statements_is_shown_at_all_of_its_tables(shop: Shop) -> None:
    shop.reads()
    shop.batch(now_ms())
    client = shop.lake.durable(
        "app", {"customers": "SUBSCRIBE shop.rates", "orders": "SUBSCRIBE shop.orders ENVELOPE UPSERT (KEY (id))"}
    )

    def shown() -> list[tuple[str, str]]:
        tables = shop.overview().tables
        return [(table.name, each.state) for table in tables for each in table.followers if each.name == "app"]

    for delivery in client.deliveries():
        delivery.acknowledge()
    assert shown() == [("shop.orders", "idle"), ("shop.rates", "idle")]
    shop.lake.holds.drop_kept_by("app")
    assert shown() == [("shop.orders", "lapsed"), ("shop.rates", "lapsed")]


def test_the_lag_of_subscriptions_and_checked_holds_is_known_from_their_commits(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.lake.sql("CREATE SUBSCRIPTION changes INTO bi.changes AS SUBSCRIBE shop.rates")
    entry = shop.lake.definitions.definitions().subscriptions["changes"]
    hold = shop.lake.holds.create(NewHold("report", None, ("shop.rates",)))
    published_ms = now_ms()
    shop.lake.catalog.create_namespace("bi")
    output = shop.lake.catalog.create_table("bi.changes", SCHEMA, properties={"lakehold.subscription": entry.object_id})
    progress = {"lakehold.position": str(published_ms), "lakehold.epoch": "0", "lakehold.publisher": "me"}
    output.append(pa.table({"id": [1]}, SCHEMA), {"lakehold.subscription": entry.object_id, **progress})
    held = HoldCheck(hold.hold_id, "shop.rates", 1, published_ms, "generated", True, {"evaluated": 3}, (), "", now_ms())
    shop.lake.verdicts.append(held)
    shop.write("shop.rates")
    wait_for(lambda: now_ms() > published_ms + 10, "time passes")
    facts = shop.table("shop.rates")
    for lag in (facts.followers[0].lag, facts.holds[0].lag):
        assert (lag.taken, lag.waiting) == (2, 2)
        assert 0 < (lag.most_ms or 0) < 60_000
    shown = render(shop.overview())
    assert " behind (2 rows), MAX LAG 3 h" in shown
    assert 'aria-label="lag changes: at most ' in shown

    monkeypatch.setattr(shop.lake.batches, "recent", lambda _: pytest.fail("batches are read"))
    (table, *_) = (facts for facts in gather(shop.lake, with_lags=False).tables if facts.name == "shop.rates")
    assert [table.lag, table.followers[0].lag, table.holds[0].lag] == [Lag()] * 3


def test_the_newest_verdict_is_shown_of_each_existing_hold_and_of_checks_without_one(shop: Shop) -> None:
    hold = shop.lake.holds.create(NewHold("report", None, ("shop.rates",)))
    kept = shop.lake.checks.kept
    verdict = HoldCheck(hold.hold_id, "shop.rates", 1, 5, "generated", True, {"evaluated": 3}, (), "/1.html", 10)
    kept.append(verdict)
    kept.append(replace(verdict, success=False, failures=("too few",), checked_at_ms=20))
    kept.append(replace(verdict, hold_id="dropped"))
    kept.append(replace(verdict, hold_id="", at_ms=7))
    found, of_none = shop.table("shop.rates").checks
    assert (of_none.hold, of_none.success, of_none.at_ms) == (None, True, 7)
    assert (found.hold, found.success, found.failures, found.evaluated) == ("report", False, ("too few",), 3)


def test_a_comparison_with_the_database_is_shown_beside_the_suite(shop: Shop) -> None:
    shop.lake.holds.create(NewHold("report", None, ("shop.rates",)))
    kept = shop.lake.checks.kept
    suite = HoldCheck("", "shop.rates", 1, 5, "generated", True, {"evaluated": 3}, (), "/1.html", 10)
    kept.append(suite)
    kept.append(replace(suite, suite="database", statistics={"evaluated": 1}, at_ms=7, checked_at_ms=20))
    of_suite, compared = shop.table("shop.rates").checks
    assert (of_suite.is_comparison, of_suite.at_ms) == (False, 5)
    assert (compared.is_comparison, compared.success, compared.at_ms) == (True, True, 7)
    page = render(shop.overview())
    assert 'aria-label="database: equal at ' in page

    differing = replace(suite, suite="database", statistics={"evaluated": 1}, success=False, checked_at_ms=30)
    kept.append(replace(differing, failures=("expected the rows of public.rates, found 1 key that differs: key 7.",)))
    page = render(shop.overview())
    assert "differs from its database at " in page
    assert "found 1 key that differs: key 7." in page
    assert "lakehold verify shop.rates" in page


def test_closing_a_lake_releases_its_metadata_without_the_garbage_collector(shop: Shop) -> None:
    shop.lake.holds.create(NewHold("report", None, ("shop.rates",)))
    read = weakref.ref(shop.lake.catalog.load_table("shop.rates").metadata)
    gc.disable()
    try:
        assert shop.table("shop.rates").snapshots_ms
        assert not gc.isenabled(), "the collector stays disabled"
        assert read() is not None
        shop.lake.close()
        assert read() is None
    finally:
        gc.enable()
    with connect(shop.lake.settings.warehouse) as lake:
        gather(lake)
    assert gc.isenabled()


@pytest.mark.usefixtures("shop")
def test_the_command_writes_the_page(tmp_path: Path) -> None:
    warehouse, file = str(tmp_path / "lake"), tmp_path / "pages" / "lake.html"
    written = CliRunner().invoke(app, ["status", "--html", str(file), "-w", warehouse])
    assert (written.exit_code, written.stdout, written.stderr) == (0, "", f"notice: the page is in {file}\n")
    assert "shop.orders" in file.read_text()
    shown = CliRunner().invoke(app, ["status", "--html", "-", "-w", warehouse])
    assert shown.stdout.startswith("<!DOCTYPE html>")
    assert shown.stdout.endswith("</html>\n")


@pytest.mark.usefixtures("shop")
def test_a_page_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    failed = CliRunner().invoke(app, ["status", "--html", str(tmp_path), "-w", str(tmp_path / "lake")])
    assert failed.exit_code == 1
    assert failed.stderr.startswith(f'error: file "{tmp_path}" cannot be written\n')
