"""`lakehold publish` of several subscriptions: one process reads for all, and a failing one does not affect the others.

PyIceberg writes the table and this process reads it, so that no Spark is needed.
"""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client import REGISTRY
from typer.testing import CliRunner, Result

from lakehold.cli.app import app
from lakehold.cli.command_output import JsonOutput
from lakehold.cli.publish import COLUMNS, run_publish
from lakehold.lake import Lake, connect
from lakehold.progress import NoProgress
from tests.catalog_outage import catalog_outage
from tests.waiting import wait_for

SUBSCRIPTIONS = {
    "all_orders": "shop.orders",
    "newest_orders": "shop.orders ENVELOPE UPSERT (KEY (id))",
    "paid_orders": "(SELECT id FROM shop.orders WHERE status = 'paid')",
    "all_customers": "shop.customers",
}


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    """Return a lake with orders and customers, and subscriptions to them."""
    monkeypatch.setenv("LAKEHOLD_WAREHOUSE", str(tmp_path / "lake"))
    monkeypatch.setenv("LAKEHOLD_FOREIGN_LAG_MS", "0")
    with connect() as lake:
        lake.catalog.create_namespace("shop")
        for name in ("orders", "customers"):
            lake.catalog.create_table(f"shop.{name}", pa.schema([("id", pa.int64()), ("status", pa.string())]))
            write(lake, name, 1)
        for name, relation in SUBSCRIPTIONS.items():
            lake.sql(f"CREATE SUBSCRIPTION {name} INTO bi.{name} AS SUBSCRIBE {relation} WITH (SNAPSHOT = false)")
        yield lake


def write(lake: Lake, name: str, *ids: int) -> None:
    lake.catalog.load_table(f"shop.{name}").append(
        pa.table({"id": pa.array(ids, pa.int64()), "status": ["paid" if id_ % 2 else "placed" for id_ in ids]})
    )


def published(lake: Lake, subscription: str) -> list[int]:
    return sorted(lake.catalog.load_table(f"bi.{subscription}").scan().to_arrow().column("id").to_pylist())


def publish(*arguments: str) -> tuple[Result, list[dict[str, Any]]]:
    """Run the command, and return its result and rows."""
    result = CliRunner().invoke(app, ["publish", *arguments, "--quiet"])
    return result, [json.loads(line) for line in result.stdout.splitlines()]


def diffs(read: str) -> float:
    return REGISTRY.get_sample_value("lakehold_subscribe_diffs_total", {"read": read}) or 0.0


def test_all_are_published_and_each_diff_is_read_once(lake: Lake) -> None:
    write(lake, "orders", 2, 3)
    write(lake, "customers", 7)
    before = diffs("here"), diffs("shared")
    result, rows = publish("--all")
    assert (result.exit_code, len(rows)) == (0, len(SUBSCRIPTIONS))
    assert {name: published(lake, name) for name in SUBSCRIPTIONS} == {
        "all_orders": [2, 3],
        "newest_orders": [2, 3],
        "paid_orders": [3],
        "all_customers": [7],
    }
    assert (diffs("here") - before[0], diffs("shared") - before[1]) == (2, 2)


def test_named_subscriptions_are_published(lake: Lake) -> None:
    write(lake, "orders", 2)
    result, rows = publish("paid_orders", "all_orders")
    assert (result.exit_code, {row["table"] for row in rows}) == (0, {"bi.paid_orders", "bi.all_orders"})
    assert not lake.catalog.table_exists("bi.all_customers")


def test_a_csv_of_commits_has_one_header(lake: Lake) -> None:
    write(lake, "orders", 2, 3)
    header = ",".join(COLUMNS)
    for rows in (len(SUBSCRIPTIONS), 0):
        result = CliRunner().invoke(app, ["publish", "--all", "--quiet", "--format", "csv"])
        assert result.exit_code == 0
        assert [line == header for line in result.stdout.splitlines()] == [True, *[False] * rows]


def test_an_unknown_name_publishes_nothing(lake: Lake) -> None:
    result, rows = publish("all_orders", "al_orders")
    assert (result.exit_code, rows) == (1, [])
    assert "code: subscription-missing" in result.stderr
    assert not lake.catalog.table_exists("bi.all_orders")


@pytest.mark.parametrize("arguments", [(), ("all_orders", "--all")])
def test_names_and_all_exclude_each_other(lake: Lake, arguments: tuple[str, ...]) -> None:
    result, _ = publish(*arguments)
    assert result.exit_code == 2
    assert "--all" in result.stderr
    assert lake.catalog.list_tables("shop")


def test_a_failing_subscription_does_not_keep_others_from_being_published(lake: Lake) -> None:
    write(lake, "orders", 2, 3)
    lake.catalog.create_namespace("bi")
    lake.catalog.create_table("bi.newest_orders", pa.schema([("x", pa.int64())]))
    result, rows = publish("--all")
    assert result.exit_code == 1
    assert "subscription newest_orders was not published" in result.stderr
    assert "code: output-exists" in result.stderr
    assert {row["table"] for row in rows} == {"bi.all_orders", "bi.paid_orders", "bi.all_customers"}


def test_several_subscriptions_are_followed_until_a_signal_stops_them(lake: Lake) -> None:
    def watched() -> None:
        """Write when all have begun, and stop when the last has it."""
        tables = [f"bi.{name}" for name in SUBSCRIPTIONS]
        try:
            wait_for(lambda: all(lake.catalog.table_exists(table) for table in tables), within_s=60)
            write(lake, "orders", 5)
            orders = [name for name in SUBSCRIPTIONS if "orders" in name]
            wait_for(lambda: all(published(lake, name) == [5] for name in orders), within_s=60)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    watching = Thread(target=watched)
    watching.start()
    result, rows = publish("--all", "--follow")
    watching.join()
    assert result.exit_code == 0
    assert len(rows) == len(SUBSCRIPTIONS) + 3


def test_following_several_outlives_a_catalog_that_does_not_answer(lake: Lake) -> None:
    rows, notices, names = io.StringIO(), io.StringIO(), ("all_orders", "all_customers")

    def watched() -> None:
        try:
            wait_for(lambda: len(rows.getvalue().splitlines()) == 2)
            with catalog_outage(lake):
                wait_for(lambda: all(f"{name} was not published" in notices.getvalue() for name in names))
            write(lake, "orders", 5)
            write(lake, "customers", 6)
            wait_for(lambda: (published(lake, "all_orders"), published(lake, "all_customers")) == ([5], [6]))
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    watching = Thread(target=watched)
    watching.start()
    assert run_publish(lake, names, JsonOutput(rows, notices), NoProgress(), follow=True) == 0
    watching.join()
    assert "code: catalog-unavailable" in notices.getvalue()


def test_an_unforeseen_failure_of_a_subscription_ends_the_following_of_all(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fail after the first one, which the command waits for, has begun to follow for ever."""
    publications = Lake.publications

    def failing(self: Lake, name: str, stop: Event | None = None) -> Any:
        if name == "all_customers":
            wait_for(lambda: lake.catalog.table_exists("bi.all_orders"), within_s=60)
            raise MemoryError("no memory for a diff")
        return publications(self, name, stop)

    monkeypatch.setattr(Lake, "publications", failing)
    result, _ = publish("all_orders", "all_customers", "--follow")
    assert isinstance(result.exception, MemoryError)
    assert result.exit_code == 1
