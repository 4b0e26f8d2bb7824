"""`lakehold demo` as a newcomer runs it, without a server, over the recording that lakehold ships."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lakehold.definitions import Envelope, Table
from lakehold.lake import connect
from lakehold.sql.contracts import declared_type, with_contract

pytestmark = pytest.mark.spark

COMMAND = str(Path(sys.executable).with_name("lakehold"))
TABLES = {"shop.customers", "shop.orders", "shop.order_items"}
EXAMPLE = Path(__file__).parents[2] / "iceberg_schemas" / "example"


README = (EXAMPLE.parents[1] / "README.md").read_text()
ENDS_LIKE = re.compile(r"It ends like this .*?\n```text\n(?P<shown>.*?)```", re.DOTALL)
TIMESTAMP = re.compile(r"\b\d{13}\b")


def lakehold(*arguments: str) -> str:
    """Run the command, which must succeed; return its output."""
    done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_recorded_shop_is_equal_to_postgresql_and_readable(tmp_path: Path) -> None:
    shown = lakehold("demo", "--directory", str(tmp_path))
    assert "equal to PostgreSQL: customers 98 rows, orders 198 rows, order_items 537 rows" in shown
    assert "orders whose total is not the sum of their items: 0" in shown
    assert_shows(shown, README)
    status = lakehold("status", "--warehouse", str(tmp_path / "lake"), "--format", "json")
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
