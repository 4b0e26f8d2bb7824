"""Materialized views and ranges over random histories of tables equal their queries, however publishing divides them."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from tests.conftest import LakeFactory
from tests.history_tables import assert_shows
from tests.materialized_views import assert_equal_at_every_timestamp
from tests.random_histories import FORMATS, ROW_CHANGES, Change, History

pytestmark = pytest.mark.spark

TABLES = ("s.t", "s.u")
REFRESH: Change = ("refresh", None)
VIEWS = {
    "bi.row_by_row": ("", "SELECT v, k % 2 AS odd FROM s.t WHERE k < 4"),
    "bi.joined": ("", "SELECT t.v AS one, u.v AS other FROM s.t t LEFT JOIN s.u u ON t.k = u.k"),
    "bi.by_key": ("KEY (k)", "SELECT k, count(*) AS n, max(v) AS highest FROM s.t GROUP BY k"),
    "bi.null_keys": ("KEY (v)", "SELECT v, count(*) AS n FROM s.u GROUP BY v"),
}
HISTORY = "SELECT k, max(v) AS v FROM s.t GROUP BY k"
HISTORIES = st.lists(
    st.tuples(st.sampled_from(TABLES), st.one_of(ROW_CHANGES, ROW_CHANGES, st.just(REFRESH))), min_size=8, max_size=12
)


@settings(
    max_examples=1,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(changes=HISTORIES, layout=FORMATS)
def test_views_over_random_histories_equal_their_queries(
    make_lake: LakeFactory, changes: list[tuple[str, Change]], layout: tuple[int, str]
) -> None:
    lake = make_lake(foreign_lag_ms=0)
    lake.spark.sql(f"CREATE NAMESPACE {lake.settings.catalog_name}.s")
    histories = {name: History(lake, name, False) for name in TABLES}
    for history in histories.values():
        history.create(*layout)
        history.apply(("insert", [(0, 0), (1, 1), (1, None), (2, None)]))
    for name, (key, query) in VIEWS.items():
        lake.sql(f"CREATE MATERIALIZED VIEW {name} {key} AS {query}")
    lake.sql(f"CREATE SUBSCRIPTION h INTO bi.h AS SUBSCRIBE ({HISTORY}) ENVELOPE HISTORY (KEY (k))")
    for table, change in [*changes, (TABLES[0], REFRESH)]:
        note(f"{table}: {change}")
        if change != REFRESH:
            histories[table].apply(change)
            continue
        for name in (*VIEWS, "h"):
            lake.publish(name)
    for name, (_, query) in VIEWS.items():
        assert assert_equal_at_every_timestamp(lake, name, query, [t for t in TABLES if t in query]) >= 1
    assert assert_shows(lake, "bi.h", HISTORY, [version.mz_timestamp for version in histories["s.t"].versions]) >= 1
