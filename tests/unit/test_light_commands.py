"""Commands that need neither Spark nor a captured database load neither: most of their time would be imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
    assert loads == ["sql loads []", "sql loads []", "status loads []", "doctor loads []"], ran.stderr
