"""Suites run on snapshots of tables: their findings, the snapshot they read, and the errors that keep them from running."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lakehold.cli.check import CheckRequest, run_check
from lakehold.cli.command_output import OutputFormat, open_output
from lakehold.errors import LakeholdError
from lakehold.lake import Lake
from lakehold.quality import Verdict
from lakehold.quality.suite_loading import load
from lakehold.state.hold_checks import HOLD_CHECKS
from lakehold.state.iceberg_state import IcebergState
from lakehold.state.read_lease_store import ReadLeaseStore
from tests.conftest import LakeFactory
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

ORDERS = """
    CREATE NAMESPACE s;
    CREATE TABLE s.orders (
        id BIGINT, `line no.` INT, status STRING COMMENT 'One of placed or paid.', price DECIMAL(9, 2), changed_at TIMESTAMP
    ) USING iceberg TBLPROPERTIES ('lakehold.key' = 'id,line no.');
    INSERT INTO s.orders VALUES (1, 1, 'placed', 1.10, TIMESTAMP '2026-01-01'), (1, 2, NULL, 2.20, NULL)
"""
WRONG = """
    INSERT INTO s.orders VALUES
        (1, 2, 'lost', 1.10, TIMESTAMP '2100-01-01'), (NULL, 3, 'paid', 3.30, TIMESTAMP '2026-01-01')
"""


@pytest.fixture
def lake(make_lake: LakeFactory, tmp_path: Path) -> Lake:
    (tmp_path / "expectations").mkdir()
    return make_lake(foreign_lag_ms=50, expectations=str(tmp_path / "expectations"))


def failed(verdict: Verdict) -> list[tuple[str, str, str, tuple[Any, ...]]]:
    return [(o.expectation.removeprefix("expect_"), o.column, o.found, o.examples) for o in verdict.failed]


def expect(lake: Lake, table: str, *expectations: dict[str, Any]) -> Path:
    """Write a suite for `table`."""
    assert lake.settings.expectations is not None
    path = lake.settings.expectations / f"{table}.json"
    path.write_text(json.dumps({"name": table, "expectations": expectations}))
    return path


def newest_ms(lake: Lake, table: str) -> int:
    return lake.catalog.load_table(table).metadata.snapshot_log[-1].timestamp_ms


def test_a_table_is_checked_as_it_was_at_a_time_and_where_a_hold_keeps_it(lake: Lake) -> None:
    lake.sql(ORDERS)
    before_ms = newest_ms(lake, "s.orders")
    lake.sql(f"CREATE HOLD kept ON s.orders AT {before_ms}")
    lake.sql(WRONG)
    now = lake.check("s.orders")
    assert failed(now) == [
        ("key_to_be_unique", "id, line no.", "1 row", ({"id": 1, "line no.": 2, "rows": 2},)),
        ("column_values_to_not_be_null", "id", "1 of 4 rows", ()),
        ("column_values_to_be_in_set", "status", "1 of 4 rows", ("lost",)),
        ("column_values_to_be_between", "changed_at", "1 of 4 rows", now.failed[-1].examples),
    ]
    assert [o.keys for o in now.failed] == [
        (),
        ({"id": None, "line no.": 3},),
        ({"id": 1, "line no.": 2},),
        ({"id": 1, "line no.": 2},),
    ]
    assert now.statistics == {"evaluated": 6, "successful": 2, "failed": 4}
    page = Path(now.html_path)
    assert "failed: 4 of 6" in page.read_text()
    assert page.parent == lake.settings.warehouse_path / "_checks" / "s.orders"  # type: ignore[operator]

    before = lake.check("s.orders", at_ms=before_ms)
    assert (before.success, before.at_ms, before.suite) == (True, before_ms, "generated")
    assert before.snapshot_id != now.snapshot_id
    held = lake.check("s.orders", hold="kept")
    assert (held.success, held.snapshot_id, held.at_ms) == (True, before.snapshot_id, before_ms)
    *others, row = IcebergState(lake.catalog).log(HOLD_CHECKS).values()
    assert [(other.hold_id, other.at_ms, other.success) for other in others] == [
        ("", now.at_ms, False),
        ("", before_ms, True),
    ]
    assert (row.hold_id, row.table, row.snapshot_id) == (lake.holds.hold("kept").hold_id, "s.orders", held.snapshot_id)
    assert (row.success, row.failures, row.statistics) == (True, (), held.statistics)


def test_a_long_check_keeps_what_it_reads_from_maintenance(
    make_lake: LakeFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "expectations").mkdir()
    nothing_kept = {"foreign_lag_ms": 50, "retain_history_ms": 0, "expire_grace_ms": 0}
    lake = make_lake(expectations=str(tmp_path / "expectations"), **nothing_kept)
    names = ["s.orders", "s.customers"]
    lake.sql(ORDERS + "; CREATE TABLE s.customers USING iceberg AS SELECT 1L AS id")
    before_ms = newest_ms(lake, "s.customers")
    lake.sql("INSERT OVERWRITE s.orders VALUES (9, 1, 'paid', 1.10, NULL); INSERT OVERWRITE s.customers VALUES (9)")
    unknown = "SELECT id FROM {batch} WHERE id NOT IN (SELECT id FROM s.customers)"
    expect(lake, "s.orders", {"type": "unexpected_rows_expectation", "kwargs": {"unexpected_rows_query": unknown}})
    store = ReadLeaseStore(IcebergState(lake.catalog))

    def load_and_be_slow(*arguments: Any) -> Any:
        found = load(*arguments)
        wait_for(lambda: {name for lease in store.leases() for name in lease.tables} == {*names}, "leases")
        assert [report.error for report in lake.maintain(names)] == [None, None]
        return found

    monkeypatch.setattr("lakehold.quality.suite_run.load", load_and_be_slow)
    wait_for(lambda: lake.timelines.of(names)["s.customers"].upper_ms > newest_ms(lake, "s.customers"))
    assert lake.check("s.orders", before_ms).success
    assert store.leases() == ()


def test_a_written_suite_is_used_from_then_on(lake: Lake) -> None:
    lake.sql(ORDERS)
    path = lake.checks.write_suite("s.orders")
    assert lake.check("s.orders").suite == str(path)
    expect(lake, "s.orders", {"type": "expect_table_row_count_to_equal", "kwargs": {"value": 3}})
    assert failed(lake.check("s.orders")) == [("table_row_count_to_equal", "", "2", ())]


def test_a_snapshot_from_before_a_column_was_added_lacks_it(lake: Lake) -> None:
    lake.sql(ORDERS)
    before_ms = newest_ms(lake, "s.orders")
    lake.sql("ALTER TABLE s.orders ADD COLUMN city STRING; INSERT INTO s.orders VALUES (2, 1, NULL, NULL, NULL, 'Ulm')")
    lake.checks.write_suite("s.orders")
    expect_city = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "city"}}
    assert lake.check("s.orders").success
    assert failed(lake.check("s.orders", before_ms)) == [
        ("columns_to_have_types", "", "1 of 6 columns are not", ("city: expected string, found no such column",))
    ]
    expect(lake, "s.orders", expect_city)
    assert failed(lake.check("s.orders", before_ms)) == [("column_values_to_not_be_null", "city", "no column city", ())]
    assert failed(lake.check("s.orders")) == [("column_values_to_not_be_null", "city", "2 of 3 rows", ())]


def test_a_table_without_rows_passes_and_a_missing_one_is_an_error(lake: Lake) -> None:
    lake.sql("CREATE NAMESPACE s; CREATE TABLE s.empty (id BIGINT) USING iceberg TBLPROPERTIES ('lakehold.key' = 'id')")
    verdict = lake.check("s.empty")
    assert (verdict.success, verdict.snapshot_id, len(verdict.outcomes)) == (True, None, 3)
    with pytest.raises(LakeholdError) as refused:
        lake.check("s.nowhere")
    assert refused.value.code == "table-missing"


@pytest.mark.parametrize(
    ("expectation", "code", "shown"),
    [
        (
            {"type": "expect_column_values_to_be_nul"},
            "suite-invalid",
            'Did you mean "expect_column_values_to_be_null"?',
        ),
        ({"type": "expect_key_to_be_unique", "kwargs": {"keys": ["id"]}}, "suite-invalid", 'argument "key"'),
        (
            {"type": "unexpected_rows_expectation", "kwargs": {"unexpected_rows_query": "SELECT nope FROM {batch}"}},
            "check-failed",
            "nope",
        ),
    ],
)
def test_an_invalid_suite_is_an_error_that_names_its_file(
    lake: Lake, expectation: dict[str, Any], code: str, shown: str, capfd: pytest.CaptureFixture[str]
) -> None:
    lake.sql(ORDERS)
    good = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "id"}}
    path = expect(lake, "s.orders", good, expectation)
    with pytest.raises(LakeholdError) as refused:
        lake.check("s.orders")
    error = refused.value
    assert error.code == code
    assert f'"{path}". Expectation 2, "{expectation["type"]}"' in error.detail
    assert shown in f"{error.detail} {error.hint}"
    assert "org.apache.spark" not in "".join([*capfd.readouterr(), str(error)])


DEBEZIUM = (
    {"type": "expect_mz_states_to_be_known", "kwargs": {"envelope": "debezium"}},
    {"type": "expect_mz_states_to_follow", "kwargs": {"envelope": "debezium", "key": ["id"]}},
    {"type": "expect_mz_timestamps_not_to_go_back", "kwargs": {"order": ["place"]}},
)


def written(lake: Lake, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Make a table of the rows `(mz_timestamp, mz_state, id)`, in their order."""
    values = ", ".join(f"({place}, {t}, '{state}', {key})" for place, (t, state, key) in enumerate(rows))
    lake.sql(f"CREATE OR REPLACE TABLE {table} USING iceberg AS SELECT * FROM VALUES {values} "
             "AS t(place, mz_timestamp, mz_state, id)")  # fmt: skip


def test_outputs_of_envelopes_pass_their_checks(lake: Lake) -> None:
    lake.sql(
        "CREATE NAMESPACE s; CREATE TABLE s.t (id BIGINT, v INT) USING iceberg; INSERT INTO s.t VALUES (1, 1), (2, 1)"
    )
    first_ms = newest_ms(lake, "s.t")
    lake.sql("INSERT OVERWRITE s.t VALUES (1, 2); INSERT INTO s.t VALUES (2, 2)")
    rows = lake.sql(f"SUBSCRIBE s.t ENVELOPE DEBEZIUM (KEY (id)) AS OF {first_ms}").rows
    assert [row[1] for row in rows] == ["insert", "insert", "upsert", "delete", "insert"]
    expect(lake, "s.out", *DEBEZIUM)
    written(lake, "s.out", [row[:3] for row in rows])
    assert lake.check("s.out").success


@pytest.mark.parametrize(
    ("rows", "broken"),
    [
        ([(1, "insert", 1), (2, "gone", 1)], ["mz_states_to_be_known"]),
        ([(1, "insert", 1), (2, "insert", 1)], ["mz_states_to_follow"]),
        ([(1, "insert", 1), (2, "delete", 1), (3, "upsert", 1)], ["mz_states_to_follow"]),
        ([(1, "insert", 1), (1, "upsert", 1)], ["mz_states_to_follow"]),
        ([(1, "insert", 1), (2, "key_violation", 1), (3, "insert", 1)], []),
        ([(2, "insert", 1), (1, "insert", 2), (3, "insert", 3)], ["mz_timestamps_not_to_go_back"]),
    ],
)
def test_outputs_that_no_subscribe_writes_fail_their_checks(
    lake: Lake, rows: list[tuple[Any, ...]], broken: list[str]
) -> None:
    lake.sql("CREATE NAMESPACE s")
    expect(lake, "s.out", *DEBEZIUM)
    written(lake, "s.out", rows)
    assert [name for name, *_ in failed(lake.check("s.out"))] == broken


@pytest.mark.parametrize(
    ("ranges", "wrong"),
    [
        ("(1, 10, 20), (1, 20, 30), (1, 40, NULL), (NULL, 10, 20), (NULL, 20, NULL)", 0),
        ("(1, 10, 21), (1, 20, NULL)", 1),
        ("(1, 10, NULL), (1, 20, NULL)", 1),
        ("(1, 10, 10), (2, 20, 10)", 2),
    ],
)
def test_ranges_that_no_history_has_fail_their_check(lake: Lake, ranges: str, wrong: int) -> None:
    lake.sql(
        "CREATE NAMESPACE s; CREATE TABLE s.h USING iceberg AS SELECT id, timestamp_millis(f) AS valid_from, "
        f"timestamp_millis(t) AS valid_to, t IS NULL AS is_current FROM VALUES {ranges} AS r(id, f, t)"
    )
    expect(lake, "s.h", {"type": "expect_ranges_to_follow", "kwargs": {"key": ["id"]}})
    assert [len(examples) for *_, examples in failed(lake.check("s.h"))] == [wrong] * (wrong > 0)


def test_a_raw_diff_of_zero_fails_its_check(lake: Lake) -> None:
    lake.sql("CREATE NAMESPACE s; CREATE TABLE s.raw USING iceberg AS SELECT * FROM VALUES "
             "(1, false, 1), (2, true, NULL), (3, false, 0) AS t(mz_timestamp, mz_progressed, mz_diff)")  # fmt: skip
    expect(lake, "s.raw", {"type": "expect_mz_diffs_not_to_be_zero", "kwargs": {"progress": True}})
    assert failed(lake.check("s.raw")) == [
        ("mz_diffs_not_to_be_zero", "", "1 row", ({"mz_timestamp": 3, "mz_progressed": False, "mz_diff": 0},))
    ]


def test_the_command_reports_the_failed_expectations(lake: Lake, tmp_path: Path) -> None:
    lake.sql(ORDERS + ";" + WRONG)
    shown: dict[OutputFormat, tuple[str, str]] = {}
    for wanted in (OutputFormat.TABLE, OutputFormat.JSON):
        stdout, stderr = io.StringIO(), io.StringIO()
        request = CheckRequest("s.orders", None, None, tmp_path / "page.html", writes_suite=False)
        assert not run_check(lake, request, open_output(wanted, stdout, stderr))
        shown[wanted] = stdout.getvalue(), stderr.getvalue()
    assert "lost" in shown[OutputFormat.TABLE][0]
    assert "UTC failed: 4 of 6 expectations are not met (suite: generated)" in shown[OutputFormat.TABLE][1]
    (verdict,) = map(json.loads, shown[OutputFormat.JSON][0].splitlines())
    assert (verdict["success"], len(verdict["failed"])) == (False, 4)
    assert verdict["failed"][0]["examples"] == [{"id": 1, "line no.": 2, "rows": 2}]
    assert "s.orders" in (tmp_path / "page.html").read_text()


def test_a_check_does_not_follow_the_time_zone_of_a_session(lake: Lake) -> None:
    lake.sql("CREATE NAMESPACE s; CREATE TABLE s.t AS SELECT timestamp'2026-01-01 23:30:00Z' AS at")
    kwargs = {"unexpected_rows_query": "SELECT at FROM {batch} WHERE date(at) > date'2026-01-01'"}
    expect(lake, "s.t", {"type": "unexpected_rows_expectation", "kwargs": kwargs})
    assert lake.check("s.t").success
    lake.sql("SET TIME ZONE 'Asia/Tokyo'")
    assert lake.check("s.t").success
