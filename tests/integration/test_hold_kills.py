"""Hold commands killed after they changed a hold's row: the same command finishes the work, or nothing is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lakehold.lake import Lake, connect

SCHEMA = pa.schema([("id", pa.int64())])
HELD_TABLE = """
BEGIN;
CREATE SOURCE recorded FROM FILES '/recorded' FORMAT JSON;
CREATE TABLE shop.orders FROM SOURCE recorded (TOPIC 'orders') ENVELOPE UPSERT;
CREATE HOLD since_ever ON shop.orders;
COMMIT;
"""


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """Create a foreign table with two snapshots."""
    with connect(str(tmp_path / "lake"), foreign_lag_ms=0) as lake:
        lake.catalog.create_namespace("shop")
        table = lake.catalog.create_table("shop.rates", SCHEMA)
        for number in range(2):
            table.append(pa.table({"id": [number]}, SCHEMA))
        yield lake


def run_killed(lake: Lake, script: str) -> None:
    """Run a script in a process that dies after it changed the row of a hold."""
    command = [str(Path(sys.executable).with_name("lakehold")), "sql", script, "--warehouse", lake.settings.warehouse]
    ended = subprocess.run(command, env={**os.environ, "LAKEHOLD_KILL_AT": "after-hold"}, check=False, timeout=120)
    assert ended.returncode == -signal.SIGKILL


def test_a_killed_transaction_leaves_nothing_and_can_run_again(lake: Lake) -> None:
    run_killed(lake, HELD_TABLE)
    assert lake.sql("SHOW HOLDS").rows == []
    assert lake.sql("SHOW TABLES").rows == []
    lake.sql(HELD_TABLE)
    ((_, name, at, tables, *_),) = lake.sql("SHOW HOLDS").rows
    assert (name, at, tables) == ("since_ever", None, ["shop.orders"])


def test_an_advance_killed_before_its_tags_moved_is_finished_by_the_same_statement(lake: Lake) -> None:
    first, second = (entry for entry in lake.catalog.load_table("shop.rates").history())
    lake.sql(f"CREATE HOLD h ON shop.rates AT {first.timestamp_ms}")
    statement = f"ALTER HOLD h ADVANCE TO {second.timestamp_ms}"
    run_killed(lake, statement)
    assert lake.catalog.load_table("shop.rates").metadata.refs["hold_h"].snapshot_id == first.snapshot_id
    lake.sql(statement)
    assert lake.catalog.load_table("shop.rates").metadata.refs["hold_h"].snapshot_id == second.snapshot_id


def test_holds_renamed_together_are_all_renamed_and_the_next_statement_moves_their_tags(lake: Lake) -> None:
    """Kill a rename of two holds: until the next statement, the tags of the old names keep the history of both."""
    first, second = (entry for entry in lake.catalog.load_table("shop.rates").history())
    lake.sql(f"CREATE HOLD a ON shop.rates AT {first.timestamp_ms}; CREATE HOLD b ON shop.rates")
    lake.sql(f"ALTER HOLD b ADVANCE TO {second.timestamp_ms}")
    run_killed(lake, "BEGIN; ALTER HOLD a RENAME TO a_old; ALTER HOLD b RENAME TO a; COMMIT")
    assert {hold.name: hold.at_ms for hold in lake.holds.all()} == {
        "a_old": first.timestamp_ms,
        "a": second.timestamp_ms,
    }
    assert hold_tags(lake) == {"hold_a": first.snapshot_id, "hold_b": second.snapshot_id}
    lake.sql(f"ALTER HOLD a ADVANCE TO {second.timestamp_ms}")
    assert hold_tags(lake) == {"hold_a_old": first.snapshot_id, "hold_a": second.snapshot_id}


def hold_tags(lake: Lake) -> dict[str, int]:
    refs = lake.catalog.load_table("shop.rates").metadata.refs
    return {name: ref.snapshot_id for name, ref in refs.items() if name.startswith("hold_")}
