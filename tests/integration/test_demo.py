"""`make demo` and `make demo-live` as a newcomer runs them: over the recording that lakehold ships, and on the real stack."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from lakehold import stack as lakehold_stack
from lakehold.definitions import Envelope, Table
from lakehold.lake import connect
from lakehold.sql.contracts import declared_type, with_contract
from lakehold.stack import StackAddresses
from tests.make_targets import commands
from tests.runnable_pages import checked

pytestmark = pytest.mark.spark

COMMAND = str(Path(sys.executable).with_name("lakehold"))
TABLES = {"shop.customers", "shop.orders", "shop.order_items"}
EXAMPLE = Path(__file__).parents[2] / "iceberg_schemas" / "example"


README = (EXAMPLE.parents[1] / "README.md").read_text()
ENDS_LIKE = re.compile(r"It ends like this .*?\n```text\n(?P<shown>.*?)```", re.DOTALL)
TIMESTAMP = re.compile(r"\b\d{13}\b")


def printed(*command: str, **variables: str) -> str:
    """Run a command, which must succeed; return its output."""
    done = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_pages_show_the_commands_that_these_tests_run() -> None:
    start, _ = checked("README.md", __file__)
    assert [line.split()[:2] for line in start.splitlines()] == [["make", "demo"], ["make", "test"]]
    assert checked("docs/index.md", __file__) == ["make demo\n"]
    assert checked("docs/start/real-stack.md", __file__) == ["make demo-live\n"]
    assert checked("docs/start/embedded.md", __file__) == ["make setup\n", "lakehold demo --directory demo\n"]
    setup, demo = commands("demo")
    assert [setup] == commands("setup")
    assert demo == [COMMAND, "demo"]


def test_the_recorded_shop_is_equal_to_postgresql_and_readable(tmp_path: Path) -> None:
    shown = printed(*commands("demo")[-1], "--directory", str(tmp_path))
    assert "equal to PostgreSQL: customers 98 rows, orders 198 rows, order_items 537 rows" in shown
    assert "orders whose total is not the sum of their items: 0" in shown
    assert_shows(shown, README)
    status = printed(COMMAND, "status", "--warehouse", str(tmp_path / "lake"), "--format", "json")
    tables = {row["table"]: row for row in map(json.loads, status.splitlines())}
    assert tables.keys() == TABLES
    for row in tables.values():
        assert row["state"] == "live"
        assert row["since"] is not None, "a fully read snapshot is complete, wherever its last row is"
        assert row["open_errors"] == 0
    with connect(str(tmp_path / "lake")) as lake:
        for name in TABLES:
            state = lake.tables.table_state(name)
            assert state is not None
            namespace, table = name.split(".")
            contract = with_contract(Table(namespace, table, "shop", "", Envelope.DEBEZIUM), EXAMPLE)
            assert {f.name: declared_type(f.field_type, f.name) for f in state.schema.fields} == {
                column.name: column.type for column in contract.columns
            }, "the example files describe the shop's tables"


@pytest.mark.soak
@pytest.mark.stack
def test_a_live_shop_is_equal_to_postgresql_at_the_end_and_leaves_the_stack_as_it_was(
    stack: StackAddresses, stack_directory: Path, tmp_path: Path
) -> None:
    demo = [*commands("demo-live")[-1], "--seconds", "15", "--directory", str(tmp_path)]
    shown = printed(*demo, LAKEHOLD_STACK_DIR=str(stack_directory))
    transactions = re.search(r"PostgreSQL ran (\d+) transactions", shown)
    assert transactions is not None, shown
    assert int(transactions[1]) > 0
    assert re.search(r"equal to PostgreSQL: customers \d+ rows, orders \d+ rows, order_items \d+ rows", shown), shown
    assert "orders whose total is not the sum of their items: 0" in shown
    assert {part.state for part in lakehold_stack.status(stack_directory)} == {"running"}
    shop = re.search(r"PostgreSQL has a shop: \S+/(\w+)", shown)
    assert shop is not None, shown
    databases = "SELECT datname FROM pg_database WHERE datname = %(shop)s"
    slots = "SELECT slot_name FROM pg_replication_slots WHERE database = %(shop)s"
    with psycopg.connect(stack.postgres()) as connection:
        assert connection.execute(f"{databases} UNION ALL {slots}".encode(), {"shop": shop[1]}).fetchall() == []


def assert_shows(shown: str, readme: str) -> None:
    """Assert that the demo shows the lines of the README's example, apart from its `…`, in this order."""
    example = ENDS_LIKE.search(readme)
    assert example is not None
    lines = [TIMESTAMP.sub("<time>", line.rstrip()) for line in shown.splitlines()]
    for line in example["shown"].splitlines():
        if line != "…":
            masked = TIMESTAMP.sub("<time>", line)
            assert masked in lines
            lines = lines[lines.index(masked) + 1 :]
