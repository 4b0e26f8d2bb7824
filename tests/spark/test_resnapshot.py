"""A re-snapshot replaces the rows of a table once, and later batches are ordinary batches again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakehold.lake import Lake
from tests.debezium_messages import Topic

pytestmark = pytest.mark.spark


def row(id_: int, name: str) -> dict[str, Any]:
    return {"id": id_, "name": name}


def test_rows_that_a_resnapshot_lacks_are_deleted_by_its_last_batch_only(lake: Lake, tmp_path: Path) -> None:
    topic = Topic("t", {"id": {"type": "int64"}, "name": {"type": "string"}})
    directory = tmp_path / "topics"
    lake.sql(f"CREATE SOURCE shop FROM FILES '{directory}' FORMAT JSON")
    lake.sql("CREATE TABLE s.t FROM SOURCE shop (TOPIC 't') ENVELOPE DEBEZIUM")
    topic.snapshot([row(1, "a"), row(2, "a")])
    topic.write(directory)
    lake.ingest("shop")
    topic.lsn, topic.last_commit = 5_000, None
    topic.snapshot([row(2, "again")])
    topic.write(directory)
    (resnapshot,) = lake.ingest("shop")
    assert [(t.updated, t.deleted) for t in resnapshot.tables] == [(1, 1)]
    topic.update(row(2, "again"), row(2, "b"))
    topic.create(row(3, "c"))
    topic.write(directory)
    (behind,) = lake.ingest("shop")
    assert [(t.inserted, t.updated, t.deleted) for t in behind.tables] == [(1, 1, 0)]
    state = lake.tables.table_state("s.t")
    assert state is not None
    assert [t.snapshot_id for t in behind.tables] == [state.snapshot_id]
    assert [snapshot.summary["lakehold.step"] for snapshot in state.history] == ["1", "2", "1", "1"]


@pytest.mark.parametrize("envelope", ["DEBEZIUM", "DEBEZIUM UPSERT"])
def test_a_row_that_a_resnapshot_brings_in_error_keeps_its_last_good_value(
    lake: Lake, tmp_path: Path, envelope: str
) -> None:
    topic = Topic("t", {"id": {"type": "int64"}, "name": {"type": "string"}})
    directory = tmp_path / "topics"
    lake.sql(f"CREATE SOURCE shop FROM FILES '{directory}' FORMAT JSON")
    lake.sql(f"CREATE TABLE s.t FROM SOURCE shop (TOPIC 't') ENVELOPE {envelope}")
    topic.snapshot([row(1, "a"), row(2, "a"), row(3, "a")])
    topic.write(directory)
    lake.ingest("shop")
    topic.lsn, topic.last_commit = 5_000, None
    topic.raw(topic._key(row(2, "")), b"no message of Debezium")
    topic.snapshot([row(1, "again")], ended=False)
    topic.write(directory)
    lake.ingest("shop")
    # The snapshot goes on in another batch, which deletes the rows that it lacks.
    topic.snapshot([row(4, "again")])
    topic.write(directory)
    lake.ingest("shop")
    assert sorted(lake.sql("SELECT id, name FROM s.t").rows) == [(1, "again"), (2, "a"), (4, "again")]
    assert lake.sql("SELECT count(*) FROM mz_catalog.mz_source_errors WHERE healed_at IS NULL").rows == [(1,)]


@pytest.mark.parametrize("envelope", ["DEBEZIUM", "DEBEZIUM UPSERT"])
def test_a_blocking_snapshot_of_some_rows_deletes_no_others(lake: Lake, tmp_path: Path, envelope: str) -> None:
    topic = Topic("t", {"id": {"type": "int64"}, "name": {"type": "string"}})
    directory = tmp_path / "topics"
    lake.sql(f"CREATE SOURCE shop FROM FILES '{directory}' FORMAT JSON")
    lake.sql(f"CREATE TABLE s.t FROM SOURCE shop (TOPIC 't') ENVELOPE {envelope}")
    topic.snapshot([row(n, "a") for n in (1, 2, 3)])
    topic.update(row(1, "a"), row(1, "b"))
    topic.write(directory)
    lake.ingest("shop")
    topic.blocking_snapshot([row(2, "read again"), row(4, "seen by it alone")])
    topic.update(row(2, "read again"), row(2, "c"))
    topic.write(directory)
    (report,) = lake.ingest("shop")
    assert [(t.inserted, t.updated, t.deleted, t.repeated) for t in report.tables] == [(1, 1, 0, 0)]
    catalog = lake.settings.catalog_name
    rows = sorted(lake.sql(f"SELECT id, name FROM {catalog}.s.t").rows)
    assert rows == [(1, "b"), (2, "c"), (3, "a"), (4, "seen by it alone")]
