"""Changes of a table were missed and it is snapshotted again: what that does not bring goes when all of it was read, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakehold.ingest.batch import BatchReport
from lakehold.ingest.write.repeats import RepeatedSnapshot, Snapshots
from lakehold.lake import Lake
from lakehold.model.offsets import TopicPartition
from tests.debezium_messages import Topic

pytestmark = pytest.mark.spark

TABLES = {"s.whole": "DEBEZIUM", "s.latest": "DEBEZIUM UPSERT"}


class Killed(BaseException):
    """The process ends."""


class Shop:
    """Two tables of a lake over one topic, whose connector can be asked for a snapshot."""

    def __init__(self, lake: Lake, directory: Path) -> None:
        self.lake = lake
        self.topic = Topic("t", {"id": {"type": "int64"}, "name": {"type": "string"}})
        self._directory = directory
        self._complete: dict[str, RepeatedSnapshot] = {}
        lake.sql(f"CREATE SOURCE shop FROM FILES '{directory}' FORMAT JSON")
        declared = (f"CREATE TABLE {name} FROM SOURCE shop (TOPIC 't') ENVELOPE {how}" for name, how in TABLES.items())
        lake.sql(f"BEGIN; {'; '.join(declared)}; COMMIT")

    def asked(self) -> Mapping[str, int]:
        """The tables' sequence numbers, by object id, when a snapshot is asked for."""
        found = {}
        for name in TABLES:
            state = self.lake.tables.table_state(name)
            assert state is not None
            assert state.current is not None
            found[self.lake.definitions.definitions().table(name).object_id] = state.current.sequence_number
        return found

    def complete(self, signal_id: str, asked: Mapping[str, int]) -> None:
        """The connector says that what was asked for is in the topic."""
        ends = {TopicPartition("t", partition): end for partition, end in self.topic.offsets.items()}
        self._complete = {object_id: RepeatedSnapshot(signal_id, through, ends) for object_id, through in asked.items()}

    def ingest(self) -> list[BatchReport]:
        self.topic.write(self._directory)
        with self.lake._parts.ingesting.held("shop") as ingesting:
            return list(replace(ingesting, snapshots=Snapshots(repeated=self._complete)).drain())

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows of both tables, which are the same."""
        whole, latest = (self._rows(name) for name in TABLES)
        assert whole == latest
        return whole

    def _rows(self, name: str) -> list[tuple[Any, ...]]:
        return sorted(self.lake.sql(f"SELECT id, name FROM {self.lake.settings.catalog_name}.{name}").rows)


@pytest.fixture
def shop(lake: Lake, tmp_path: Path) -> Shop:
    """A shop with four rows."""
    shop = Shop(lake, tmp_path / "topics")
    shop.topic.snapshot([row(n, "a") for n in (1, 2, 3, 4)])
    shop.ingest()
    return shop


def row(id_: int, name: str) -> dict[str, Any]:
    return {"id": id_, "name": name}


def deleted(reports: list[BatchReport]) -> list[int]:
    return [table.deleted for report in reports for table in report.tables]


def test_rows_that_it_does_not_bring_go_though_it_came_before_anyone_knew_of_it(shop: Shop) -> None:
    asked = shop.asked()
    shop.topic.ad_hoc_snapshot([row(1, "a"), row(2, "changed unseen")])
    shop.ingest()
    assert len(shop.rows()) == 4, "it is not complete"
    shop.topic.update(row(3, "a"), row(3, "in place of its row"))
    shop.topic.create(row(5, "new"))
    shop.complete("r1", asked)
    assert deleted(shop.ingest()) == [1, 1]
    assert shop.rows() == [(1, "a"), (2, "changed unseen"), (3, "in place of its row"), (5, "new")]


def test_they_go_once_and_when_it_has_nothing_new_for_a_batch(shop: Shop) -> None:
    asked = shop.asked()
    shop.topic.ad_hoc_snapshot([row(n, "a") for n in (1, 2, 3)])
    shop.ingest()
    shop.complete("r1", asked)
    assert deleted(shop.ingest()) == [1, 1]
    state = shop.lake.tables.table_state("s.whole")
    assert state is not None
    assert state.current is not None
    assert state.current.summary["lakehold.step"] == "3"
    assert deleted(shop.ingest()) == []
    assert shop.lake.tables.table_state("s.whole") == state


def test_nothing_goes_before_all_of_it_was_read(shop: Shop) -> None:
    asked = shop.asked()
    shop.topic.ad_hoc_snapshot([row(1, "a")])
    behind = dict(shop.topic.offsets)
    shop.topic.offsets = {0: behind[0] + 3}
    shop.complete("r1", asked)
    shop.topic.offsets = behind
    assert deleted(shop.ingest()) == [0, 0]
    shop.topic.ad_hoc_snapshot([row(n, "a") for n in (2, 3, 4)])
    shop.ingest()
    assert shop.rows() == [(n, "a") for n in (1, 2, 3, 4)]


def test_a_second_repair_takes_what_went_since_the_first(shop: Shop) -> None:
    for number, left in [("r1", [1, 2, 3]), ("r2", [1, 3])]:
        asked = shop.asked()
        shop.topic.ad_hoc_snapshot([row(n, "a") for n in left])
        shop.complete(number, asked)
        assert deleted(shop.ingest()) == [1, 1]
        assert shop.rows() == [(n, "a") for n in left]


@pytest.mark.parametrize("point", ["before-commit", "before-publish"])
def test_a_kill_as_they_go_leaves_it_to_the_next_ingest(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    asked = shop.asked()
    shop.topic.ad_hoc_snapshot([row(n, "b") for n in (1, 2, 3)])
    shop.ingest()
    shop.complete("r1", asked)

    def failpoint(here: str) -> None:
        if here == point:
            raise Killed

    with monkeypatch.context() as patch:
        for module in ("lakehold.ingest.batch", "lakehold.ingest.write.write_audit_publish"):
            patch.setattr(f"{module}.failpoint", failpoint)
        with pytest.raises(Killed):
            shop.ingest()
    shop.topic.create(row(6, "meanwhile"))
    shop.ingest()
    assert shop.rows() == [(1, "b"), (2, "b"), (3, "b"), (6, "meanwhile")]
