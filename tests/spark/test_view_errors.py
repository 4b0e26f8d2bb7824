"""Views whose query fails at some timestamps, or while they are followed: they go on as soon as the query can be computed."""

from __future__ import annotations

from threading import Event

import pytest

from lakehold.errors import DefinitionError, LakeholdError
from tests.conftest import LakeFactory
from tests.published_shop import Shop

pytestmark = pytest.mark.spark


@pytest.fixture
def shop(make_lake: LakeFactory) -> Shop:
    made = Shop(make_lake)
    made.write((1, "1"), (2, "2"))
    return made


FAILING = {
    "bi.numbers": "SELECT id, CAST(v AS INT) AS n FROM shop.t",
    "bi.sums": "SELECT id % 2 AS k, sum(CAST(v AS INT)) AS n FROM shop.t GROUP BY 1",
    "bi.shares": "SELECT a.id, 100 / length(b.v) AS n FROM shop.t a JOIN shop.t b ON a.id = b.id",
}


def test_a_value_that_the_query_cannot_compute_stops_a_view_until_it_is_corrected(shop: Shop) -> None:
    lake = shop.lake
    for name, query in FAILING.items():
        lake.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        lake.publish(name)
    shop.write((3, ""))
    for name in FAILING:
        with pytest.raises(LakeholdError) as failed:
            lake.publish(name)
        assert failed.value.code in ("CAST_INVALID_INPUT", "DIVIDE_BY_ZERO"), name
    assert {row[3] for row in lake.sql("SHOW MATERIALIZED VIEWS").rows} == {"stopped"}
    shop.write((3, "3"), (4, "4"))
    shop.write((1, None))
    for name in FAILING:
        assert len(lake.publish(name)) == 1, name
        assert lake.verify(name).is_equal, name
    shop.write((5, "5"))
    shop.write((6, "6"))
    # Each timestamp is shown again.
    assert len(lake.publish("bi.numbers")) > 1
    assert lake.verify("bi.numbers").is_equal
    assert {row[3] for row in lake.sql("SHOW MATERIALIZED VIEWS").rows} == {"idle"}


def test_a_view_that_is_followed_names_the_column_that_its_table_lost(shop: Shop) -> None:
    lake, stop = shop.lake, Event()
    lake.sql("CREATE MATERIALIZED VIEW bi.named AS SELECT id, upper(v) AS v FROM shop.t")
    reports = lake.publications("bi.named", stop)
    next(reports)
    lake.sql("ALTER TABLE shop.t RENAME COLUMN v TO w; DELETE FROM shop.t WHERE id = 2")
    with pytest.raises(DefinitionError, match="has other columns than its table") as stopped:
        next(reports)
    assert stopped.value.code == "view-columns"
    assert "`v`" in stopped.value.detail
    lake.sql("ALTER TABLE shop.t RENAME COLUMN w TO v")
    lake.publish("bi.named")
    assert lake.verify("bi.named").is_equal
