"""CHECK of a hold: a suite runs at the hold's timestamp; a failure refuses the hold or is recorded, as the hold demands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakehold.errors import DataRefused, NotReadable
from lakehold.lake import Lake
from lakehold.state.hold_checks import HOLD_CHECKS
from lakehold.state.iceberg_state import IcebergState
from tests.conftest import LakeFactory

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(make_lake: LakeFactory, tmp_path: Path) -> Lake:
    lake = make_lake(foreign_lag_ms=50, expectations=str(tmp_path))
    lake.sql(
        "CREATE NAMESPACE s; CREATE TABLE s.orders (id BIGINT) USING iceberg TBLPROPERTIES ('lakehold.key' = 'id');"
        "INSERT INTO s.orders VALUES (1), (2); INSERT INTO s.orders VALUES (2); DELETE FROM s.orders WHERE id = 2"
    )
    return lake


def times(lake: Lake) -> list[int]:
    return [entry.timestamp_ms for entry in lake.catalog.load_table("s.orders").metadata.snapshot_log]


def verdicts(lake: Lake) -> list[tuple[int, bool]]:
    return [(check.at_ms, check.success) for check in IcebergState(lake.catalog).log(HOLD_CHECKS).values()]


def test_a_hold_that_requires_checks_is_neither_created_nor_moved_where_a_check_fails(lake: Lake) -> None:
    right, wrong, corrected = times(lake)
    with pytest.raises(DataRefused, match=f"cannot be at {wrong}") as refused:
        lake.sql(f"CREATE HOLD h ON s.orders AT {wrong} WITH (CHECK = 'require')")
    assert "key_to_be_unique (id)" in refused.value.detail
    assert not lake.holds.all()
    assert "hold_h" not in lake.catalog.load_table("s.orders").refs()

    lake.sql(f"CREATE HOLD h ON s.orders AT {right} WITH (CHECK = 'require')")
    with pytest.raises(DataRefused):
        lake.sql(f"ALTER HOLD h ADVANCE TO {wrong}")
    assert lake.holds.hold("h").at_ms == right
    lake.sql(f"ALTER HOLD h ADVANCE TO {corrected}")
    assert lake.holds.hold("h").at_ms == corrected
    assert verdicts(lake) == [(wrong, False), (right, True), (wrong, False), (corrected, True)]


def test_a_hold_that_records_checks_moves_although_one_fails(lake: Lake) -> None:
    right, wrong, _ = times(lake)
    lake.sql(f"CREATE HOLD h ON s.orders AT {right} WITH (CHECK = 'record'); ALTER HOLD h ADVANCE TO {wrong}")
    assert lake.holds.hold("h").at_ms == wrong
    assert verdicts(lake) == [(right, True), (wrong, False)]


def test_a_hold_without_checks_runs_none(lake: Lake) -> None:
    _, wrong, _ = times(lake)
    lake.sql(f"CREATE HOLD h ON s.orders AT {wrong}")
    assert not verdicts(lake)


def test_a_check_reads_all_tables_of_a_query_at_its_time(lake: Lake, tmp_path: Path) -> None:
    lake.sql("CREATE TABLE s.parts (order_id BIGINT, note STRING) USING iceberg; INSERT INTO s.parts VALUES (1, '{x}')")
    created = lake.catalog.load_table("s.parts").metadata.snapshot_log[-1].timestamp_ms
    lake.sql("DELETE FROM s.parts")
    orphans = (
        "SELECT o.* FROM {batch} o LEFT ANTI JOIN s.parts ON s.parts.order_id = o.id AND s.parts.note = '{{x}}' "
        "WHERE o.id = 1"
    )
    expectation = {"type": "unexpected_rows_expectation", "kwargs": {"unexpected_rows_query": orphans}}
    (tmp_path / "s.orders.json").write_text(json.dumps({"name": "s.orders", "expectations": [expectation]}))

    assert not lake.check("s.orders").success
    assert lake.check("s.orders", created).success, "the part existed then"
    (outcome,) = lake.check("s.orders", created).outcomes
    assert outcome.expected == f"no rows of {orphans}"
    with pytest.raises(NotReadable, match=r's\.parts" is not readable'):
        lake.check("s.orders", times(lake)[0])
    lake.sql(f"CREATE HOLD h ON s.orders AT {created} WITH (CHECK = 'require')")
