"""A table is declared but not captured, or cannot be captured: lakehold reports which table and why, until it is captured."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from lakehold import stack as lakehold_stack
from lakehold.errors import LakeholdError
from lakehold.status import status_of
from tests.captured_shop import Shop, grant_capture
from tests.captured_shop import poor as poor  # noqa: PLC0414 - pytest finds fixtures by name
from tests.conftest import LakeFactory
from tests.doc_pages import page
from tests.live_source import execute
from tests.runnable_pages import parts
from tests.stack_fixtures import SourceDatabase

pytestmark = [pytest.mark.stack, pytest.mark.spark]

_COMMAND = str(Path(sys.executable).with_name("lakehold"))


def _run(shop: Shop, *arguments: str, kill_at: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command on the shop's lake in a process of its own."""
    settings = shop.lake.settings
    environment = {"LAKEHOLD_KILL_AT": kill_at, "LAKEHOLD_CATALOG_NAME": settings.catalog_name}
    return subprocess.run(
        [_COMMAND, *arguments, "-w", str(settings.warehouse)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_table_whose_statement_was_cut_short_is_reported_until_it_is_captured(
    make_lake: LakeFactory, database: SourceDatabase, stack_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOLD_SECRET_PG", database.addresses.postgres_password)
    shop = Shop(make_lake, database)
    shop.upstream("orders", "items")
    shop.lake.sql(shop.creating("orders"))
    shop.follow_until_equal("orders")
    assert _run(shop, "sql", shop.creating("items"), kill_at="after-step:1").returncode == -signal.SIGKILL
    goes_on = "source shop: shop.items is not captured yet: the next ingest, or ALTER SOURCE shop REPAIR, continues"
    assert status_of(shop.lake).notices == (goes_on,)

    execute(database, ["UPDATE orders SET n = 1 WHERE id = 1"])
    shop.wait_for_events("orders", {"r": 200, "u": 1})
    (pid,) = (part.pid for part in lakehold_stack.status(stack_directory) if part.name == "connect")
    worker = psutil.Process(pid)
    worker.kill()
    worker.wait()
    try:
        reason = f"shop.items is not captured yet: Kafka Connect at {database.addresses.connect} does not answer"
        ingested = _run(shop, "ingest", "shop", "--quiet")
        assert (ingested.returncode, reason in ingested.stderr) == (0, True), ingested.stderr
        assert (1, 1, "orders") in shop.rows("orders"), "changes in Kafka are ingested"
        (notice,) = status_of(shop.lake).notices
        assert reason in notice
    finally:
        lakehold_stack.up(stack_directory)

    shop.follow_until_equal("orders", "items")
    assert status_of(shop.lake).notices == ()
    shop.close()


def _refusal(shop: Shop, table: str) -> LakeholdError:
    """Create a table, which is refused and not declared; return the error."""
    with pytest.raises(LakeholdError) as refusal:
        shop.lake.sql(shop.creating(table))
    assert f"shop.{table}" not in shop.lake.definitions.definitions().tables
    return refusal.value


def _open(poor: Shop) -> str:
    """Create two tables that the shop's user may read; return the user."""
    poor.upstream("orders", "items")
    execute(poor.database, [f"GRANT SELECT ON orders, items TO {poor.user}"])
    return poor.user


def test_a_user_without_the_rights_is_refused_before_anything_is_declared(poor: Shop) -> None:
    user = _open(poor)
    refused = _refusal(poor, "orders")
    assert (refused.code, refused.message) == (
        "database-refused",
        f'user "{user}" of source "shop" may not make publication "lake"',
    )
    assert poor.topics() == set()
    execute(poor.database, ["CREATE PUBLICATION lake FOR TABLE orders", f"ALTER ROLE {user} REPLICATION"])
    poor.lake.sql(poor.creating("orders"))
    poor.follow_until_equal("orders")
    assert 'may not add public.items to publication "lake", which is another\'s' in _refusal(poor, "items").message
    execute(poor.database, [f"ALTER PUBLICATION lake OWNER TO {user}"])
    assert "may not add public.items" in _refusal(poor, "items").message
    assert "as it does not own them" in _refusal(poor, "items").message


def test_a_user_without_replication_is_reported_by_the_connector(poor: Shop) -> None:
    user = _open(poor)
    execute(poor.database, ["CREATE PUBLICATION lake FOR TABLE orders"])
    with pytest.raises(LakeholdError) as failure:
        poor.lake.sql(poor.creating("orders"))
    assert "replication" in failure.value.detail
    assert "The definitions are committed" in failure.value.hint
    (notice,) = status_of(poor.lake).notices
    assert notice.startswith("source shop: shop.orders is not captured yet: its connector failed: ")
    assert "replication" in notice
    ingested = _run(poor, "ingest", "shop", "--quiet")
    assert (ingested.returncode, "its connector failed and was restarted: " in ingested.stderr) == (0, True), (
        ingested.stderr
    )
    execute(poor.database, [f"ALTER ROLE {user} REPLICATION"])
    poor.follow_until_equal("orders")
    assert status_of(poor.lake).notices == ()


@pytest.mark.soak
def test_tables_join_without_a_signal_table_and_the_next_inspection_uses_one_a_superuser_created(
    poor: Shop,
) -> None:
    poor.upstream("orders", "items", "notes")
    grant_capture(poor, "orders", "items", "notes")
    poor.lake.sql(poor.creating("orders"))
    poor.follow_until_equal("orders")
    (notice,) = poor.lake.sql(poor.creating("items")).notices
    table = f"lakehold_signals.of_{poor.database.name}"
    assert notice.startswith(f"user {poor.user} cannot have the signal table {table}")
    poor.follow_until_equal("orders", "items")

    placeholders = {"<slot>": poor.database.name, "<user>": poor.user, "<publication>": "lake"}
    execute(poor.database, [_filled(statement, placeholders) for statement in _statements_of_a_superuser()])
    poor.lake.sql("ALTER SOURCE shop REPAIR")
    assert poor.lake.sql(poor.creating("notes")).notices == ()
    poor.follow_until_equal("orders", "items", "notes")
    poor.lake.sql("ALTER SOURCE shop REPAIR")
    assert poor.steps("ALTER SOURCE shop REPAIR") == []
    assert poor.query(f"SELECT * FROM {table}") == []


def _statements_of_a_superuser() -> list[str]:
    """Return the statements for a superuser that the documentation shows."""
    (block,) = (part.text for part in parts(page("operate/connectors.md")) if part.kind == "postgresql")
    return [statement for statement in block.split(";") if statement.strip()]


def _filled(statement: str, placeholders: Mapping[str, str]) -> str:
    return re.sub(r"<\w+>", lambda found: placeholders[found[0]], statement)
