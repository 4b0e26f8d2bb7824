"""Views of sums of DOUBLE: their last digits depend on the order in which Spark adds, and so on how files are laid out."""

from __future__ import annotations

from collections import Counter

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


QUERIES_WITHOUT_KEY = {
    "windows": "SELECT id, sum(amount) OVER (PARTITION BY region) AS total FROM shop.paid",
    "equal rows": "SELECT region, avg(amount) OVER (PARTITION BY region) AS total FROM shop.paid",
    "numbers alone": "SELECT amount, sum(amount) OVER (PARTITION BY region) AS total FROM shop.paid",
    "groups of a subquery": """
        SELECT upper(region) AS region, total, rounded FROM (
            SELECT region, sum(amount) AS total, CAST(sum(amount) AS FLOAT) AS rounded FROM shop.paid GROUP BY region)
    """,
    "zeros": "SELECT region, sum(amount) OVER (PARTITION BY region) - 0.6D AS left FROM shop.paid",
    "computed whole": "SELECT region, total, n FROM (SELECT region, sum(amount) AS total FROM shop.paid GROUP BY region) "
    "FULL JOIN (SELECT 1 AS n) ON true",
}


def rounded(lake: Lake, query: str) -> Counter[tuple[object, ...]]:
    return Counter(
        tuple(round(value, 5) + 0.0 if isinstance(value, float) else value for value in row)
        for row in lake.sql(query).rows
    )


@pytest.mark.parametrize("query", QUERIES_WITHOUT_KEY)
def test_a_view_without_a_key_continues_too(lake: Lake, query: str) -> None:
    text = QUERIES_WITHOUT_KEY[query]
    lake.sql(f"CREATE MATERIALIZED VIEW bi.totals AS {text}")
    lake.publish("bi.totals")
    before = Counter(lake.sql(text).rows)
    sort_files(lake)
    assert Counter(lake.sql(text).rows) != before, "Spark adds in another order now"
    for change in (
        "INSERT INTO shop.paid VALUES (5, 'north', 1D)",
        "DELETE FROM shop.paid WHERE region = 'north' AND id < 5",
    ):
        lake.publish("bi.totals")
        lake.sql(change)
        lake.publish("bi.totals")
        assert rounded(lake, "SELECT * FROM bi.totals") == rounded(lake, text)
        sort_files(lake)


def test_a_view_whose_rows_another_program_removed_stops_and_names_what_helps(lake: Lake) -> None:
    lake.sql(
        "CREATE MATERIALIZED VIEW bi.totals AS SELECT id, sum(amount) OVER (PARTITION BY region) AS total FROM shop.paid"
    )
    lake.publish("bi.totals")
    lake.spark.sql(f"DELETE FROM {lake.settings.catalog_name}.bi.totals WHERE id = 1").collect()
    lake.sql("DELETE FROM shop.paid WHERE id = 1")
    with pytest.raises(LakeholdError, match="lacks rows") as stopped:
        lake.publish("bi.totals")
    assert stopped.value.code == "view-differs"
    assert "another program" in stopped.value.detail
    assert "collect_list" in stopped.value.detail
    assert "KEY (column, …)" in stopped.value.hint
