"""The work of the quality DAG: which of the tables that an ingest announces are checked, and which failures are red."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakehold.errors import LakeholdError
from lakehold.lake import Lake
from lakehold.orchestration.assets import Announced
from lakehold.orchestration.checking import check_holds, check_tables
from lakehold.orchestration.ingesting import ingest
from lakehold.times import now_ms
from tests.conftest import LakeFactory
from tests.debezium_messages import Topic

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(make_lake: LakeFactory, tmp_path: Path) -> Lake:
    (tmp_path / "expectations").mkdir()
    return make_lake(expectations=str(tmp_path / "expectations"))


def create_with_hold(lake: Lake, directory: Path, table: str, hold: str) -> Topic:
    """Create a table and a hold with a CHECK, which waits for its first snapshot, and return the table's topic."""
    lake.sql(
        f"CREATE SOURCE shop FROM FILES '{directory}' FORMAT JSON; BEGIN;"
        f"CREATE TABLE s.{table} FROM SOURCE shop (TOPIC '{table}') ENVELOPE DEBEZIUM;"
        f"CREATE HOLD {hold} ON s.{table} WITH (CHECK = 'record'); COMMIT"
    )
    return Topic(table, {"id": {"type": "int64"}})


def test_announced_tables_that_load_or_are_gone_are_no_failures(lake: Lake, tmp_path: Path) -> None:
    topics = {name: Topic(name, {"id": {"type": "int64"}}) for name in ("loads", "goes", "stays")}
    lake.sql(f"CREATE SOURCE shop FROM FILES '{tmp_path / 'topics'}' FORMAT JSON")
    for name, topic in topics.items():
        lake.sql(f"CREATE TABLE s.{name} FROM SOURCE shop (TOPIC '{name}') ENVELOPE DEBEZIUM")
        topic.snapshot([{"id": 1}], ended=name != "loads")
        topic.write(tmp_path / "topics")
    announced = [change.table for change in ingest(lake, ["shop"], Announced()).changed]
    assert sorted(announced) == ["s.goes", "s.stays"]
    lake.sql("DROP TABLE s.goes")

    sent_by_a_person = "s.loads"
    assert check_tables(lake, [], [*announced, sent_by_a_person], 0) == {}
    assert {check.table for check in lake.verdicts.values()} == {"s.stays"}
    requested = check_tables(lake, ["s.goes", "s.loads"], [], 0)
    assert {name: error.code for name, error in requested.items() if isinstance(error, LakeholdError)} == {
        "s.goes": "table-missing",
        "s.loads": "not-readable",
    }

    topics["loads"].create({"id": 2})
    topics["loads"].write(tmp_path / "topics")
    changed = [change.table for change in ingest(lake, ["shop"], Announced()).changed]
    assert check_tables(lake, [], changed, 0) == {}
    assert {check.table for check in lake.verdicts.values()} == {"s.loads", "s.stays"}


def test_a_failing_verdict_counts_again_for_the_run_that_made_it(lake: Lake, tmp_path: Path) -> None:
    topic = create_with_hold(lake, tmp_path / "topics", "orders", "kept")
    topic.snapshot([{"id": 1}])
    topic.write(tmp_path / "topics")
    ingest(lake, ["shop"], Announced())
    expectation: dict[str, Any] = {"type": "expect_column_values_to_be_in_set"}
    expectation["kwargs"] = {"column": "id", "value_set": [2]}
    suite = {"name": "s.orders", "expectations": [expectation], "meta": {}}
    file = tmp_path / "expectations" / "s.orders.json"
    file.write_text(json.dumps(suite))

    due = now_ms()
    made = check_tables(lake, [], ["s.orders"], due), check_holds(lake, due)
    assert [list(found) for found in made] == [["s.orders"], ["kept: s.orders"]]
    kept = len(lake.verdicts.values())
    repeated = check_tables(lake, [], ["s.orders"], due), check_holds(lake, due)
    for before, again in zip(made, repeated, strict=True):
        assert list(before) == list(again)
        assert "expect_column_values_to_be_in_set (id): expected" in "".join(map(str, again.values()))
    later = now_ms()
    assert (check_tables(lake, [], [], later), check_holds(lake, later)) == ({}, {})
    assert len(lake.verdicts.values()) == kept

    # A person who corrects the suite and names the table sees what the new suite says.
    expectation["kwargs"] = {"column": "id", "value_set": [1]}
    file.write_text(json.dumps(suite))
    assert check_tables(lake, ["s.orders"], [], later) == {}
    assert check_tables(lake, [], [], due) == {}


def test_holds_are_checked_once_their_time_has_come(lake: Lake, tmp_path: Path) -> None:
    topic = create_with_hold(lake, tmp_path / "topics", "loads", "waits")
    assert check_holds(lake, 0) == {}
    topic.snapshot([{"id": 1}])
    topic.write(tmp_path / "topics")
    ingest(lake, ["shop"], Announced())
    lake.sql(f"CREATE HOLD later ON s.loads AT {now_ms() + 3_600_000} WITH (CHECK = 'record')")
    before = len(lake.verdicts.values())
    assert (check_holds(lake, 0), check_holds(lake, 0)) == ({}, {})
    checked = lake.verdicts.values()[before:]
    assert [check.hold_id for check in checked] == [lake.holds.hold("waits").hold_id]
