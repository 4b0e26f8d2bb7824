"""Dates and times before year 1 and after 9999, which Python's types cannot hold: every reader reads them in any time zone."""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark.sql import Row

from lakehold.cli.check import CheckRequest, run_check
from lakehold.cli.command_output import OutputFormat, open_output
from lakehold.lake import Lake
from tests.conftest import LakeFactory

pytestmark = pytest.mark.spark

DAYS = ["-0043-03-15", "0000-02-29", "0001-01-01", "2024-02-29", "9999-12-31", "+10000-01-01", "+20232-01-01"]
INFINITY = "9999-12-31 23:59:59.999999"


def shown_date(text: str) -> dt.date | str:
    return dt.date.fromisoformat(text) if text[0].isdigit() and text > "0001" else text


def shown_time(day: str, at: str) -> dt.datetime | str:
    text = f"{day}T{at}"
    return dt.datetime.fromisoformat(text) if text[0].isdigit() and text > "0001" else text


def row(day: str) -> tuple[Any, ...]:
    """Return the row of a day, as every reader shows it."""
    date, noon = shown_date(day), shown_time(day, "12:00:00")
    nested = Row(d=date, a=[shown_time(day, "00:00:00"), None])
    return (date, shown_time(day, "23:59:59.999999"), noon, nested, {date: noon}, DAYS.index(day))


ROWS = [row(day) for day in DAYS]


def written(lake: Lake, partitioned: str = "") -> int:
    """Make `s.t` with a row a day, and return the time of the version that has them."""
    values = ", ".join(
        f"(DATE '{day}', TIMESTAMP '{day} 23:59:59.999999', TIMESTAMP_NTZ '{day} 12:00:00', "
        f"named_struct('d', DATE '{day}', 'a', array(TIMESTAMP '{day} 00:00:00', NULL)), "
        f"map(DATE '{day}', TIMESTAMP_NTZ '{day} 12:00:00'), {n})"
        for n, day in enumerate(DAYS)
    )
    lake.sql(
        "CREATE NAMESPACE s; CREATE TABLE s.t (d DATE, changed_at TIMESTAMP, n TIMESTAMP_NTZ, "
        "st STRUCT<d: DATE, a: ARRAY<TIMESTAMP>>, m MAP<DATE, TIMESTAMP_NTZ>, v INT) USING iceberg "
        f"{partitioned} TBLPROPERTIES ('lakehold.key' = 'd'); INSERT INTO s.t VALUES {values}"
    )
    return int(lake.catalog.load_table("s.t").metadata.snapshot_log[-1].timestamp_ms)


@pytest.mark.parametrize("time_zone", ["America/New_York"], indirect=True)
@pytest.mark.usefixtures("time_zone")
def test_every_reader_has_the_rows(make_lake: LakeFactory) -> None:
    lake = make_lake(foreign_lag_ms=0)
    at = written(lake)
    assert lake.sql("SELECT * FROM s.t ORDER BY v").rows == ROWS
    assert lake.sql(f"SELECT * FROM s.t ORDER BY v AS OF {at}").rows == ROWS
    by_spark = make_lake(Path(lake.settings.warehouse), catalog_name=lake.settings.catalog_name, driver_diff_max_rows=0)
    came = [(at, 1, *row) for row in ROWS]
    for reader in (lake, by_spark):
        assert reader.sql(f"SUBSCRIBE s.t AS OF {at}").rows == came
        by_time = f"SUBSCRIBE s.t WITHIN TIMESTAMP ORDER BY changed_at DESC AS OF {at}"
        assert reader.sql(by_time).rows == came[::-1]
        computed = f"SUBSCRIBE s.t WITHIN TIMESTAMP ORDER BY date_add(d, 1) AS OF {at}"
        assert reader.sql(computed).rows == came
        upserts = reader.sql(f"SUBSCRIBE s.t ENVELOPE UPSERT (KEY (d)) AS OF {at}").rows
        assert upserts == [(at, "upsert", *row) for row in ROWS]
        filtered = f"SUBSCRIBE (SELECT d, v FROM s.t WHERE v >= 5) AS OF {at}"
        assert reader.sql(filtered).rows == [(at, 1, "+10000-01-01", 5), (at, 1, "+20232-01-01", 6)]
        later = f"SUBSCRIBE (SELECT d FROM s.t WHERE d > DATE '9999-12-31') AS OF {at}"
        assert reader.sql(later).rows == [(at, 1, "+10000-01-01"), (at, 1, "+20232-01-01")]
        ends = f"SUBSCRIBE (SELECT min(d) AS lowest, max(changed_at) AS highest FROM s.t) AS OF {at}"
        assert reader.sql(ends).rows == [(at, 1, "-0043-03-15", "+20232-01-01T23:59:59.999999")]
    (batch,) = lake.follow(f"SUBSCRIBE s.t AS OF {at} UP TO {at + 1}", Event())
    assert list(batch) == came
    snapshots: list[list[Any]] = []
    lake.durable("app", "SUBSCRIBE s.t").run(lambda rows: snapshots.append([r[1:] for r in rows]), lambda *_: None)
    assert snapshots == [[(1, *row) for row in ROWS]]


def test_deletes_and_updates_of_date_keys_are_found_even_in_partitions(make_lake: LakeFactory) -> None:
    lake = make_lake(foreign_lag_ms=0)
    at = written(lake, "PARTITIONED BY (d, days(n), hours(changed_at))")
    lake.sql("DELETE FROM s.t WHERE v = 0; UPDATE s.t SET v = 60 WHERE d = DATE '+20232-01-01'")
    rows = lake.sql(f"SUBSCRIBE s.t ENVELOPE UPSERT (KEY (d)) WITH (SNAPSHOT = false) AS OF {at}").rows
    nulls = (None,) * 5
    assert [row[1:] for row in rows] == [("delete", "-0043-03-15", *nulls), ("upsert", *ROWS[6][:-1], 60)]


def test_a_subscription_publishes_dates_beyond_python(make_lake: LakeFactory) -> None:
    lake = make_lake(foreign_lag_ms=0)
    written(lake)
    lake.sql("CREATE SUBSCRIPTION p INTO bi.out AS SUBSCRIBE s.t")
    lake.publish("p")
    assert lake.sql("SELECT * EXCEPT (mz_timestamp, mz_diff) FROM bi.out ORDER BY v").rows == ROWS


def test_every_output_writes_dates_beyond_python_as_iso_text(make_lake: LakeFactory) -> None:
    lake = make_lake(foreign_lag_ms=0)
    written(lake)
    result = lake.sql("SELECT d, changed_at, st, m FROM s.t WHERE v = 0")
    texts = {}
    for wanted in OutputFormat:
        stdout = io.StringIO()
        open_output(wanted, stdout, io.StringIO()).result(result)
        texts[wanted] = stdout.getvalue()
    assert json.loads(texts[OutputFormat.JSON]) == {
        "d": "-0043-03-15",
        "changed_at": "-0043-03-15T23:59:59.999999",
        "st": {"d": "-0043-03-15", "a": ["-0043-03-15T00:00:00", None]},
        "m": {"-0043-03-15": "-0043-03-15T12:00:00"},
    }
    assert texts[OutputFormat.CSV].splitlines()[1].startswith("-0043-03-15,-0043-03-15T23:59:59.999999,")
    assert "-0043-03-15" in texts[OutputFormat.TABLE]


@pytest.mark.parametrize("time_zone", ["Asia/Tokyo"], indirect=True)
@pytest.mark.usefixtures("time_zone")
def test_a_check_shows_dates_beyond_python(make_lake: LakeFactory, tmp_path: Path) -> None:
    lake = make_lake(foreign_lag_ms=0, expectations=str(tmp_path))
    written(lake)
    lake.sql("INSERT INTO s.t VALUES (DATE '+20232-01-01', NULL, NULL, NULL, NULL, 9)")
    verdict = lake.check("s.t")
    found = {(o.expectation.removeprefix("expect_"), o.column): (o.success, o.found) for o in verdict.outcomes}
    assert found["key_to_be_unique", "d"] == (False, "1 row")
    assert found["column_values_to_be_between", "changed_at"] == (False, "3 of 8 rows")
    page = Path(verdict.html_path).read_text()
    assert "+20232-01-01" in page
    stdout = io.StringIO()
    output = open_output(OutputFormat.JSON, stdout, io.StringIO())
    assert not run_check(lake, CheckRequest("s.t", None, None, None, writes_suite=False), output)
    (shown,) = (each for each in json.loads(stdout.getvalue())["failed"] if each["column"] == "changed_at")
    assert "+10000-01-01T23:59:59.999999" in shown["examples"]
    assert {"d": "+10000-01-01"} in shown["keys"]
    (between,) = (o for o in verdict.failed if o.column == "changed_at")
    assert {str(example) for example in between.examples} >= {"+10000-01-01T23:59:59.999999"}
    highest = {"type": "expect_column_max_to_be_between", "kwargs": {"column": "d", "max_value": "2030-01-01"}}
    (tmp_path / "s.t.json").write_text(json.dumps({"name": "s.t", "expectations": [highest]}))
    assert not lake.check("s.t").success


def test_a_process_in_another_zone_shows_the_same(make_lake: LakeFactory) -> None:
    lake = make_lake(foreign_lag_ms=0)
    lake.sql(
        "CREATE NAMESPACE s; CREATE TABLE s.i (k INT, at TIMESTAMP) USING iceberg; "
        f"INSERT INTO s.i VALUES (1, TIMESTAMP '{INFINITY}'), (2, TIMESTAMP '0001-01-01 00:00:00')"
    )
    ran = subprocess.run(
        [str(Path(sys.executable).with_name("lakehold")), "subscribe", "s.i", "--format", "csv"],
        env=os.environ
        | {
            "TZ": "America/New_York",
            "LAKEHOLD_WAREHOUSE": lake.settings.warehouse,
            "LAKEHOLD_CATALOG_NAME": lake.settings.catalog_name,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert [line.split(",", 2)[2] for line in ran.stdout.splitlines()[1:]] == [
        "1,9999-12-31T23:59:59.999999",
        "2,0001-01-01T00:00:00",
    ]
