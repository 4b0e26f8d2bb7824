"""Outputs that others change, drop or make unreachable while lakehold publishes to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lakehold.errors import DefinitionError, UpstreamUnavailable
from lakehold.failpoints import Point
from lakehold.publish.derived_table import DerivedTable
from lakehold.publish.follower import Follower
from lakehold.publish.history_table import HistoryTable
from lakehold.publish.output_table import OutputTable
from lakehold.publish.view_table import ViewTable
from lakehold.subscribe.subscription_opening import Opened
from lakehold.tables import write_audit_publish
from lakehold.times import now_ms
from tests.conftest import LakeFactory
from tests.published_shop import COLUMNS, DAY_MS, Shop

pytestmark = pytest.mark.spark

HISTORY = "CREATE SUBSCRIPTION s INTO bi.out {} AS SUBSCRIBE shop.t ENVELOPE HISTORY (KEY (id))"
RAW = "CREATE SUBSCRIPTION s INTO bi.out {} AS SUBSCRIBE shop.t"
VIEW = "CREATE MATERIALIZED VIEW bi.out {} KEY (id) AS SELECT * FROM shop.t"


@pytest.fixture
def shop(make_lake: LakeFactory) -> Shop:
    made = Shop(make_lake)
    made.write((1, "a"), (2, "b"))
    return made


def published(shop: Shop, create: str, options: str = "") -> str:
    """Create what publishes to `bi.out`, publish it, and return its name."""
    shop.lake.sql(create.format(options))
    name = "bi.out" if create is VIEW else "s"
    shop.lake.publish(name)
    return name


@pytest.mark.parametrize("create", [RAW, HISTORY, VIEW], ids=["raw", "history", "view"])
@pytest.mark.parametrize("change", ["RENAME COLUMN id TO order_id", "DROP COLUMN v", "REPLACE COLUMNS (id BIGINT)"])
def test_columns_of_outputs_are_not_changed_by_hand(shop: Shop, create: str, change: str) -> None:
    shop.lake.sql(create.format(""))
    with pytest.raises(DefinitionError) as refused:
        shop.lake.sql(f"ALTER TABLE bi.out {change}")
    assert refused.value.code == "table-published"


@pytest.mark.parametrize(("create", "column"), [(RAW, "mz_timestamp"), (HISTORY, "id"), (HISTORY, "valid_to")])
def test_an_output_that_lost_a_column_takes_nothing_until_it_has_it_again(shop: Shop, create: str, column: str) -> None:
    name = published(shop, create)
    rename = f"ALTER TABLE {shop.lake.settings.catalog_name}.bi.out RENAME COLUMN {{}} TO {{}}"
    shop.lake.spark.sql(rename.format(column, "other"))
    shop.write((1, "c"))
    with pytest.raises(DefinitionError) as refused:
        shop.lake.publish(name)
    assert (refused.value.code, column in str(refused.value)) == ("output-column-lost", True)
    shop.lake.spark.sql(rename.format("other", column))
    assert any(report.rows for report in shop.lake.publish(name))


def test_an_output_partitioned_by_another_column_takes_nothing_until_it_is_no_more(shop: Shop) -> None:
    name = published(shop, RAW)
    shop.lake.sql("ALTER TABLE bi.out ADD PARTITION FIELD bucket(8, id)")
    shop.write((1, "c"))
    with pytest.raises(DefinitionError) as refused:
        shop.lake.publish(name)
    assert refused.value.code == "output-partition"
    shop.lake.sql(refused.value.hint.partition(";")[0])
    shop.lake.publish(name)
    assert shop.output() == shop.expected()


def test_a_store_that_takes_no_file_is_an_error_that_ends_by_itself(shop: Shop) -> None:
    name = published(shop, RAW)
    data = Path(shop.lake.catalog.load_table("bi.out").location().removeprefix("file:")) / "data"
    data.rename(data.with_name("kept"))
    data.touch()
    shop.write((1, "c"))
    with pytest.raises(UpstreamUnavailable) as failed:
        shop.lake.publish(name)
    assert (failed.value.retryable, "bi.out" in failed.value.detail) == (True, True)
    data.unlink()
    data.with_name("kept").rename(data)
    shop.lake.publish(name)
    assert shop.output() == shop.expected()


@pytest.mark.parametrize("create", [RAW, HISTORY], ids=["raw", "history"])
def test_a_lost_file_of_an_output_is_named_and_not_taken_for_a_catalog_that_does_not_answer(
    shop: Shop, create: str
) -> None:
    name = published(shop, create, "WITH (RETAIN OUTPUT = '1 day')")
    snapshot = shop.lake.catalog.load_table("bi.out").current_snapshot()
    assert snapshot is not None
    lost = Path(snapshot.manifest_list.removeprefix("file:"))
    lost.rename(lost.with_suffix(".kept"))
    shop.write((3, "c"))
    with pytest.raises(DefinitionError) as unreadable:
        shop.lake.publish(name)
    assert (unreadable.value.code, lost.name in unreadable.value.detail) == ("table-unreadable", True)
    lost.with_suffix(".kept").rename(lost)
    assert any(report.rows for report in shop.lake.publish(name))


def test_ranges_are_removed_later_if_the_history_is_compacted_meanwhile(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = published(shop, HISTORY, "WITH (RETAIN OUTPUT = '1 day')")
    shop.write((1, "c"))
    shop.lake.publish(name)
    monkeypatch.setattr("lakehold.publish.publisher.reached_ms", lambda *_: now_ms() + 3 * DAY_MS)

    def compact(point: Point) -> None:
        if point == "before-publish":
            monkeypatch.undo()
            shop.lake.spark.sql(f"DELETE FROM {shop.lake.settings.catalog_name}.bi.out WHERE id = 2")

    monkeypatch.setattr(write_audit_publish, "failpoint", compact)
    assert shop.lake.publish(name) == []
    assert [row["id"] for row in history(shop)] == [1, 1]
    monkeypatch.setattr("lakehold.publish.publisher.reached_ms", lambda *_: now_ms() + 3 * DAY_MS)
    assert shop.lake.publish(name) == []
    assert [(row["id"], row["is_current"]) for row in history(shop)] == [(1, True)]


def test_a_suspended_publisher_whose_subscription_is_dropped_removes_no_ranges(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = published(shop, HISTORY, "WITH (RETAIN OUTPUT = '1 day')")
    shop.write((1, "c"))
    shop.lake.publish(name)
    kept = len(history(shop))
    monkeypatch.setattr("lakehold.publish.publisher.reached_ms", lambda *_: now_ms() + 3 * DAY_MS)

    def suspend(point: Point) -> None:
        if point == "before-publish":
            monkeypatch.undo()
            shop.lake.sql("DROP SUBSCRIPTION s")
            # Its lease has run out when it wakes up.
            monkeypatch.setattr("lakehold.state.lease.now_ms", lambda: now_ms() + DAY_MS)

    monkeypatch.setattr(write_audit_publish, "failpoint", suspend)
    with pytest.raises(DefinitionError) as gone:
        shop.lake.publish(name)
    assert gone.value.code == "subscriber-missing"
    assert len(history(shop)) == kept > 2


def test_ranges_are_removed_although_a_hold_is_on_an_earlier_table_of_the_name(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.lake.sql("CREATE NAMESPACE bi")
    shop.lake.catalog.create_table("bi.out", COLUMNS)
    shop.write((1, "a"), name="bi.out")
    shop.lake.sql("CREATE HOLD h ON bi.out")
    shop.lake.catalog.drop_table("bi.out")
    name = published(shop, HISTORY, "WITH (RETAIN OUTPUT = '1 day')")
    shop.write((1, "c"))
    shop.lake.publish(name)
    monkeypatch.setattr("lakehold.publish.publisher.reached_ms", lambda *_: now_ms() + 3 * DAY_MS)
    shop.lake.publish(name)
    assert sorted((row["id"], row["is_current"]) for row in history(shop)) == [(1, True), (2, True)]


def history(shop: Shop) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = shop.lake.catalog.load_table("bi.out").scan().to_arrow().to_pylist()
    return rows


@pytest.mark.parametrize(("create", "table"), [(RAW, OutputTable), (HISTORY, HistoryTable), (VIEW, ViewTable)])
def test_a_publisher_whose_object_is_dropped_while_it_creates_its_table_leaves_none(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, create: str, table: type[DerivedTable]
) -> None:
    shop.lake.sql(create.format(""))
    kind, name = ("MATERIALIZED VIEW", "bi.out") if create is VIEW else ("SUBSCRIPTION", "s")
    prepare = vars(table)["prepare"]

    def prepared(*arguments: object) -> object:
        monkeypatch.undo()
        shop.lake.sql(f"DROP {kind} {name} CASCADE")
        return prepare(*arguments)

    monkeypatch.setattr(table, "prepare", prepared)
    with pytest.raises(DefinitionError) as gone:
        shop.lake.publish(name)
    assert gone.value.code == "subscriber-missing"
    assert not shop.lake.catalog.table_exists("bi.out")
    published(shop, create)


@pytest.mark.parametrize("create", [RAW, HISTORY, VIEW], ids=["raw", "history", "view"])
def test_a_publisher_whose_object_is_dropped_during_its_first_publish_leaves_no_table(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, create: str
) -> None:
    shop.lake.sql(create.format(""))
    kind, name = ("MATERIALIZED VIEW", "bi.out") if create is VIEW else ("SUBSCRIPTION", "s")
    open_it = Follower.from_snapshot

    def opened(follower: Follower, as_of_ms: int) -> Opened:
        monkeypatch.undo()
        found = open_it(follower, as_of_ms)
        shop.lake.sql(f"DROP {kind} {name} CASCADE")
        return replace(found)

    monkeypatch.setattr(Follower, "from_snapshot", opened)
    with pytest.raises(DefinitionError) as gone:
        shop.lake.publish(name)
    assert gone.value.code == "subscriber-missing"
    assert not shop.lake.catalog.table_exists("bi.out")
    published(shop, create)
