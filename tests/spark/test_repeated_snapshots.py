"""A table is snapshotted again after it missed changes: once the snapshot is fully read, rows it lacks are deleted once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lakehold.failpoints import Point
from lakehold.ingest.batch_report import BatchReport
from lakehold.ingest.write.repeats import RepeatedSnapshot, Snapshots
from lakehold.lake import Lake
from lakehold.model.offsets import TopicPartition
from lakehold.publish import view_publisher
from lakehold.tables import write_audit_publish
from tests.debezium_messages import Topic
from tests.materialized_views import assert_equal_at_every_timestamp
from tests.published_shop import publish_and_die

pytestmark = pytest.mark.spark

TABLES = {"s.whole": "DEBEZIUM", "s.latest": "DEBEZIUM UPSERT"}


class Killed(BaseException):
    """The death of the process."""


class Shop:
    """Two tables over one topic, whose connector can snapshot them again."""

    def __init__(self, lake: Lake, directory: Path) -> None:
        self.lake = lake
        self.topic = Topic("t", {"id": {"type": "int64"}, "name": {"type": "string"}})
        self._directory = directory
        self._complete: dict[str, RepeatedSnapshot] = {}
        lake.sql(f"CREATE SOURCE shop FROM FILES '{directory}' FORMAT JSON")
        declared = (f"CREATE TABLE {name} FROM SOURCE shop (TOPIC 't') ENVELOPE {how}" for name, how in TABLES.items())
        lake.sql(f"BEGIN; {'; '.join(declared)}; COMMIT")

    def request(self) -> Mapping[str, int]:
        """Return the tables' current sequence numbers by object id, as a request for a snapshot records them."""
        found = {}
        for name in TABLES:
            state = self.lake.tables.table_state(name)
            assert state is not None
            assert state.current is not None
            found[self.lake.definitions.definitions().table(name).object_id] = state.current.sequence_number
        return found

    def complete(self, signal_id: str, request: Mapping[str, int]) -> None:
        """Report for the connector that the requested snapshot is completely in the topic."""
        ends = {TopicPartition("t", partition): end for partition, end in self.topic.offsets.items()}
        self._complete = {
            object_id: RepeatedSnapshot(signal_id, through, ends) for object_id, through in request.items()
        }

    def ingest(self) -> list[BatchReport]:
        self.topic.write(self._directory)
        with self.lake._parts.ingesting.leased("shop") as ingesting:
            return list(replace(ingesting, snapshots=Snapshots(repeated=self._complete)).drain())

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows of the tables, which must be equal."""
        whole, latest = (self._rows(name) for name in TABLES)
        assert whole == latest
        return whole

    def _rows(self, name: str) -> list[tuple[Any, ...]]:
        return sorted(self.lake.sql(f"SELECT id, name FROM {self.lake.settings.catalog_name}.{name}").rows)


@pytest.fixture
def shop(lake: Lake, tmp_path: Path) -> Shop:
    """Return a shop with four rows."""
    shop = Shop(lake, tmp_path / "topics")
    shop.topic.snapshot([row(n, "a") for n in (1, 2, 3, 4)])
    shop.ingest()
    return shop


def row(id_: int, name: str) -> dict[str, Any]:
    return {"id": id_, "name": name}


def deleted(reports: list[BatchReport]) -> list[int]:
    return [table.deleted for report in reports for table in report.tables]


def test_rows_that_a_repeated_snapshot_lacks_are_deleted_though_it_was_read_before_it_was_reported(shop: Shop) -> None:
    request = shop.request()
    shop.topic.ad_hoc_snapshot([row(1, "a"), row(2, "changed unseen")])
    shop.ingest()
    assert len(shop.rows()) == 4, "the snapshot is not complete"
    shop.topic.update(row(3, "a"), row(3, "in place of its row"))
    shop.topic.create(row(5, "new"))
    shop.complete("r1", request)
    assert deleted(shop.ingest()) == [1, 1]
    assert shop.rows() == [(1, "a"), (2, "changed unseen"), (3, "in place of its row"), (5, "new")]


def test_a_view_killed_while_its_table_is_snapshotted_again_shows_its_query_afterwards(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, query = shop.lake, "SELECT id, name FROM s.whole"
    lake.sql(f"CREATE MATERIALIZED VIEW bi.v KEY (id) AS {query}")
    lake.publish("bi.v")
    request = shop.request()
    shop.topic.ad_hoc_snapshot([row(1, "a"), row(2, "changed unseen")])
    shop.ingest()
    points: list[tuple[ModuleType, Point]] = [
        (write_audit_publish, "before-publish"),
        (view_publisher, "after-publication"),
    ]
    for module, point in points:
        publish_and_die(lake, "bi.v", monkeypatch, point, module)
        shop.complete("r1", request)
        shop.topic.create(row(len(shop.rows()) + 5, "new"))
        shop.ingest()
    lake.publish("bi.v")
    assert len(shop.rows()) == 4, "rows 3 and 4 are gone, and two are new"
    assert assert_equal_at_every_timestamp(lake, "bi.v", query, ("s.whole",)) > 3
    assert lake.verify("bi.v").is_equal


def test_missing_rows_are_deleted_once_even_by_a_batch_without_messages(shop: Shop) -> None:
    request = shop.request()
    shop.topic.ad_hoc_snapshot([row(n, "a") for n in (1, 2, 3)])
    shop.ingest()
    shop.complete("r1", request)
    assert deleted(shop.ingest()) == [1, 1]
    state = shop.lake.tables.table_state("s.whole")
    assert state is not None
    assert state.current is not None
    assert state.current.summary["lakehold.step"] == "3"
    assert deleted(shop.ingest()) == []
    assert shop.lake.tables.table_state("s.whole") == state


def test_no_row_is_deleted_before_the_repeated_snapshot_is_fully_read(shop: Shop) -> None:
    request = shop.request()
    shop.topic.ad_hoc_snapshot([row(1, "a")])
    ends = dict(shop.topic.offsets)
    shop.topic.offsets = {0: ends[0] + 3}
    shop.complete("r1", request)
    shop.topic.offsets = ends
    assert deleted(shop.ingest()) == [0, 0]
    shop.topic.ad_hoc_snapshot([row(n, "a") for n in (2, 3, 4)])
    shop.ingest()
    assert shop.rows() == [(n, "a") for n in (1, 2, 3, 4)]


def test_a_second_repair_deletes_the_rows_missing_since_the_first(shop: Shop) -> None:
    for number, left in [("r1", [1, 2, 3]), ("r2", [1, 3])]:
        request = shop.request()
        shop.topic.ad_hoc_snapshot([row(n, "a") for n in left])
        shop.complete(number, request)
        assert deleted(shop.ingest()) == [1, 1]
        assert shop.rows() == [(n, "a") for n in left]


@pytest.mark.parametrize("point", ["before-publish", pytest.param("before-commit", marks=pytest.mark.soak)])
def test_a_killed_repair_is_finished_by_the_next_ingest(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    request = shop.request()
    shop.topic.ad_hoc_snapshot([row(n, "b") for n in (1, 2, 3)])
    shop.ingest()
    shop.complete("r1", request)

    def failpoint(here: str) -> None:
        if here == point:
            raise Killed

    with monkeypatch.context() as patch:
        for module in ("lakehold.ingest.batch", "lakehold.tables.write_audit_publish"):
            patch.setattr(f"{module}.failpoint", failpoint)
        with pytest.raises(Killed):
            shop.ingest()
    shop.topic.create(row(6, "meanwhile"))
    shop.ingest()
    assert shop.rows() == [(1, "b"), (2, "b"), (3, "b"), (6, "meanwhile")]
