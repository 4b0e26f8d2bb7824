"""A batch reads all of its records before it begins, and does not need the source after that."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehold.failpoints import Point
from lakehold.ingest import batch
from tests.conftest import LakeFactory
from tests.debezium_messages import Topic

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("driver_read_max_records", [10_000, 0], ids=["in the driver", "by Spark"])
def test_a_source_may_disappear_once_the_batch_has_begun(
    make_lake: LakeFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver_read_max_records: int
) -> None:
    directory, topics = tmp_path / "topics", {}
    lake = make_lake(driver_read_max_records=driver_read_max_records)
    lake.sql(f"CREATE SOURCE feed FROM FILES '{directory}' FORMAT JSON")
    for name in ("t", "u"):
        topics[name] = Topic(name, {"id": {"type": "int64"}, "v": {"type": "string"}})
        lake.sql(f"CREATE TABLE s.{name} FROM SOURCE feed (TOPIC '{name}') ENVELOPE DEBEZIUM UPSERT")
        topics[name].snapshot([{"id": 1, "v": "a"}])
        topics[name].write(directory)
    lake.ingest("feed")
    for name, topic in topics.items():
        topic.update({"id": 1, "v": "a"}, {"id": 1, "v": f"b of {name}"})
        topic.write(directory)
    reached: list[Point] = []

    def failpoint(point: Point) -> None:
        reached.append(point)
        if point == "before-intent":
            for file in directory.rglob("*.jsonl"):
                file.write_text("")

    monkeypatch.setattr(batch, "failpoint", failpoint)
    reports = lake.batches_of("feed")
    report = next(reports)
    assert report.stopped == {}
    assert reached[0] == "before-intent"
    assert [lake.sql(f"SELECT id, v FROM s.{name}").rows for name in topics] == [[(1, "b of t")], [(1, "b of u")]]
