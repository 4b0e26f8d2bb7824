"""Views of tables whose columns change: what can be followed is followed, anything else stops the view alone."""

from __future__ import annotations

from threading import Event

import pytest

from lakehold.errors import DefinitionError
from tests.conftest import LakeFactory
from tests.history_tables import ranges
from tests.materialized_views import assert_equal_at_every_timestamp
from tests.published_shop import Shop

pytestmark = pytest.mark.spark

JOINED = "SELECT b.*, a.v AS other FROM shop.t a JOIN shop.t b ON a.id = b.id"


@pytest.fixture
def shop(make_lake: LakeFactory) -> Shop:
    made = Shop(make_lake)
    made.write((1, "a"), (2, "b"))
    return made


def columns(shop: Shop, view: str) -> dict[str, str]:
    return {field.name: str(field.field_type) for field in shop.lake.catalog.load_table(view).schema().fields}


def test_added_and_wider_columns_are_followed(shop: Shop) -> None:
    lake = shop.lake
    lake.sql(f"""
        ALTER TABLE shop.t ADD COLUMN price INT;
        CREATE MATERIALIZED VIEW bi.everything KEY (id) AS SELECT * FROM shop.t;
        CREATE MATERIALIZED VIEW bi.rows AS {JOINED};
        CREATE MATERIALIZED VIEW bi.named AS SELECT id FROM shop.t;
    """)
    views = ("bi.everything", "bi.rows", "bi.named")
    for view in views:
        lake.publish(view)
    lake.sql("INSERT INTO shop.t VALUES (3, 'c', 1)")
    lake.sql("ALTER TABLE shop.t ADD COLUMN more STRING; ALTER TABLE shop.t ALTER COLUMN price TYPE BIGINT")
    lake.sql("INSERT INTO shop.t VALUES (9, 'z', 3000000000, 'm')")
    lake.sql("UPDATE shop.t SET more = 'n', v = 'y' WHERE id = 1")
    lake.sql("DELETE FROM shop.t WHERE id = 3")
    for view in views:
        lake.publish(view)
        assert lake.verify(view).is_equal
    assert columns(shop, "bi.everything") == {"id": "long", "v": "string", "price": "long", "more": "string"}
    assert list(columns(shop, "bi.rows")) == ["id", "v", "price", "other", "more"]
    assert columns(shop, "bi.named") == {"id": "long"}
    assert_equal_at_every_timestamp(lake, "bi.named", "SELECT id FROM shop.t")


@pytest.mark.parametrize("change", ["DROP COLUMN v", pytest.param("RENAME COLUMN v TO w", marks=pytest.mark.soak)])
def test_a_view_that_lost_a_column_stops_alone_with_a_way_out(shop: Shop, change: str) -> None:
    lake = shop.lake
    stopping = {
        "bi.plain": "SELECT id, v FROM shop.t",
        "bi.starred": "SELECT * FROM shop.t",
        "bi.grouped": "SELECT v, count(*) AS n FROM shop.t GROUP BY v",
        "bi.computed": "SELECT upper(v) AS v FROM shop.t",
        "bi.keyed": "SELECT * FROM shop.t",
    }
    for view, query in stopping.items():
        lake.sql(f"CREATE MATERIALIZED VIEW {view} {'KEY (v)' if view == 'bi.keyed' else ''} AS {query}")
    lake.sql("CREATE MATERIALIZED VIEW bi.named AS SELECT id FROM shop.t")
    for view in (*stopping, "bi.named"):
        lake.publish(view)
    lake.sql(f"ALTER TABLE shop.t {change}")
    lake.sql("DELETE FROM shop.t WHERE id = 2")
    for view in stopping:
        with pytest.raises(DefinitionError, match="has other columns than its table") as stopped:
            lake.publish(view)
        assert stopped.value.code == "view-columns"
        assert "v" in stopped.value.detail
        assert f"SHOW CREATE MATERIALIZED VIEW {view}" in stopped.value.hint
    states = {row[0]: row[3] for row in lake.sql("SHOW MATERIALIZED VIEWS").rows}
    assert states == {**dict.fromkeys(stopping, "stopped"), "bi.named": "idle"}
    lake.publish("bi.named")
    assert_equal_at_every_timestamp(lake, "bi.named", "SELECT id FROM shop.t")
    lake.sql("DROP MATERIALIZED VIEW bi.starred; CREATE MATERIALIZED VIEW bi.starred AS SELECT * FROM shop.t")
    lake.publish("bi.starred")
    assert lake.verify("bi.starred").is_equal


def test_a_view_may_have_columns_that_are_called_as_those_of_subscribe(shop: Shop) -> None:
    lake, named = shop.lake, "SELECT id AS mz_state, v AS mz_diff, id AS mz_timestamp, v AS after_mz_diff FROM shop.t"
    lake.sql(f"""
        CREATE MATERIALIZED VIEW bi.rows AS {named};
        CREATE MATERIALIZED VIEW bi.keyed KEY (mz_state) AS {named};
        CREATE MATERIALIZED VIEW bi.kept KEY (mz_diff) WITH (ON KEY VIOLATION = 'keep') AS {named};
        CREATE MATERIALIZED VIEW bi.counted KEY (mz_diff) AS SELECT v AS mz_diff, count(*) AS n FROM shop.t GROUP BY v;
        CREATE SUBSCRIPTION s INTO bi.history AS SUBSCRIBE ({named}) ENVELOPE HISTORY (KEY (mz_state));
    """)
    views = ("bi.rows", "bi.keyed", "bi.kept", "bi.counted")
    for changes in [(), ((1, "b"), (3, "c")), ((2, None),)]:
        shop.write(*changes)
        for name in (*views, "s"):
            lake.publish(name)
        for view in views:
            assert lake.verify(view).is_equal, view
    assert [row[:2] for row in ranges(lake, "bi.history") if row[-1] is None] == [(1, "b"), (3, "c")]


CHANGES = {
    "added again": "ALTER TABLE shop.t DROP COLUMN v; ALTER TABLE shop.t ADD COLUMN V STRING",
    "swapped": """
        ALTER TABLE shop.t RENAME COLUMN v TO x; ALTER TABLE shop.t RENAME COLUMN w TO v; ALTER TABLE shop.t RENAME COLUMN x TO w
    """,
    "inside": "ALTER TABLE shop.t DROP COLUMN s.a; ALTER TABLE shop.t ADD COLUMN s.a STRING",
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("follows", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_view_stops_when_a_name_of_its_query_belongs_to_another_column(
    shop: Shop, change: str, *, follows: bool
) -> None:
    lake, stop = shop.lake, Event()
    lake.sql("ALTER TABLE shop.t ADD COLUMNS (w STRING, s STRUCT<a: STRING, b: INT>)")
    lake.sql("UPDATE shop.t SET w = 'w', s = named_struct('a', v, 'b', 1)")
    stopping = {
        "bi.rows": ("", "SELECT id, s FROM shop.t" if change == "inside" else "SELECT id, v FROM shop.t"),
        "bi.keyed": ("KEY (id)", "SELECT * FROM shop.t"),
        "bi.bodies": ("", "SELECT id, to_json(struct(*)) AS body FROM shop.t"),
    }
    for name, (clauses, query) in stopping.items():
        lake.sql(f"CREATE MATERIALIZED VIEW {name} {clauses} AS {query}")
    lake.sql("CREATE MATERIALIZED VIEW bi.named AS SELECT id, count(*) AS n FROM shop.t GROUP BY id")
    views = [*stopping, "bi.named"]
    publishing = {name: lake.publications(name, stop if follows else None) for name in views}
    for reports in publishing.values():
        next(reports)
        if not follows:
            assert not list(reports)
    lake.sql(CHANGES[change])
    lake.sql("DELETE FROM shop.t WHERE id = 2")
    for name in stopping:
        reports = publishing[name] if follows else lake.publications(name)
        with pytest.raises(DefinitionError, match="has other columns than its table") as stopped:
            next(reports)
        assert stopped.value.code == "view-columns"
        assert f"have these names now: shop.t.{'s.a' if change == 'inside' else 'v'}" in stopped.value.detail
    next(publishing["bi.named"] if follows else lake.publications("bi.named"))
    assert lake.verify("bi.named").is_equal
    for name, (clauses, query) in stopping.items():
        lake.sql(f"DROP MATERIALIZED VIEW {name}; CREATE MATERIALIZED VIEW {name} {clauses} AS {query}")
        lake.publish(name)
        assert lake.verify(name).is_equal


STOPPING = {
    "bi.bodies": ("SELECT id, to_json(struct(*)) AS body FROM shop.t", "came or went: shop.t.gone, shop.t.total"),
    "bi.taxed": (
        "SELECT id, price * 2 AS total, total + 1 AS tax FROM shop.t",
        "uses for something else: shop.t.total",
    ),
    "bi.bought": (
        "SELECT id FROM shop.t WHERE EXISTS (SELECT 1 FROM shop.u WHERE u_id = id)",
        "uses for something else: shop.u.id",
    ),
    "bi.hashed": ("SELECT id, xxhash64(price) AS h FROM shop.t", "became wider: shop.t.price"),
    "bi.texts": ("SELECT id, CAST(weight AS STRING) AS w FROM shop.t", "became wider: shop.t.weight"),
}
FOLLOWING = {
    "bi.named": "SELECT id, price AS total FROM shop.t",
    "bi.sums": "SELECT v, sum(price) AS total, max(weight) AS most, avg(weight) AS mean FROM shop.t GROUP BY v",
    "bi.inner": "WITH x AS (SELECT * FROM shop.t) SELECT id, weight FROM x WHERE price > 0",
}


@pytest.mark.parametrize("follows", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_view_stops_when_changed_columns_give_its_older_rows_other_values(shop: Shop, *, follows: bool) -> None:
    lake, stop = shop.lake, Event()
    lake.sql("ALTER TABLE shop.t ADD COLUMNS (price INT, weight FLOAT, gone STRING)")
    lake.sql("UPDATE shop.t SET price = id, weight = CAST(0.1 AS FLOAT), gone = 'g'")
    lake.sql("CREATE TABLE shop.u (u_id BIGINT) USING iceberg; INSERT INTO shop.u VALUES (1)")
    queries = {**{name: query for name, (query, _) in STOPPING.items()}, **FOLLOWING}
    publishing = {}
    for name, query in queries.items():
        lake.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        publishing[name] = lake.publications(name, stop if follows else None)
        next(publishing[name])
        assert follows or not list(publishing[name])
    lake.sql("""
        ALTER TABLE shop.t DROP COLUMN gone;
        ALTER TABLE shop.t ADD COLUMN total INT;
        ALTER TABLE shop.t ALTER COLUMN price TYPE BIGINT;
        ALTER TABLE shop.t ALTER COLUMN weight TYPE DOUBLE;
        ALTER TABLE shop.u ADD COLUMN id BIGINT;
        INSERT INTO shop.t VALUES (3, 'a', 3, 1.5, 7)
    """)
    for name in queries:
        reports = publishing[name] if follows else lake.publications(name)
        if name in FOLLOWING:
            next(reports)
            assert lake.verify(name).is_equal, name
            continue
        with pytest.raises(DefinitionError, match="has other columns than its table") as stopped:
            next(reports)
        assert stopped.value.code == "view-columns"
        assert STOPPING[name][1] in stopped.value.detail
        assert "No change shows that older rows have other values" in stopped.value.detail
