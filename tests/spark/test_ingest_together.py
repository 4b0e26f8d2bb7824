"""Sources over the same topics, ingested together: each has its own batches, and lakehold decodes shared messages once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from lakehold.definitions import Table
from lakehold.ingest import shared_reads
from lakehold.ingest.batch_report import BatchReport
from lakehold.ingest.several_sources import Progressed, SourceFailed
from lakehold.ingest.shared_topic import SharedTopic
from lakehold.ingest.topic import DecodedTopic, Stored
from lakehold.lake import Lake
from lakehold.state.lease import leased
from tests.conftest import LakeFactory
from tests.counters import decodes
from tests.debezium_messages import Topic

pytestmark = pytest.mark.spark

COLUMNS: dict[str, dict[str, Any]] = {"id": {"type": "int64"}, "name": {"type": "string"}}


class Shop:
    """A topic and several sources over it, with a table each: `first.t` of source `first`."""

    def __init__(self, lake: Lake, directory: Path, sources: Sequence[str], **options: object) -> None:
        self.lake = lake
        self.directory = directory
        self.topic = Topic("t", dict(COLUMNS))
        self.sources = [f"{name}_{directory.parent.name}".replace("-", "_") for name in sources]
        given = ", ".join(f"{name} = {value}" for name, value in options.items())
        for n, source in enumerate(self.sources):
            envelope = ("DEBEZIUM", "DEBEZIUM UPSERT")[n % 2]
            lake.sql(
                f"CREATE SOURCE {source} FROM FILES '{directory}' FORMAT JSON {f'WITH ({given})' if given else ''};"
                f"CREATE TABLE {source}.t FROM SOURCE {source} (TOPIC 't') ENVELOPE {envelope}"
            )

    def write(self, *ids: int) -> None:
        for at in ids:
            self.topic.create({"id": at, "name": f"n{at}"})
        self.topic.write(self.directory)

    def rows(self, source: str) -> list[int]:
        return sorted(
            row[0] for row in self.lake.sql(f"SELECT id FROM {self.lake.settings.catalog_name}.{source}.t").rows
        )

    def ingest(self) -> list[Progressed]:
        return list(self.lake.batches_together(self.sources))

    def decodes_of(self, action: Any) -> tuple[float, float]:
        own, shared = decodes(*self.sources)
        action()
        after = decodes(*self.sources)
        return after[0] - own, after[1] - shared


@pytest.mark.parametrize("driver_records", [10_000, 0], ids=["in the driver", "by Spark"])
def test_sources_at_the_same_offsets_decode_once(make_lake: LakeFactory, tmp_path: Path, driver_records: int) -> None:
    shop = Shop(make_lake(driver_read_max_records=driver_records), tmp_path / "topics", ["first", "second", "third"])
    shop.write(1, 2)
    assert shop.decodes_of(shop.ingest) == (1, 2)
    shop.write(3)
    assert shop.decodes_of(shop.ingest) == (1, 2)
    assert [shop.rows(source) for source in shop.sources] == [[1, 2, 3]] * 3


def test_a_source_that_is_behind_reads_alone_until_it_reaches_the_offsets_of_the_other(
    lake: Lake, tmp_path: Path
) -> None:
    shop = Shop(lake, tmp_path / "topics", ["first", "second"])
    shop.write(1, 2)
    lake.ingest(shop.sources[0])
    shop.write(3)
    assert shop.decodes_of(shop.ingest) == (2, 0)
    shop.write(4)
    assert shop.decodes_of(shop.ingest) == (1, 1)
    assert [shop.rows(source) for source in shop.sources] == [[1, 2, 3, 4]] * 2


@pytest.mark.parametrize("third", ["DEBEZIUM", "UPSERT"], ids=["that want the same", "that want different things"])
def test_shared_messages_are_read_from_memory_and_released_after_the_batch(
    make_lake: LakeFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    third: str,
) -> None:
    shop = Shop(make_lake(driver_read_max_records=0), tmp_path / "topics", ["first", "second"])
    first = shop.sources[0]
    shop.lake.sql(f"CREATE TABLE {first}.third FROM SOURCE {first} (TOPIC 't') ENVELOPE {third}")
    plans: list[str] = []
    persisted: list[DataFrame] = []

    class Seen(SharedTopic):
        def decoded(self, table: Table, stored: Stored, *, scan_schemas: bool) -> tuple[DecodedTopic, bool]:
            found = super().decoded(table, stored, scan_schemas=scan_schemas)
            if self._part.here is None:
                capsys.readouterr()
                found[0].decoded.frame.explain()
                plans.append(capsys.readouterr().out)
            persisted.extend(self._persisted)
            return found

    monkeypatch.setattr(shared_reads, "SharedTopic", Seen)
    shop.write(1, 2)
    shop.ingest()
    assert len(plans) == 3
    assert all("InMemoryTableScan" in plan for plan in plans)
    assert not any(frame.storageLevel.useMemory for frame in persisted)


def test_other_sources_go_on_while_one_catches_up(lake: Lake, tmp_path: Path) -> None:
    shop = Shop(lake, tmp_path / "topics", ["first", "second"], max_records=1)
    shop.write(1, 2, 3)
    first, second = shop.sources
    lake.ingest(first)
    seen: list[str] = []
    for report in lake.batches_together(shop.sources):
        assert isinstance(report, BatchReport)
        if report.records:
            seen.append(report.source)
        if seen == [second]:
            shop.write(4)
    assert seen == [second, second, first, second]
    assert [shop.rows(first), shop.rows(second)] == [[1, 2, 3, 4], [1, 2, 3]]


def test_a_failing_source_does_not_stop_the_others(lake: Lake, tmp_path: Path) -> None:
    shop = Shop(lake, tmp_path / "topics", ["first", "second"])
    shop.write(1)
    first, second = shop.sources
    with leased(lake.batches, first, lake.settings):
        failed, report = shop.ingest()
    assert isinstance(failed, SourceFailed)
    assert (failed.source, failed.error.code) == (first, "source-busy")
    assert isinstance(report, BatchReport)
    assert (report.source, shop.rows(second)) == (second, [1])


def test_a_dropped_source_does_not_stop_the_others(lake: Lake, tmp_path: Path) -> None:
    shop = Shop(lake, tmp_path / "topics", ["first", "second"])
    first, second = shop.sources
    shop.write(1)
    lake.sql(f"DROP SOURCE {first} CASCADE")
    failed, report = shop.ingest()
    assert isinstance(failed, SourceFailed)
    assert (failed.source, failed.error.code) == (first, "source-missing")
    assert isinstance(report, BatchReport)
    assert (report.source, shop.rows(second)) == (second, [1])


def test_an_ingest_closed_amid_its_batches_releases_all_sources(lake: Lake, tmp_path: Path) -> None:
    shop = Shop(lake, tmp_path / "topics", ["first", "second"], max_records=1)
    shop.write(1, 2)
    batches = lake.batches_together(shop.sources)
    next(batches)
    batches.close()
    for source in shop.sources:
        lake.ingest(source)
        assert shop.rows(source) == [1, 2]
