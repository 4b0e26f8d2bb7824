"""Views of sums of DOUBLE: their last digits depend on the order in which Spark adds, and so on how files are laid out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

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


def create(lake: Lake, queries: Mapping[str, str]) -> None:
    for name, query in queries.items():
        lake.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    publish(lake, queries)


def publish(lake: Lake, names: Iterable[str]) -> None:
    for name in names:
        lake.publish(name)


QUERIES_WITH_KEY = {
    "bi.totals": "SELECT region, sum(amount) AS total FROM shop.paid GROUP BY region",
    "bi.totals_of_arrays": "SELECT sum(amount) AS total, array(region) AS regions FROM shop.paid GROUP BY regions",
}


def test_views_of_sums_continue_after_the_files_of_their_table_were_sorted(lake: Lake) -> None:
    create(lake, QUERIES_WITH_KEY)
    before = {query: lake.sql(query).rows for query in QUERIES_WITH_KEY.values()}
    sort_files(lake)
    assert all(lake.sql(query).rows != rows for query, rows in before.items()), "Spark adds in another order now"
    lake.sql("INSERT INTO shop.paid VALUES (5, 'north', 1D)")
    publish(lake, QUERIES_WITH_KEY)
    for name in QUERIES_WITH_KEY:
        assert sorted(lake.sql(f"SELECT total FROM {name}").rows) == [(1.0,), (1.6,)], name
    lake.sql("DELETE FROM shop.paid WHERE region = 'north'")
    publish(lake, QUERIES_WITH_KEY)
    for name in QUERIES_WITH_KEY:
        assert lake.sql(f"SELECT total FROM {name}").rows == [(1.0,)], name


QUERIES_WITHOUT_KEY = {
    "bi.windows": "SELECT id, sum(amount) OVER (PARTITION BY region) AS total FROM shop.paid",
    "bi.equal_rows": "SELECT region, avg(amount) OVER (PARTITION BY region) AS total FROM shop.paid",
    "bi.numbers": "SELECT amount, sum(amount) OVER (PARTITION BY region) AS total FROM shop.paid",
    "bi.groups_of_subquery": """
        SELECT upper(region) AS region, total, rounded FROM (
            SELECT region, sum(amount) AS total, CAST(sum(amount) AS FLOAT) AS rounded FROM shop.paid GROUP BY region)
    """,
    "bi.zeros": "SELECT region, sum(amount) OVER (PARTITION BY region) - 0.6D AS left FROM shop.paid",
    "bi.computed_whole": "SELECT region, total, n FROM (SELECT region, sum(amount) AS total FROM shop.paid GROUP BY region) "
    "FULL JOIN (SELECT 1 AS n) ON true",
}


def rounded(lake: Lake, query: str) -> Counter[tuple[object, ...]]:
    return Counter(
        tuple(round(value, 5) + 0.0 if isinstance(value, float) else value for value in row)
        for row in lake.sql(query).rows
    )


def test_views_without_a_key_continue_too(lake: Lake) -> None:
    create(lake, QUERIES_WITHOUT_KEY)
    before = {query: Counter(lake.sql(query).rows) for query in QUERIES_WITHOUT_KEY.values()}
    sort_files(lake)
    for query, rows in before.items():
        assert Counter(lake.sql(query).rows) != rows, "Spark adds in another order now"
    for change in (
        "INSERT INTO shop.paid VALUES (5, 'north', 1D)",
        "DELETE FROM shop.paid WHERE region = 'north' AND id < 5",
    ):
        publish(lake, QUERIES_WITHOUT_KEY)
        lake.sql(change)
        publish(lake, QUERIES_WITHOUT_KEY)
        for name, query in QUERIES_WITHOUT_KEY.items():
            assert rounded(lake, f"SELECT * FROM {name}") == rounded(lake, query), name
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
