"""Views and histories of -0.0 and 0.0, which diffs take for the same value: their tables do, too."""

from __future__ import annotations

from collections import Counter

import pytest

from lakehold.lake import Lake
from tests.conftest import LakeFactory
from tests.history_tables import ranges
from tests.published_shop import Shop

pytestmark = pytest.mark.spark

VIEWS = {
    "bi.plain": ("", "SELECT f FROM shop.z"),
    "bi.nested": ("", "SELECT nested, m FROM shop.z"),
    "bi.keyed": ("KEY (f)", "SELECT f, count(*) AS n FROM shop.z GROUP BY f"),
    "bi.kept": ("KEY (f) WITH (ON KEY VIOLATION = 'keep')", "SELECT f, id FROM shop.z"),
}


def value(zero: str) -> str:
    return f"{zero}, named_struct('a', array({zero})), map('k', {zero})"


@pytest.fixture
def lake(make_lake: LakeFactory) -> Lake:
    made = Shop(make_lake).lake
    made.sql("CREATE TABLE shop.z (id INT, f DOUBLE, nested STRUCT<a: ARRAY<DOUBLE>>, m MAP<STRING, DOUBLE>)")
    return made


def publish(lake: Lake, *names: str) -> None:
    for name in names:
        lake.publish(name)


def test_a_row_whose_zero_changed_its_sign_leaves_a_view_with_its_row(lake: Lake) -> None:
    lake.sql(f"INSERT INTO shop.z VALUES (1, {value('0.0D')}), (3, {value('1.0D')})")
    for name, (clauses, query) in VIEWS.items():
        lake.sql(f"CREATE MATERIALIZED VIEW {name} {clauses} AS {query}")
    publish(lake, *VIEWS)
    negative = "f = -0.0D, nested = named_struct('a', array(-0.0D)), m = map('k', -0.0D)"
    lake.sql(f"UPDATE shop.z SET {negative} WHERE id = 1")
    publish(lake, *VIEWS)
    for name in VIEWS:
        assert lake.verify(name).is_equal, name
    lake.sql(f"INSERT INTO shop.z VALUES (2, {value('0.0D')}), (4, {value('-0.0D')})")
    lake.sql("DELETE FROM shop.z WHERE id = 1")
    publish(lake, *VIEWS)
    violations = {row[0]: row[-2] for row in lake.sql("SHOW MATERIALIZED VIEWS").rows}
    assert violations["bi.kept"] == 1, "rows 2 and 4 have one key"
    lake.sql("DELETE FROM shop.z WHERE id <> 3")
    publish(lake, *VIEWS)
    for name in VIEWS:
        assert lake.verify(name).is_equal, name
        assert lake.sql(f"SELECT count(*) FROM {name}").rows == [(1,)]


TEXTS = {
    "bi.texts": ("", "SELECT id, CAST(f AS STRING) AS f, to_json(o) AS o, to_json(nested) AS n FROM shop.z"),
    "bi.joined": (
        "",
        "SELECT a.id, CAST(a.f AS STRING) AS f, to_json(b.o) AS o FROM shop.z a JOIN shop.z b ON a.id = b.id",
    ),
    "bi.grouped": ("KEY (id)", "SELECT id, max(CAST(f AS STRING)) AS f, max(to_json(o)) AS o FROM shop.z GROUP BY id"),
    "bi.windows": ("", "SELECT id, max(to_json(o)) OVER (PARTITION BY id) AS o FROM shop.z"),
}


def test_views_of_what_a_query_makes_of_equal_values_follow_it(lake: Lake) -> None:
    lake.sql("ALTER TABLE shop.z ADD COLUMN o MAP<STRING, INT>")
    lake.sql(f"INSERT INTO shop.z VALUES (1, {value('0.0D')}, map('a', 1, 'b', 2)), (2, {value('1.0D')}, map('c', 3))")
    for name, (clauses, query) in TEXTS.items():
        lake.sql(f"CREATE MATERIALIZED VIEW {name} {clauses} AS {query}")
    publish(lake, *TEXTS)
    changes = [
        f"INSERT INTO shop.z VALUES (3, {value('0.0D')}, map()), (3, {value('-0.0D')}, map())",
        "UPDATE shop.z SET f = -0.0D, o = map('b', 2, 'a', 1) WHERE id = 1",
        "UPDATE shop.z SET nested = named_struct('a', array(-0.0D)) WHERE id = 1",
        "DELETE FROM shop.z WHERE id = 1",
    ]
    for change in changes:
        lake.sql(change)
        publish(lake, *TEXTS)
        for name, (_, query) in TEXTS.items():
            assert Counter(lake.sql(f"SELECT * FROM {name}").rows) == Counter(lake.sql(query).rows), (change, name)


def test_a_history_ends_the_range_of_a_key_whose_zero_changed_its_sign(lake: Lake) -> None:
    lake.sql(f"INSERT INTO shop.z VALUES (1, {value('0.0D')})")
    lake.sql("CREATE SUBSCRIPTION s INTO bi.history AS SUBSCRIBE (SELECT f, id FROM shop.z) ENVELOPE HISTORY (KEY (f))")
    publish(lake, "s")
    lake.sql("UPDATE shop.z SET f = -0.0D")
    lake.sql("UPDATE shop.z SET id = 2")
    publish(lake, "s")
    found = ranges(lake, "bi.history")
    assert [row[1] for row in found] == [1, 2]
    assert [row[-1] is None for row in found] == [False, True]
    lake.sql("DELETE FROM shop.z")
    publish(lake, "s")
    assert [row[-1] is None for row in ranges(lake, "bi.history")] == [False, False]
