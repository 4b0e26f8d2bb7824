"""Foreign tables that lakehold cannot read completely: lakehold skips and reports them without affecting any other table."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from lakehold.errors import LakeholdError
from lakehold.lake import Lake
from lakehold.orchestration.maintaining import maintain
from lakehold.overview.gather import gather
from lakehold.overview.table_problems import problems_of
from lakehold.status import status_of
from tests.catalog_servers import NewLake, new_lake, rest_server
from tests.conftest import LakeFactory

__all__ = ["new_lake", "rest_server"]

pytestmark = pytest.mark.spark

VARIANTS = """
    CREATE NAMESPACE s;
    CREATE TABLE s.v (v VARIANT, id INT, name STRING, st STRUCT<a: INT, v: VARIANT>) USING iceberg
        TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read');
    INSERT INTO s.v VALUES
        (parse_json('{"a": 7}'), 1, 'ann', named_struct('a', 1, 'v', parse_json('1'))), (parse_json('[2]'), 2, 'bob', NULL)
"""


def newest_ms(lake: Lake, table: str) -> int:
    return int(lake.catalog.load_table(table).metadata.snapshot_log[-1].timestamp_ms)


def code_of(lake: Lake, statement: str) -> str:
    with pytest.raises(LakeholdError) as refused:
        lake.sql(statement)
    return refused.value.code


@pytest.fixture
def variants(make_lake: LakeFactory) -> Lake:
    lake = make_lake(foreign_lag_ms=0)
    lake.sql(VARIANTS)
    return lake


def test_an_unreadable_column_is_refused_and_the_others_are_read(variants: Lake, make_lake: LakeFactory) -> None:
    at = newest_ms(variants, "s.v")
    variants.sql("DELETE FROM s.v WHERE id = 1")
    later = newest_ms(variants, "s.v")
    for relation in ("s.v", "(SELECT * FROM s.v)", "(SELECT id, v FROM s.v)", "(SELECT st FROM s.v)"):
        assert code_of(variants, f"SUBSCRIBE {relation} AS OF {at}") == "unsupported-type"
    read: list[tuple[str, list[tuple[Any, ...]], tuple[Any, ...]]] = [
        ("SELECT id, name FROM s.v", [(1, "ann"), (2, "bob")], (1, "ann")),
        ("SELECT upper(name) AS n FROM s.v WHERE id < 2", [("ANN",)], ("ANN",)),
        ("SELECT st.a FROM s.v WHERE st.a > 0", [(1,)], (1,)),
        ("SELECT variant_get(v, '$.a', 'int') AS a, id FROM s.v", [(None, 2), (7, 1)], (7, 1)),
    ]
    settings = variants.settings
    by_spark = make_lake(Path(settings.warehouse), catalog_name=settings.catalog_name, driver_diff_max_rows=0)
    for lake, (query, came, went) in product((variants, by_spark), read):
        rows = lake.sql(f"SUBSCRIBE ({query}) AS OF {at}").rows
        assert rows == [*((at, 1, *row) for row in came), (later, -1, *went)]
    rows = variants.sql(f"SUBSCRIBE (SELECT count(*) AS n FROM s.v) ENVELOPE UPSERT (KEY (n)) AS OF {at}").rows
    assert [row[1:] for row in rows] == [("upsert", 2), ("upsert", 1), ("delete", 2)]
    whole = variants.sql(f"SELECT * FROM s.v ORDER BY id AS OF {at}").rows
    assert whole == [('{"a":7}', 1, "ann", "{1, 1}"), ("[2]", 2, "bob", None)]


def test_a_table_with_an_unreadable_column_is_held_checked_and_maintained(variants: Lake) -> None:
    at = newest_ms(variants, "s.v")
    variants.sql(f"CREATE HOLD h ON s.v AT {at}; DELETE FROM s.v WHERE id = 1")
    variants.sql("CREATE TABLE s.other (id INT) USING iceberg; INSERT INTO s.other VALUES (1)")
    assert variants.check("s.v").success
    reports = {report.table: report for report in variants.maintain()}
    assert [report.error or report.skipped for report in reports.values()] == [None] * len(reports)
    assert {"hold_h", f"mz_{newest_ms(variants, 's.v')}"} < set(variants.catalog.load_table("s.v").metadata.refs)
    assert variants.sql("SELECT id FROM s.v VERSION AS OF 'hold_h' ORDER BY id").rows == [(1,), (2,)]
    (report,) = variants.maintain(["s.v"])
    assert report.error is None
    schema = variants.sql("DESCRIBE TABLE s.v").rows
    assert [row[:2] for row in schema[:2]] == [("v", "variant"), ("id", "int")]


@pytest.mark.stack
def test_a_rest_catalog_loads_and_changes_a_table_with_an_unreadable_column(
    make_lake: LakeFactory, new_lake: NewLake
) -> None:
    lake = make_lake(foreign_lag_ms=0, **new_lake("rest"))
    lake.sql(VARIANTS)
    lake.sql(f"CREATE HOLD h ON s.v AT {newest_ms(lake, 's.v')}")
    assert tags(lake, "s.v") == {"hold_h"}
    assert [row[1:] for row in lake.sql("SUBSCRIBE (SELECT id, name FROM s.v)").rows] == [(1, 1, "ann"), (1, 2, "bob")]
    lake.sql("DROP HOLD h")
    assert tags(lake, "s.v") == set()


def test_dropping_the_last_hold_drops_its_tags_and_releases_history(make_lake: LakeFactory) -> None:
    lake = make_lake(foreign_lag_ms=0)
    lake.sql(
        "CREATE NAMESPACE s; CREATE TABLE s.t (id INT) USING iceberg; CREATE TABLE s.u (id INT) USING iceberg; "
        "INSERT INTO s.t VALUES (1); INSERT INTO s.u VALUES (1); CREATE HOLD one ON s.t; CREATE HOLD both ON s.t, s.u; "
        "INSERT INTO s.t VALUES (2); INSERT INTO s.u VALUES (2); INSERT INTO s.t VALUES (3)"
    )
    assert_maintained(lake)
    assert {"hold_one", "hold_both"} < tags(lake, "s.t")
    assert len(tags(lake, "s.t")) == 4
    lake.sql("DROP HOLD one")
    assert_maintained(lake)
    assert "hold_one" not in tags(lake, "s.t")
    lake.sql("ALTER HOLD both RENAME TO two")
    assert "hold_two" in tags(lake, "s.u")
    lake.sql("ALTER HOLD s.two ADVANCE TO " + str(newest_ms(lake, "s.t")))
    assert_maintained(lake)
    assert {*tags(lake, "s.t"), *tags(lake, "s.u")} == {"hold_two"}
    lake.sql("INSERT INTO s.t VALUES (4)")
    assert_maintained(lake)
    lake.sql("DROP HOLD two")
    assert (tags(lake, "s.t"), tags(lake, "s.u")) == (set(), set())


def test_maintenance_removes_tags_of_dropped_holds(make_lake: LakeFactory) -> None:
    lake = make_lake(foreign_lag_ms=0)
    lake.sql(
        "CREATE NAMESPACE s; CREATE TABLE s.t (id INT) USING iceberg; INSERT INTO s.t VALUES (1); CREATE HOLD h ON s.t"
    )
    lake.sql("INSERT INTO s.t VALUES (2)")
    assert_maintained(lake)
    holds = lake._parts.hold_store
    holds.change(lambda _: ())
    assert len(tags(lake, "s.t")) == 2
    reports = {report.table: report.tags for report in lake.maintain()}
    assert (reports["s.t"], tags(lake, "s.t")) == (2, set())


def assert_maintained(lake: Lake) -> None:
    assert {report.error for report in lake.maintain()} == {None}


def tags(lake: Lake, table: str) -> set[str]:
    return {*lake.catalog.load_table(table).metadata.refs} - {"main"}


def test_damaged_tables_are_reported_and_the_others_are_maintained(make_lake: LakeFactory) -> None:
    lake = make_lake(foreign_lag_ms=0)
    bad = ["garbled", "gone", "listless", "newer", "truncated"]
    tables = [*bad, "whole"]
    lake.sql("CREATE NAMESPACE s")
    for table in tables:
        lake.sql(
            f"CREATE TABLE s.{table} (id INT) USING iceberg TBLPROPERTIES ('lakehold.retain-history-ms' = '0'); "
            f"INSERT INTO s.{table} VALUES (1)"
        )
    lake.sql(f"CREATE HOLD h ON {', '.join(f's.{table}' for table in tables)}")
    for table in bad:
        damage(lake, table)
    fresh = make_lake(Path(lake.settings.warehouse), catalog_name=lake.settings.catalog_name, foreign_lag_ms=0)
    reports = {report.table: report for report in fresh.maintain()}
    found = {table: reports[f"s.{table}"].error for table in tables}
    codes = {table: error and error.code for table, error in found.items()}
    assert codes == {**dict.fromkeys(bad, "table-unreadable"), "whole": None}
    assert {*maintain(fresh, [], dry_run=False)} == {f"s.{table}" for table in bad}
    assert [row[1] for row in fresh.sql("SHOW TABLES IN s").rows] == tables
    assert (len(fresh.sql("SHOW HOLDS").rows), status_of(fresh).rows) == (1, [])
    assert fresh.sql("SUBSCRIBE s.whole").rows[0][1:] == (1, 1)
    assert {code_of(fresh, f"SUBSCRIBE s.{table}") for table in bad} == {"table-unreadable"}
    problems = {table.name: [problem.text for problem in problems_of(table)] for table in gather(fresh).tables}
    assert problems["s.gone"] == ['table "s.gone" cannot be read']
    assert problems["s.whole"] == []
    fresh.sql("DROP HOLD h")
    assert tags(fresh, "s.whole") == set()


def damage(lake: Lake, table: str) -> None:
    """Damage a table: delete its metadata, make it no JSON or a later version's, or truncate the manifest list."""
    loaded = lake.catalog.load_table(f"s.{table}")
    path = Path(loaded.metadata_location.removeprefix("file:"))
    match table:
        case "gone":
            path.unlink()
        case "garbled":
            path.write_text("{")
        case "newer":
            path.write_text(json.dumps({**json.loads(path.read_text()), "format-version": 9}))
        case "truncated":
            current = loaded.current_snapshot()
            assert current is not None
            whole = Path(current.manifest_list.removeprefix("file:"))
            whole.write_bytes(whole.read_bytes()[:-20])
        case _:
            current = loaded.current_snapshot()
            assert current is not None
            Path(current.manifest_list.removeprefix("file:")).unlink()
