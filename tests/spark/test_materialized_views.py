"""Materialized views: tables that equal their query at every timestamp, refreshed exactly once."""

from __future__ import annotations

from collections import Counter

import pytest

from lakehold.errors import DefinitionError, LakeholdError, LeaseLost, NotReadable
from lakehold.failpoints import Point
from lakehold.lake import Lake
from lakehold.publish import view_publisher
from lakehold.status import status_of
from lakehold.tables import write_audit_publish
from lakehold.times import iso
from tests.conftest import LakeFactory
from tests.materialized_views import Row, assert_equal_at_every_timestamp, shown
from tests.published_shop import COLUMNS, Killed, Shop

pytestmark = pytest.mark.spark

QUERIES = {
    "rows": ("", "SELECT id, upper(v) AS name FROM shop.t WHERE id < 100"),
    "by_key": ("KEY (id)", "SELECT id, upper(v) AS name FROM shop.t"),
    "counts": ("KEY (v)", "SELECT v, count(*) AS n, sum(id) AS total FROM shop.t GROUP BY v"),
    "equal_rows": ("", "SELECT length(v) AS n, v LIKE 'a%' AS is_a FROM shop.t"),
}


@pytest.fixture
def shop(make_lake: LakeFactory) -> Shop:
    made = Shop(make_lake)
    made.write((1, "a"), (2, "b"))
    return made


@pytest.mark.parametrize(
    "name", ["counts", "equal_rows", *(pytest.param(name, marks=pytest.mark.soak) for name in ("rows", "by_key"))]
)
def test_a_view_equals_its_query_at_every_timestamp(shop: Shop, name: str) -> None:
    key, query = QUERIES[name]
    shop.lake.sql(f"CREATE MATERIALIZED VIEW bi.v {key} AS {query}")
    (first,) = shop.lake.publish("bi.v")
    assert first.rows > 0
    shop.write((3, "a"), (1, "b"))
    shop.write((2, None))
    shop.lake.publish("bi.v")
    shop.write((4, "a"), (5, "a"), (6, "abc"))
    shop.write((4, None), (6, "a"))
    assert len(shop.lake.publish("bi.v")) > 1
    assert shop.lake.publish("bi.v") == []
    assert assert_equal_at_every_timestamp(shop.lake, "bi.v", query) >= 5


def view_status(lake: Lake) -> Row:
    """Return the first columns of the last row of `lakehold status`: views come last."""
    return status_of(lake).rows[-1][:6]


def test_a_view_is_a_table_for_select_subscribe_and_time(shop: Shop) -> None:
    lake = shop.lake
    lake.sql("CREATE MATERIALIZED VIEW bi.v KEY (v) AS SELECT v, count(*) AS n FROM shop.t GROUP BY v")
    with pytest.raises(NotReadable, match="not readable yet") as unread:
        lake.sql("SUBSCRIBE bi.v")
    assert unread.value.hint == "lakehold publish bi.v"
    assert view_status(lake) == ("bi.v", None, "view", None, None, 0)
    lake.publish("bi.v")
    shop.write((3, "a"))
    (row,) = lake.sql("SHOW MATERIALIZED VIEWS").rows
    assert row[:4] == ("bi.v", ["v"], ["shop.t"], "idle")
    before = lake.timelines.of(["bi.v"])["bi.v"].upper_ms
    lake.publish("bi.v")
    timeline = lake.timelines.of(["bi.v"])["bi.v"]
    assert timeline.upper_ms > before
    assert view_status(lake) == ("bi.v", None, "view", iso(timeline.since_ms), iso(timeline.upper_ms), 2)
    assert sorted(lake.sql("SELECT * FROM bi.v").rows) == [("a", 2), ("b", 1)]
    changes = lake.sql(f"SUBSCRIBE bi.v WITH (SNAPSHOT = false) AS OF {before - 1} UP TO {timeline.upper_ms}").rows
    net = Counter[Row]()
    for _, diff, *values in changes:
        net[tuple(values)] += diff
    assert {row: count for row, count in net.items() if count} == {("a", 1): -1, ("a", 2): 1}
    joined = f"SELECT t.id, v.n FROM shop.t JOIN bi.v ON t.v = v.v AS OF {timeline.upper_ms - 1}"
    assert sorted(lake.sql(joined).rows) == [(1, 2), (2, 1), (3, 2)]
    # Rows whose key stays keep their place: a refresh merges, and does not write the table again.
    current = lake.catalog.load_table("bi.v").current_snapshot()
    assert current is not None
    assert current.summary is not None
    assert int(current.summary.additional_properties["total-records"]) <= 4


def test_a_key_that_is_not_unique_stops_the_view_alone_and_shows_the_key(shop: Shop) -> None:
    lake = shop.lake
    lake.sql("CREATE MATERIALIZED VIEW bi.v KEY (v) AS SELECT v, id FROM shop.t")
    lake.sql("CREATE MATERIALIZED VIEW bi.w AS SELECT v, id FROM shop.t")
    lake.publish("bi.v")
    at_ms = lake.timelines.of(["bi.v"])["bi.v"].upper_ms - 1
    shop.write((3, "b"))
    with pytest.raises(LakeholdError, match="would have more than one row") as refused:
        lake.publish("bi.v")
    assert refused.value.code == "view-key"
    assert "the key (b)" in refused.value.detail
    assert shown(lake, "SELECT * FROM bi.v", at_ms) == Counter({("a", 1): 1, ("b", 2): 1})
    lake.publish("bi.w")
    assert_equal_at_every_timestamp(lake, "bi.w", "SELECT v, id FROM shop.t")


def test_views_over_views_are_refreshed_in_order_and_dropped_together(shop: Shop) -> None:
    lake = shop.lake
    lake.sql("""
        CREATE MATERIALIZED VIEW bi.b AS SELECT id, upper(v) AS v FROM shop.t;
        CREATE HOLD kept ON shop.t;
    """)
    lake.publish("bi.b")
    lake.sql("""
        CREATE MATERIALIZED VIEW bi.a KEY (v) AS SELECT v, count(*) AS n FROM bi.b GROUP BY v;
        CREATE SUBSCRIPTION s INTO bi.out AS SUBSCRIBE bi.a;
        CREATE HOLD of_view ON bi.b;
    """)
    shop.write((3, "a"), (2, None))
    (names,) = lake.subscriptions.together()
    assert names == ["bi.b", "bi.a", "s"]
    for name in names:
        lake.publish(name)
    query = "SELECT upper(v), count(*) FROM shop.t GROUP BY upper(v)"
    assert assert_equal_at_every_timestamp(lake, "bi.a", query) > 1
    with pytest.raises(DefinitionError, match="is still used") as used:
        lake.sql("DROP MATERIALIZED VIEW bi.b")
    assert used.value.detail == 'Used by subscription "s", materialized view "bi.a".'
    assert used.value.code == "materialized-view-in-use"
    lake.sql("DROP MATERIALIZED VIEW bi.b CASCADE")
    assert lake.sql("SHOW MATERIALIZED VIEWS").rows == lake.sql("SHOW SUBSCRIPTIONS").rows == []
    assert [hold.name for hold in lake.holds.all()] == ["kept"]
    assert [name for _, name in lake.catalog.list_tables("bi")] == ["out"]


def test_a_table_of_another_writer_is_dropped_with_all_that_reads_it(shop: Shop) -> None:
    lake = shop.lake
    lake.sql("""
        CREATE MATERIALIZED VIEW bi.b AS SELECT id, v FROM shop.t;
        CREATE SUBSCRIPTION s INTO bi.out AS SUBSCRIBE bi.b;
    """)
    lake.publish("bi.b")
    with pytest.raises(DefinitionError, match="is still used") as used:
        lake.sql("DROP TABLE shop.t")
    assert (used.value.code, used.value.detail) == (
        "table-in-use",
        'Used by subscription "s", materialized view "bi.b".',
    )
    explained = [text for (text,) in lake.sql("EXPLAIN DROP TABLE shop.t CASCADE").rows]
    assert explained[:2] == ["forget subscription s", "forget materialized view bi.b"]
    assert explained[-1] == "run on Spark: DROP TABLE shop.t"
    lake.sql("DROP TABLE shop.t CASCADE")
    assert lake.sql("SHOW MATERIALIZED VIEWS").rows == lake.sql("SHOW SUBSCRIPTIONS").rows == []
    assert not lake.holds.all()
    assert lake.catalog.list_tables("bi") == lake.catalog.list_tables("shop") == []


def test_a_hold_that_is_created_with_a_view_keeps_all_of_its_history(shop: Shop) -> None:
    lake = shop.lake
    lake.sql("""
        BEGIN;
        CREATE MATERIALIZED VIEW bi.v AS SELECT id FROM shop.t;
        CREATE HOLD of_view ON bi.v;
        COMMIT
    """)
    assert lake.holds.hold("of_view").at_ms is None
    lake.publish("bi.v")
    assert lake.holds.hold("of_view").at_ms == lake.timelines.of(["bi.v"])["bi.v"].since_ms
    shop.write((3, "c"))
    lake.publish("bi.v")
    held = lake.holds.hold("of_view").at_ms
    assert held is not None
    assert shown(lake, "SELECT * FROM bi.v", held) == Counter({(1,): 1, (2,): 1})
    tags = [name for name in lake.catalog.load_table("bi.v").metadata.refs if name != "main"]
    assert "hold_of_view" in tags
    assert any(name.startswith("mz_") for name in tags)
    with pytest.raises(DefinitionError, match="is held"):
        lake.sql("DROP MATERIALIZED VIEW bi.v")


@pytest.mark.parametrize("point", ["before-publication", "before-publish", "after-publication"])
def test_a_refresh_that_dies_is_finished_by_the_next_one(
    shop: Shop, point: Point, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, query = shop.lake, "SELECT v, id % 2 AS odd FROM shop.t"
    lake.sql(f"CREATE MATERIALIZED VIEW bi.v AS {query}")

    def failpoint(here: Point) -> None:
        if here == point:
            raise Killed

    for rows in ([], [(3, "a"), (1, "b")]):
        if rows:
            shop.write(*rows)
        with monkeypatch.context() as patched:
            patched.setattr(view_publisher, "failpoint", failpoint)
            patched.setattr(write_audit_publish, "failpoint", failpoint)
            with pytest.raises(Killed):
                lake.publish("bi.v")
        lake.publish("bi.v")
    assert assert_equal_at_every_timestamp(lake, "bi.v", query) > 2
    assert list(lake.catalog.load_table("bi.v").metadata.refs) == ["main"]


def test_a_refresh_whose_lease_was_taken_over_merges_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Suspend a refresh after it checked its lease, until another one has merged the same rows and more."""
    lake, query = shop.lake, "SELECT v, id % 2 AS odd FROM shop.t"
    lake.sql(f"CREATE MATERIALIZED VIEW bi.v AS {query}")
    lake.publish("bi.v")
    shop.write((3, "a"), (1, "b"))
    successor, published = shop.again(), [False]

    def succeeded(here: Point) -> None:
        if here == "before-publication" and not published[0]:
            published[0] = True
            store = lake.subscriptions.store
            (subscriber,) = store.subscribers()
            store.release(subscriber.subscriber_id, subscriber.lease.holder if subscriber.lease else "")
            assert successor.publish("bi.v")

    monkeypatch.setattr(view_publisher, "failpoint", succeeded)
    monkeypatch.setattr("lakehold.state.lease.HeldLease.confirm", lambda _: None)
    with pytest.raises(LeaseLost, match="another publisher"):
        lake.publish("bi.v")
    assert published[0]
    assert assert_equal_at_every_timestamp(lake, "bi.v", query) > 1


def test_a_view_survives_maintenance_that_commits_while_it_is_refreshed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, query = shop.lake, "SELECT v FROM shop.t"
    lake.sql(f"CREATE MATERIALIZED VIEW bi.v AS {query}")
    lake.publish("bi.v")
    compacted: list[int] = []

    def failpoint(here: Point) -> None:
        if here == "before-publish" and not compacted:
            compacted.append(1)
            name = lake.settings.catalog_name
            lake.spark.sql(
                f"CALL `{name}`.system.rewrite_data_files(table => 'bi.v', options => map('rewrite-all', 'true'))"
            )

    monkeypatch.setattr(write_audit_publish, "failpoint", failpoint)
    shop.write((3, "a"), (2, None))
    lake.publish("bi.v")
    assert compacted
    assert assert_equal_at_every_timestamp(lake, "bi.v", query) > 1


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("CREATE MATERIALIZED VIEW bi.v KEY (nothing) AS SELECT id FROM shop.t", "column-missing"),
        ("CREATE MATERIALIZED VIEW bi.v AS SELECT id, id FROM shop.t", "view-columns"),
        ("CREATE MATERIALIZED VIEW bi.v AS SELECT INTERVAL '1' DAY AS d FROM shop.t", "view-columns"),
        ("CREATE MATERIALIZED VIEW bi.v AS SELECT id FROM shop.missing", "table-missing"),
        ("CREATE MATERIALIZED VIEW bi.v AS SELECT id FROM bi.v", "view-name"),
        ("CREATE MATERIALIZED VIEW shop.t AS SELECT id FROM shop.u", "output-exists"),
        ("CREATE MATERIALIZED VIEW sys.v AS SELECT id FROM shop.t", "namespace-reserved"),
    ],
)
def test_a_view_that_cannot_be_is_refused_and_leaves_nothing(shop: Shop, statement: str, code: str) -> None:
    shop.lake.catalog.create_table("shop.u", COLUMNS)
    with pytest.raises(LakeholdError) as refused:
        shop.lake.sql(statement)
    assert refused.value.code == code
    assert shop.lake.sql("SHOW MATERIALIZED VIEWS").rows == []
    assert shop.lake.holds.all() == ()


def test_options_of_a_view_change_while_name_key_and_query_stay(shop: Shop) -> None:
    lake = shop.lake

    def text() -> str:
        return str(lake.sql("SHOW CREATE MATERIALIZED VIEW bi.v").rows[0][1])

    lake.sql("CREATE MATERIALIZED VIEW bi.v KEY (id) AS SELECT id FROM shop.t")
    created = text()
    lake.publish("bi.v")
    lake.sql(
        "ALTER MATERIALIZED VIEW bi.v SET (RETAIN HISTORY '2 days', MAX LAG '90m', ON LAPSE 'resnapshot', REFRESH 'latest')"
    )
    assert lake.holds.hold("view_bi_v").max_lag_ms == 90 * 60_000
    for option in ("RETAIN HISTORY '2d'", "MAX LAG '1h 30m'", "ON LAPSE 'resnapshot'", "REFRESH 'latest'"):
        assert option in text()
    shop.write((3, "a"))
    shop.write((4, "a"))
    (report,) = lake.publish("bi.v")
    assert report.timestamps == 1, "only the latest timestamp is shown"
    lake.sql("ALTER TABLE bi.v SET (RETAIN HISTORY '5 days')")
    assert "RETAIN HISTORY '5d'" in text()
    lake.sql("ALTER MATERIALIZED VIEW bi.v RESET (REFRESH, MAX LAG, RETAIN HISTORY, ON LAPSE)")
    assert text() == created
    assert lake.holds.hold("view_bi_v").max_lag_ms == lake.settings.default_max_lag_ms
    shop.write((5, "a"))
    shop.write((6, "a"))
    assert len(lake.publish("bi.v")) > 1, "each timestamp is shown"
    for statement, code, hint in [
        ("ALTER MATERIALIZED VIEW bi.v RENAME TO bi.w", "syntax", "create another view"),
        ("ALTER MATERIALIZED VIEW bi.v SET (FORMAT VERSION = 2)", "syntax", "the options here are"),
        ("ALTER MATERIALIZED VIEW bi.w SET (MAX LAG = '1h')", "materialized-view-missing", ""),
        ("ALTER MATERIALIZED VIEW bi.v SET (MAX LAG = '900 days', REFRESH = 'latest')", "hold-max-lag", "shorter"),
    ]:
        with pytest.raises(LakeholdError) as refused:
            lake.sql(statement)
        assert refused.value.code == code, statement
        assert hint in refused.value.hint
    assert text() == created


def test_a_view_cannot_be_changed_by_hand(shop: Shop) -> None:
    lake = shop.lake
    lake.sql("CREATE MATERIALIZED VIEW bi.v WITH (MAX LAG = '1 day') AS SELECT id FROM shop.t")
    for statement in ("INSERT INTO bi.v VALUES (1)", "DROP TABLE bi.v", "DELETE FROM bi.v", "DROP HOLD view_bi_v"):
        with pytest.raises(DefinitionError, match=r"materialized view|by hand"):
            lake.sql(statement)
    ((_, text),) = lake.sql("SHOW CREATE MATERIALIZED VIEW bi.v").rows
    assert text == "CREATE MATERIALIZED VIEW bi.v\n  WITH (MAX LAG '1d')\n  AS SELECT id FROM shop.t"
    lake.sql("DROP MATERIALIZED VIEW bi.v")
    assert lake.holds.all() == ()
