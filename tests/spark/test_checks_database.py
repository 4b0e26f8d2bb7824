"""A suite may expect that a table equals its database: where that cannot be compared, it says why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakehold.errors import LakeholdError, UpstreamUnavailable
from lakehold.lake import Lake
from lakehold.quality.suites import EQUALS_DATABASE
from tests.conftest import LakeFactory

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(make_lake: LakeFactory, tmp_path: Path) -> Lake:
    lake = make_lake(foreign_lag_ms=50, expectations=str(tmp_path), upstream_timeout_ms=1_000)
    lake.sql("CREATE NAMESPACE s; CREATE TABLE s.orders (id BIGINT) USING iceberg; INSERT INTO s.orders VALUES (1)")
    return lake


def _expect(lake: Lake, **arguments: str) -> None:
    assert lake.settings.expectations is not None
    suite = {
        "name": "s.orders",
        "expectations": [
            {"type": "expect_table_row_count_to_equal", "kwargs": {"value": 1}},
            {"type": EQUALS_DATABASE, "kwargs": arguments},
        ],
    }
    (lake.settings.expectations / "s.orders.json").write_text(json.dumps(suite))


def test_a_table_that_no_database_feeds_does_not_meet_the_expectation(lake: Lake) -> None:
    _expect(lake)
    verdict = lake.check("s.orders")
    (failed,) = verdict.failed
    assert (failed.expectation, failed.expected) == (EQUALS_DATABASE, "the rows of its database")
    assert failed.found == 'not compared: "s.orders" is not captured from a database. No source feeds it.'
    assert verdict.statistics == {"evaluated": 2, "successful": 1, "failed": 1}
    assert "not compared: &#34;s.orders&#34; is not captured from a database." in Path(verdict.html_path).read_text()
    assert [check.is_comparison for check in lake.checks.kept.values()] == [False], "nothing was compared"


def test_a_database_that_does_not_answer_fails_the_expectation_alone(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOLD_SECRET_PG", "secret")
    lake.sql(
        "CREATE CONNECTION pg TO POSTGRES "
        "(HOST '127.0.0.1', PORT 1, USER 'reader', PASSWORD SECRET 'pg', DATABASE 'shop')"
    )
    _expect(lake, connection="pg", upstream="public.orders")
    (failed,) = lake.check("s.orders").failed
    assert failed.expected == "the rows of public.orders"
    assert failed.found.startswith("not compared: PostgreSQL at 127.0.0.1:1 does not answer.")
    with pytest.raises(UpstreamUnavailable, match=r"PostgreSQL at 127\.0\.0\.1:1 does not answer"):
        lake.verify("s.orders", connection="pg", upstream="public.orders")


def test_the_past_is_not_compared_and_wrong_arguments_are_an_error(lake: Lake) -> None:
    _expect(lake)
    first_ms = lake.catalog.load_table("s.orders").metadata.snapshot_log[-1].timestamp_ms
    lake.sql("INSERT INTO s.orders VALUES (2)")
    (failed,) = lake.check("s.orders", at_ms=first_ms).failed
    assert failed.found == "not compared: a database shows the present only, and this is a time in the past"
    _expect(lake, table="public.orders")
    with pytest.raises(LakeholdError, match="the suite cannot be used") as wrong:
        lake.check("s.orders")
    assert f'Expectation 2, "{EQUALS_DATABASE}"' in wrong.value.detail
