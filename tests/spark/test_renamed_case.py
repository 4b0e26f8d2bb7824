"""Outputs of a table whose column was renamed in case only: their tables keep the column as they spell it."""

from __future__ import annotations

import pytest

from lakehold.errors import DefinitionError
from lakehold.lake import Lake
from tests.conftest import LakeFactory
from tests.history_tables import ranges
from tests.published_shop import Shop

pytestmark = pytest.mark.spark

OUTPUTS = {
    "raw": "SUBSCRIBE shop.t",
    "upserts": "SUBSCRIBE shop.t ENVELOPE UPSERT (KEY (id))",
    "both": "SUBSCRIBE shop.t ENVELOPE DEBEZIUM (KEY (id))",
    "history": "SUBSCRIBE shop.t ENVELOPE HISTORY (KEY (id)) TRACK (v)",
}


@pytest.fixture
def lake(make_lake: LakeFactory) -> Lake:
    shop = Shop(make_lake)
    shop.write((1, "a"))
    for name, statement in OUTPUTS.items():
        shop.lake.sql(f"CREATE SUBSCRIPTION {name} INTO bi.{name} AS {statement}")
        shop.lake.publish(name)
    return shop.lake


def rename(lake: Lake, column: str, to: str) -> None:
    """Rename a column in two steps: Spark takes names that differ in case for the same."""
    between = ".".join([*column.split(".")[:-1], "between"])
    lake.sql(
        f"ALTER TABLE shop.t RENAME COLUMN {column} TO between; ALTER TABLE shop.t RENAME COLUMN {between} TO {to}"
    )


def names(lake: Lake, name: str) -> list[str]:
    return [field.name for field in lake.catalog.load_table(f"bi.{name}").schema().fields]


def test_the_output_of_a_renamed_column_goes_on_in_its_column(lake: Lake) -> None:
    before = {name: names(lake, name) for name in OUTPUTS}
    rename(lake, "v", "V")
    rename(lake, "id", "Id")
    lake.sql("UPDATE shop.t SET v = 'b'")
    lake.sql("ALTER TABLE shop.t ADD COLUMN more INT")
    lake.sql("INSERT INTO shop.t VALUES (2, 'c', 3)")
    for name in OUTPUTS:
        lake.publish(name)
        added = {"both": ["before_more", "after_more"]}.get(name, ["more"])
        assert names(lake, name) == [*before[name], *added]
    assert sorted(lake.sql("SELECT id, v FROM bi.raw").rows) == [(1, "a"), (1, "a"), (1, "b"), (2, "c")]
    assert sorted(lake.sql("SELECT id, v, more FROM bi.upserts").rows, key=str) == [
        (1, "a", None),
        (1, "b", None),
        (2, "c", 3),
    ]
    assert sorted(lake.sql("SELECT id, before_v, after_v FROM bi.both").rows, key=str) == [
        (1, "a", "b"),
        (1, None, "a"),
        (2, None, "c"),
    ]
    assert [row[:2] for row in ranges(lake, "bi.history")] == [(1, "a"), (1, "b"), (2, "c")]


def test_a_field_of_a_struct_that_was_renamed_stops_the_output_and_both_are_named(lake: Lake) -> None:
    lake.sql("ALTER TABLE shop.t ADD COLUMN s STRUCT<a: ARRAY<STRUCT<b: INT>>>")
    lake.sql("UPDATE shop.t SET s = named_struct('a', array(named_struct('b', 1)))")
    for name in ("raw", "history"):
        lake.publish(name)
    rename(lake, "s.a.element.b", "B")
    lake.sql("UPDATE shop.t SET v = 'b'")
    for name in ("raw", "history"):
        with pytest.raises(DefinitionError) as refused:
            lake.publish(name)
        assert refused.value.code == "output-columns"
        assert "s.a.element.B is s.a.element.b in the table" in refused.value.detail
