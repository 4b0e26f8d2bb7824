"""A table whose snapshot is still being taken beside its stream is not readable: its topic does not say when it is whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lakehold.lake import Lake
from tests.debezium_messages import Topic

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("envelope", ["DEBEZIUM", "DEBEZIUM UPSERT"])
def test_a_table_is_readable_from_the_batch_behind_its_snapshot(lake: Lake, tmp_path: Path, envelope: str) -> None:
    topic = Topic("t", {"id": {"type": "int64"}, "name": {"type": "string"}})
    directory = tmp_path / "topics"
    lake.sql(f"CREATE SOURCE shop FROM FILES '{directory}' FORMAT JSON")
    lake.sql(f"CREATE TABLE s.t FROM SOURCE shop (TOPIC 't') ENVELOPE {envelope}")
    object_id = lake.definitions.definitions().table("s.t").object_id
    topic.create({"id": 1, "name": "streamed"})
    topic.write(directory)

    with lake._parts.ingesting.held("shop") as ingesting:
        awaiting = replace(ingesting, running=replace(ingesting.running, awaited=frozenset({object_id})))
        assert [report.records for report in awaiting.drain()] == [1]
        assert [report.records for report in awaiting.drain()] == [0]
        assert since(lake) is None

    (report,) = lake.ingest("shop")
    assert since(lake) == report.timestamp_ms


def since(lake: Lake) -> int | None:
    (main,) = lake.batches.readers("shop").values()
    return main.tables["s.t"].since_ms
