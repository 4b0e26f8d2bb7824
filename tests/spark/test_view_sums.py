"""Views of sums of DOUBLE: their last digits depend on the order in which Spark adds, and so on how files are laid out."""

from __future__ import annotations

import pytest

from lakehold.errors import LakeholdError
from lakehold.lake import Lake
from tests.conftest import LakeFactory
from tests.published_shop import Shop

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(make_lake: LakeFactory) -> Lake:
    made = Shop(make_lake).lake
    made.sql("CREATE TABLE shop.paid (id INT, region STRING, amount DOUBLE)")
    made.sql(
        "INSERT INTO shop.paid VALUES (1, 'north', 0.3D), (2, 'north', 0.2D), (3, 'north', 0.1D), (4, 'south', 1D)"
    )
    return made


def sort_files(lake: Lake) -> None:
    lake.spark.sql(
        f"CALL {lake.settings.catalog_name}.system.rewrite_data_files(table => 'shop.paid', strategy => 'sort', "
        "sort_order => 'amount', options => map('rewrite-all', 'true'))"
    ).collect()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT region, sum(amount) AS total FROM shop.paid GROUP BY region",
        "SELECT sum(amount) AS total, array(region) AS regions FROM shop.paid GROUP BY regions",
    ],
)
def test_a_view_of_sums_continues_after_the_files_of_its_table_were_sorted(lake: Lake, query: str) -> None:
    lake.sql(f"CREATE MATERIALIZED VIEW bi.totals AS {query}")
    lake.publish("bi.totals")
    before = lake.sql(query).rows
    sort_files(lake)
    assert lake.sql(query).rows != before, "Spark adds in another order now"
    lake.sql("INSERT INTO shop.paid VALUES (5, 'north', 1D)")
    lake.publish("bi.totals")
    assert sorted(lake.sql("SELECT total FROM bi.totals").rows) == [(1.0,), (1.6,)]
    lake.sql("DELETE FROM shop.paid WHERE region = 'north'")
    lake.publish("bi.totals")
    assert lake.sql("SELECT total FROM bi.totals").rows == [(1.0,)]


def test_a_view_that_stops_because_of_a_sum_says_so_and_names_what_helps(lake: Lake) -> None:
    total = "sum({}) OVER (PARTITION BY region) AS total FROM shop.paid"
    lake.sql(f"CREATE MATERIALIZED VIEW bi.totals AS SELECT id, {total.format('amount')}")
    lake.sql(f"CREATE MATERIALIZED VIEW bi.keyed KEY (id) AS SELECT id, {total.format('amount')}")
    lake.sql(f"CREATE MATERIALIZED VIEW bi.exact AS SELECT id, {total.format('CAST(amount AS DECIMAL(10, 2))')}")
    for view in ("bi.keyed", "bi.exact", "bi.totals"):
        lake.publish(view)
    sort_files(lake)
    lake.sql("INSERT INTO shop.paid VALUES (5, 'north', 1D)")
    with pytest.raises(LakeholdError, match="lacks rows") as stopped:
        lake.publish("bi.totals")
    assert stopped.value.code == "view-differs"
    assert "sums of DOUBLE" in stopped.value.detail
    assert "KEY (column, …)" in stopped.value.hint
    assert "DECIMAL" in stopped.value.hint
    for view in ("bi.keyed", "bi.exact"):
        lake.publish(view)
        assert {float(row[0]) for row in lake.sql(f"SELECT total FROM {view}").rows} == {1.0, 1.6}
