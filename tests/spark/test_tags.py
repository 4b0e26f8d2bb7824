"""Tags that lakehold creates without Spark: Spark reads them, its writers keep them, and its expiry keeps their snapshots."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from lakehold.iceberg.refs import RefChanges, change_refs
from lakehold.lake import Lake
from tests import recorded_files
from tests.conftest import LakeFactory
from tests.histories import COPY_V1, FILE_V2, NAME, VECTORS_V3, Mode, WrittenTable, written_by

pytestmark = pytest.mark.spark

EXPIRE_ALL = "older_than => TIMESTAMP '2999-01-01', retain_last => 1"


def tags(lake: Lake, full_name: str = NAME) -> dict[str, int]:
    refs = lake.catalog.load_table(full_name).metadata.refs
    return {name: ref.snapshot_id for name, ref in refs.items() if name != "main"}


def rows(lake: Lake, of: str) -> list[tuple[object, ...]]:
    return sorted(lake.sql(f"SELECT * FROM {of}").rows)


@written_by(FILE_V2, soak=[COPY_V1, VECTORS_V3])
def test_spark_reads_keeps_and_never_expires_tagged_snapshots(make_lake: LakeFactory, mode: Mode) -> None:
    table = WrittenTable.created(make_lake, mode, "id INT, v STRING")
    lake = table.lake
    table.run("INSERT INTO {t} VALUES (1, 'a'), (2, 'b')", "UPDATE {t} SET v = 'B' WHERE id = 2")
    first, second = (s.snapshot_id for s in lake.catalog.load_table(NAME).metadata.snapshots)
    change_refs(lake.catalog, NAME, lambda _: RefChanges(tags={"hold_x": first, "mz_2": second}))

    held = [(1, "a"), (2, "b")]
    assert rows(lake, f"{NAME} VERSION AS OF 'hold_x'") == held
    table.run(
        """MERGE INTO {t} USING (SELECT 2 AS id, 'new' AS v UNION ALL SELECT 3, 'c') AS s ON t.id = s.id
           WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *""".replace("{t}", f"{NAME} AS t"),
        "INSERT INTO {t} VALUES (4, 'd')",
        "DELETE FROM {t} WHERE id = 1",
    )
    table.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    assert tags(lake) == {"hold_x": first, "mz_2": second}
    table.call("expire_snapshots", EXPIRE_ALL)
    table.call("remove_orphan_files", "older_than => TIMESTAMP '2000-01-01'")

    current = lake.catalog.load_table(NAME).metadata.current_snapshot_id
    assert {s.snapshot_id for s in lake.catalog.load_table(NAME).metadata.snapshots} == {first, second, current}
    assert tags(lake) == {"hold_x": first, "mz_2": second}
    assert rows(lake, f"{NAME} VERSION AS OF 'hold_x'") == held
    assert rows(lake, f"{NAME} VERSION AS OF 'mz_2'") == [(1, "a"), (2, "B")]
    assert rows(lake, NAME) == [(2, "new"), (3, "c"), (4, "d")]
    if mode != VECTORS_V3:  # PyIceberg reads no deletion vectors of several files
        assert lake.catalog.load_table(NAME).scan().use_ref("hold_x").to_arrow().num_rows == 2

    change_refs(lake.catalog, NAME, lambda _: RefChanges(removed=frozenset({"hold_x", "mz_2"})))
    table.call("expire_snapshots", EXPIRE_ALL)
    assert [s.snapshot_id for s in lake.catalog.load_table(NAME).metadata.snapshots] == [current]
    assert rows(lake, NAME) == [(2, "new"), (3, "c"), (4, "d")]


def test_concurrent_tags_and_commits_of_spark_all_succeed(make_lake: LakeFactory) -> None:
    table = WrittenTable.created(make_lake, VECTORS_V3, "id INT")
    # By default Spark gives up after four lost races, which these writers would make it lose.
    table.run(
        "ALTER TABLE {t} SET TBLPROPERTIES ('commit.retry.num-retries' = '100', 'commit.retry.max-wait-ms' = '50')",
        "INSERT INTO {t} VALUES (0)",
    )
    first = table.lake.catalog.load_table(NAME).metadata.snapshots[0].snapshot_id
    ended = threading.Event()
    put: list[str] = []

    def tag() -> None:
        while not ended.is_set():
            changes = RefChanges(tags={f"mz_{len(put)}": first})
            change_refs(table.lake.catalog, NAME, lambda _, changes=changes: changes)  # type: ignore[misc] # mypy takes no default in a lambda
            put.extend(changes.tags)
            ended.wait(0.1)

    tagging = threading.Thread(target=tag)
    inserted = 0
    tagging.start()
    try:
        while tagging.is_alive() and (inserted < 5 or len(put) < 6):
            inserted += 1
            table.run(f"INSERT INTO {{t}} VALUES ({inserted})")
    finally:
        ended.set()
        tagging.join()
    assert len(put) > 5
    assert tags(table.lake) == dict.fromkeys(put, first)
    assert rows(table.lake, NAME) == [(number,) for number in range(inserted + 1)]


class Feed:
    """A source of recorded files and its table `shop.items`."""

    def __init__(self, lake: Lake, directory: Path) -> None:
        self.lake, self._file, self._offset = lake, directory / "topics" / "items.jsonl", 0
        self.write(1, "one")
        lake.sql(f"CREATE SOURCE feed FROM FILES '{self._file.parent}' FORMAT JSON")
        lake.sql("CREATE TABLE shop.items (id BIGINT, v STRING) FROM SOURCE feed (TOPIC 'items') ENVELOPE UPSERT")

    def write(self, key: int, value: str | None) -> None:
        body = None if value is None else json.dumps({"id": key, "v": value}).encode()
        line = recorded_files.line("items", 0, self._offset, body, json.dumps({"id": key}).encode())
        recorded_files.append(self._file, [line])
        self._offset += 1

    def batch(self, key: int, value: str | None) -> int:
        """Ingest one change as one batch; return its timestamp."""
        self.write(key, value)
        return next(report for report in self.lake.ingest("feed") if report.tables).timestamp_ms


def test_batches_tag_held_snapshots_and_a_subscriber_reads_the_same_after_an_expiry(lake: Lake, tmp_path: Path) -> None:
    feed = Feed(lake, tmp_path)
    first = feed.lake.ingest("feed")[0].timestamp_ms
    feed.batch(2, "two")
    assert tags(lake, "shop.items") == {}
    held = feed.batch(3, "three")
    lake.sql(f"CREATE HOLD h ON shop.items AT {held} WITH (CHECK = 'off')")
    later = [feed.batch(1, "uno"), feed.batch(2, None), feed.batch(4, "four")]

    assert set(tags(lake, "shop.items")) == {"hold_h", *(f"mz_{ms}" for ms in later)}
    subscribed = f"SUBSCRIBE shop.items AS OF {held} UP TO {later[-1] + 1}"
    before = lake.sql(subscribed).rows
    lake.sql(f"CALL system.expire_snapshots(table => 'shop.items', {EXPIRE_ALL})")
    assert lake.catalog.load_table("shop.items").metadata.snapshots[0].snapshot_id == tags(lake, "shop.items")["hold_h"]
    assert lake.sql(subscribed).rows == before
    assert [row[0] for row in before if row[0] > held] == [later[0], later[0], later[1], later[2]]
    assert rows(lake, "shop.items VERSION AS OF 'hold_h'") == [(1, "one"), (2, "two"), (3, "three")]
    assert first < held


def test_a_batch_publishes_and_tags_in_one_commit_and_repairs_missing_tags(lake: Lake, tmp_path: Path) -> None:
    feed = Feed(lake, tmp_path)
    feed.lake.ingest("feed")
    held = feed.batch(2, "two")
    lake.sql(f"CREATE HOLD h ON shop.items AT {held} WITH (CHECK = 'off')")
    wanted = tags(lake, "shop.items")
    change_refs(lake.catalog, "shop.items", lambda _: RefChanges(removed=frozenset(wanted)))

    repaired = feed.batch(3, "three")
    assert set(tags(lake, "shop.items")) == {"hold_h", f"mz_{repaired}"}
    before = len(lake.catalog.load_table("shop.items").metadata.metadata_log)
    last = feed.batch(4, "four")
    table = lake.catalog.load_table("shop.items")
    assert tags(lake, "shop.items")[f"mz_{last}"] == table.metadata.current_snapshot_id
    assert len(table.metadata.metadata_log) == before + 2  # the staged snapshot, and its publication
