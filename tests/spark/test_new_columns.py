"""Columns that appear with values in older rows, or under another name: late partitions, kills, repeats, and what is dropped.

The database is a stand-in, whose answer each test sets; the real ones are in `tests/integration/test_live_new_columns.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import IntegerType, LongType, StringType

from lakehold.definitions import Table
from lakehold.ingest import batch, source_opening
from lakehold.ingest.decode.placeholder import PLACEHOLDER
from lakehold.ingest.envelope.upstream_columns import InitialValues, UpstreamColumns
from lakehold.ingest.write import apply
from lakehold.ingest.write.writing import Writing
from lakehold.lake import Lake
from lakehold.tables.column_types import ColumnType
from tests.debezium_messages import Topic

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("jvm")]

LONG, TEXT, INT = {"type": "int64"}, {"type": "string"}, {"type": "int32"}


class Database:
    """A stand-in for the captured database: what it says of the table `orders`."""

    def __init__(self) -> None:
        self.numbers = {"id": 1, "v": 2}
        self.initial = InitialValues()
        self.questions = 0
        self.snapshots: list[str] = []

    def columns_of(self, _: Table) -> UpstreamColumns:
        self.questions += 1
        types = {"id": LongType(), "c": IntegerType()}
        columns = tuple(ColumnType(name, types.get(name, StringType())) for name in self.numbers)
        return UpstreamColumns(columns, ("id",), self.initial, self.numbers)


class Orders:
    """A topic of two partitions, and the table `shop.orders` over it."""

    def __init__(self, lake: Lake, directory: Path) -> None:
        self.lake, self.directory = lake, directory
        self.topic = Topic("orders", {"id": LONG, "v": TEXT})
        for partition, ids in enumerate(((1, 2), (3, 4))):
            self.topic.snapshot([{"id": i, "v": "a"} for i in ids], partition=partition)
        self.topic.write(directory)
        lake.sql(f"CREATE SOURCE shop FROM FILES '{directory}' FORMAT JSON")
        lake.sql("CREATE TABLE shop.orders FROM SOURCE shop (TOPIC 'orders') ENVELOPE DEBEZIUM")
        self.ingest()

    def ingest(self) -> None:
        self.topic.write(self.directory)
        for report in self.lake.ingest("shop"):
            for stop in report.stopped.values():
                raise stop

    def rows(self, columns: str = "*") -> list[tuple[Any, ...]]:
        return sorted(self.lake.sql(f"SELECT {columns} FROM {self.lake.settings.catalog_name}.shop.orders").rows)


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Database:
    found = Database()
    monkeypatch.setattr(source_opening, "no_columns", found.columns_of)
    return found


@pytest.fixture
def orders(lake: Lake, tmp_path: Path, database: Database) -> Orders:  # noqa: ARG001 - it is asked
    return Orders(lake, tmp_path / "topics")


def row(id_: int, v: str, **more: Any) -> dict[str, Any]:
    return {"id": id_, "v": v, **more}


def test_a_message_from_before_the_column_has_its_default_in_whichever_batch_it_comes(
    orders: Orders, database: Database
) -> None:
    assert database.questions == 1, "about the numbers of the first columns"
    database.numbers |= {"c": 3}
    database.initial = InitialValues({"c": 5})
    topic, old = orders.topic, dict(orders.topic.columns)
    topic.update(row(2, "a"), row(2, "before"))
    topic.columns = {**old, "c": INT}
    topic.update(row(1, "a", c=5), row(1, "b", c=None))
    orders.ingest()
    wanted = [(1, "b", None), (2, "before", 5), (3, "a", 5), (4, "a", 5)]
    assert orders.rows() == wanted
    topic.columns = old
    topic.update(row(3, "a"), row(3, "late"), partition=1)
    topic.create(row(9, "late"), partition=1)
    orders.ingest()
    assert orders.rows() == [*wanted[:2], (3, "late", 5), (4, "a", 5), (9, "late", 5)]
    assert database.questions == 2, "once, when the column appeared"


def test_a_row_that_changes_after_the_column_was_dropped_has_the_default_again(
    orders: Orders, database: Database
) -> None:
    database.numbers |= {"c": 3}
    database.initial = InitialValues({"c": 5})
    old = dict(orders.topic.columns)
    orders.topic.columns = {**old, "c": INT}
    orders.topic.update(row(1, "a", c=5), row(1, "b", c=6))
    orders.ingest()
    orders.topic.columns = old
    orders.topic.update(row(1, "b"), row(1, "c"))
    orders.ingest()
    assert orders.rows()[0] == (1, "c", 5)


def test_a_column_that_is_renamed_in_case_only_is_renamed_in_the_lake(orders: Orders, database: Database) -> None:
    topic = orders.topic
    for name, value in (("V", "upper"), ("v", "lower")):
        if name == "v":
            # Another process was killed after the first of the two renames that Spark needs.
            orders.lake.sql("ALTER TABLE shop.orders RENAME COLUMN V TO _lh_renamed_v")
        database.numbers = {"id": 1, name: 2}
        topic.columns = {"id": LONG, name: TEXT}
        topic.update({"id": 1, name: "a"}, {"id": 1, name: value})
        orders.ingest()
        fields = orders.lake.catalog.load_table("shop.orders").schema().fields
        assert [(field.name, field.field_id) for field in fields] == [("id", 1), (name, 2)]
        assert orders.rows()[:2] == [(1, value), (2, "a")]


class Killed(BaseException):
    """The process ends here; nothing that keeps tables apart catches it."""


def die() -> None:
    raise Killed


@pytest.mark.parametrize("point", ["after-intent", "after-evolution", "after-merge", "before-commit"])
def test_a_killed_batch_adds_and_renames_columns_once(
    orders: Orders, database: Database, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    database.numbers = {"id": 1, "w": 2, "c": 3}
    database.initial = InitialValues({"c": 5})
    orders.topic.update(row(2, "a"), row(2, "before"))
    orders.topic.columns = {"id": LONG, "w": TEXT, "c": INT}
    orders.topic.update({"id": 1, "w": "a", "c": 5}, {"id": 1, "w": "b", "c": 6})
    with monkeypatch.context() as patched:
        for module in (apply, batch):
            patched.setattr(module, "failpoint", lambda here: die() if here == point else None)
        with pytest.raises(Killed):
            orders.ingest()
    # What the database says by now is another thing.
    if point != "after-intent":
        database.initial = InitialValues({"c": 99})
    orders.ingest()
    assert orders.rows("id, w, c") == [(1, "b", 6), (2, "before", 5), (3, "a", 5), (4, "a", 5)]
    table = orders.lake.tables.table_state("shop.orders")
    assert table is not None
    assert {f.name: (f.field_id, f.initial_default) for f in table.schema.fields} == {
        "id": (1, None),
        "w": (2, None),
        "c": (3, 5),
    }


def test_a_killed_request_for_a_snapshot_is_made_again(
    orders: Orders, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.numbers |= {"c": 3}
    database.initial = InitialValues(unknown=frozenset({"c"}))
    orders.topic.columns = {**orders.topic.columns, "c": INT}
    orders.topic.update(row(1, "a", c=5), row(1, "b", c=6))

    def request(table: Table) -> None:
        database.snapshots.append(table.full_name)
        if len(database.snapshots) == 1:
            die()

    monkeypatch.setattr(source_opening, "Writing", lambda **given: Writing(**{**given, "snapshot_again": request}))
    with pytest.raises(Killed):
        orders.ingest()
    orders.ingest()
    assert database.snapshots == ["shop.orders", "shop.orders"]
    assert orders.rows() == [(1, "b", 6), *((i, "a", None) for i in (2, 3, 4))]
    orders.topic.update(row(1, "b", c=6), row(1, "c", c=7))
    orders.ingest()
    assert len(database.snapshots) == 2


def test_a_message_with_an_earlier_name_is_one_of_the_column_also_in_a_later_batch(
    orders: Orders, database: Database
) -> None:
    database.numbers = {"id": 1, "w": 2}
    topic = orders.topic
    old, topic.columns = topic.columns, {"id": LONG, "w": TEXT}
    topic.update({"id": 1, "w": "a"}, {"id": 1, "w": "b"})
    orders.ingest()
    assert orders.rows("id, w") == [(1, "b"), (2, "a"), (3, "a"), (4, "a")]
    topic.columns = old
    topic.update(row(3, "a"), row(3, "late"), partition=1)
    # PostgreSQL did not log a value that is stored outside of the row: the stored one stays.
    topic.update(row(4, "a"), row(4, PLACEHOLDER), partition=1)
    orders.ingest()
    topic.update(row(2, "a"), row(2, PLACEHOLDER))
    topic.columns = {"id": LONG, "w": TEXT}
    topic.update({"id": 1, "w": "b"}, {"id": 1, "w": "c"})
    orders.ingest()
    assert orders.rows() == [(1, "c"), (2, "a"), (3, "late"), (4, "a")]
    assert database.questions == 4, "each batch with the earlier name: the column might have it back"


def test_a_removal_from_before_a_column_with_a_default_finds_its_row_without_a_key(
    orders: Orders, database: Database
) -> None:
    loose = Topic("loose", {"id": LONG, "v": TEXT}, key=(), has_keys=False, has_orders=True)
    orders.lake.sql("CREATE TABLE shop.loose FROM SOURCE shop (TOPIC 'loose') ENVELOPE DEBEZIUM")
    loose.snapshot([{"id": 1, "v": "a"}, {"id": 2, "v": "a"}])
    loose.write(orders.directory)
    orders.ingest()
    loose.delete({"id": 1, "v": "a"})
    loose.columns["c"] = INT
    database.numbers, database.initial = {"id": 1, "v": 2, "c": 3}, InitialValues({"c": 5})
    loose.create({"id": 1, "v": "a", "c": 7})
    loose.write(orders.directory)
    orders.ingest()
    name = orders.lake.settings.catalog_name
    assert sorted(orders.lake.sql(f"SELECT * FROM {name}.shop.loose").rows) == [(1, "a", 7), (2, "a", 5)]
