"""Commands that need neither Spark nor a captured database load neither: most of their time would be imports.

`doctor` loads what an ingest loads: it asks each source for its topics.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from lakehold.times import now_ms
from tests.fed_shop import Shop

HEAVY = (
    "pyspark",
    "great_expectations",
    "airflow",
    "confluent_kafka",
    "httpx",
    "authlib",
    "psycopg",
    "pymysql",
)

SCRIPT = f"""
import sys
from lakehold.cli.app import app
for command in (
    ["sql", "CREATE SOURCE s FROM FILES 'messages' FORMAT JSON; CREATE TABLE s.t FROM SOURCE s (TOPIC 't') ENVELOPE UPSERT"],
    ["sql", "SHOW SOURCES; SHOW TABLES; SHOW HOLDS; SHOW SUBSCRIPTIONS; SHOW MATERIALIZED VIEWS; SHOW ROLES"],
    ["status"],
    ["doctor", "--quiet"],
):
    try:
        app(command)
    except SystemExit as end:
        assert not end.code or command[0] == "doctor", (command, end.code)
    print(command[0], "loads", [name for name in {HEAVY!r} if name in sys.modules])
"""


def test_commands_without_spark_load_no_engine_and_no_client(tmp_path: Path) -> None:
    (tmp_path / "messages").mkdir()
    ran = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=False)
    loads = [line for line in ran.stdout.splitlines() if " loads " in line]
    assert loads == [
        "sql loads []",
        "sql loads []",
        "status loads []",
        "doctor loads ['pyspark', 'confluent_kafka', 'httpx']",
    ], ran.stderr


STATUS = f"""
import sys
from lakehold.cli.app import app
try:
    app(sys.argv[1:])
finally:
    print([name for name in ("pandas", "sqlglot", "pyarrow.dataset", *{HEAVY!r}) if name in sys.modules], file=sys.stderr)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path / "lake")
    yield shop
    shop.lake.close()


def in_a_terminal(command: Sequence[str]) -> tuple[str, str]:
    """Run a command in a terminal; returns what it shows there, and its standard error."""
    terminal, stdout = pty.openpty()
    process = subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True)
    os.close(stdout)
    shown = b""
    with suppress(OSError):  # the end of a terminal is an error
        while chunk := os.read(terminal, 65_536):
            shown += chunk
    os.close(terminal)
    _, stderr = process.communicate(timeout=60)
    return shown.decode(), stderr


@pytest.mark.parametrize("options", [(), ("--format", "json"), ("--html", "-")])
def test_the_status_of_tables_loads_little(shop: Shop, options: tuple[str, ...]) -> None:
    shop.reads()
    shop.batch(now_ms() - 2_000)
    warehouse = shop.lake.settings.warehouse
    shown, loads = in_a_terminal([sys.executable, "-c", STATUS, "status", *options, "--warehouse", warehouse])
    assert "shop.orders" in shown
    assert loads == "[]\n"
