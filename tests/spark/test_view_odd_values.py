"""Views and histories of values that Python cannot hold: dates after the year 9999, and text that is not UTF-8."""

from __future__ import annotations

import pytest

from lakehold.errors import LakeholdError
from lakehold.lake import Lake
from tests.conftest import LakeFactory
from tests.published_shop import Shop

pytestmark = pytest.mark.spark

ODD = "DATE '+12026-01-01', TIMESTAMP '+12026-01-01 00:00:00', CAST(X'FF41' AS STRING)"


@pytest.fixture
def lake(make_lake: LakeFactory) -> Lake:
    made = Shop(make_lake).lake
    made.sql("CREATE TABLE shop.odd (id INT, day DATE, at TIMESTAMP, v STRING)")
    made.sql(f"INSERT INTO shop.odd VALUES (1, {ODD}), (2, NULL, NULL, 'b')")
    return made


@pytest.mark.parametrize(
    ("key", "shown"), [("day", "+12026-01-01"), ("at", "+12026-01-01T00:00:00"), ("v", "\N{REPLACEMENT CHARACTER}A")]
)
def test_a_key_with_several_rows_is_shown_whatever_its_value(lake: Lake, key: str, shown: str) -> None:
    query = f"SELECT {key}, id FROM shop.odd"
    lake.sql("DELETE FROM shop.odd WHERE id = 1")
    lake.sql(f"CREATE MATERIALIZED VIEW bi.v KEY ({key}) AS {query}")
    lake.sql(f"CREATE SUBSCRIPTION s INTO bi.history AS SUBSCRIBE ({query}) ENVELOPE HISTORY (KEY ({key}))")
    for follower in ("bi.v", "s"):
        lake.publish(follower)
    lake.sql(f"INSERT INTO shop.odd VALUES (3, {ODD}), (4, {ODD})")
    for follower, code in (("bi.v", "view-key"), ("s", "history-key")):
        with pytest.raises(LakeholdError) as refused:
            lake.publish(follower)
        assert refused.value.code == code
        assert f"the key ({shown})" in refused.value.detail
    lake.sql("DELETE FROM shop.odd WHERE id = 3")
    lake.publish("bi.v")
    assert lake.verify("bi.v").is_equal


def test_rows_leave_a_view_whatever_their_values(lake: Lake) -> None:
    for name, clauses in (("bi.rows", ""), ("bi.keyed", "KEY (v)")):
        lake.sql(f"CREATE MATERIALIZED VIEW {name} {clauses} AS SELECT v, day, at FROM shop.odd")
        lake.publish(name)
    lake.sql("DELETE FROM shop.odd WHERE id = 1")
    for name in ("bi.rows", "bi.keyed"):
        lake.publish(name)
        assert lake.sql(f"SELECT v FROM {name}").rows == [("b",)]
