"""Every kind of history, as added and removed rows; `WrittenTable.changes` also replays them against Spark's snapshots."""

from __future__ import annotations

from collections import Counter

import pytest

from lakehold.errors import NotReadable
from tests.conftest import LakeFactory
from tests.histories import (
    COPY_V1,
    COPY_V2,
    FILE_V2,
    MODES,
    NAME,
    PARTITION_V2,
    VECTORS_V3,
    Mode,
    WrittenTable,
    exact,
    written_by,
)

pytestmark = pytest.mark.spark

REWRITE_ALL = "options => map('rewrite-all', 'true')"


@written_by(*MODES)
def test_inserts_deletes_updates_and_merges_are_exact(make_lake: LakeFactory, mode: Mode) -> None:
    table = WrittenTable.created(make_lake, mode, "id INT, v STRING")
    table.run(
        "INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd'), (5, 'e')",
        "INSERT INTO {t} VALUES (6, 'f'), (7, 'g')",
        "DELETE FROM {t} WHERE id IN (2, 6)",
        "UPDATE {t} SET v = upper(v) WHERE id IN (1, 3, 7)",
        "DELETE FROM {t} WHERE id IN (3, 4)",
        """MERGE INTO {t} USING (SELECT * FROM VALUES (1, 'gone'), (5, 'new'), (9, 'i') AS v(id, v)) AS s ON t.id = s.id
           WHEN MATCHED AND s.v = 'gone' THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *""",
    )
    expected = [
        [(1, 1, "a"), (1, 2, "b"), (1, 3, "c"), (1, 4, "d"), (1, 5, "e")],
        [(1, 6, "f"), (1, 7, "g")],
        [(-1, 2, "b"), (-1, 6, "f")],
        [(1, 1, "A"), (-1, 1, "a"), (1, 3, "C"), (-1, 3, "c"), (1, 7, "G"), (-1, 7, "g")],
        [(-1, 3, "C"), (-1, 4, "d")],
        [(-1, 1, "A"), (-1, 5, "e"), (1, 5, "new"), (1, 9, "i")],
    ]
    assert table.changes() == expected
    if mode in (COPY_V1, VECTORS_V3):
        assert table.changes(table.reading_by_spark()) == expected
    assert table.delete_formats == ({mode.delete_format} if mode.delete_format else set())


@written_by(COPY_V1, VECTORS_V3, soak=[PARTITION_V2])
def test_overwritten_partitions_are_exact(make_lake: LakeFactory, mode: Mode) -> None:
    table = WrittenTable.created(make_lake, mode, "id INT, p INT", "p")
    table.run(
        "INSERT INTO {t} VALUES (1, 1), (2, 1), (3, 2), (4, 2), (5, 3)",
        "DELETE FROM {t} WHERE id IN (1, 3)",
        "INSERT OVERWRITE {t} PARTITION (p = 1) VALUES (6), (2)",
    )
    table.lake.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        table.run("INSERT OVERWRITE {t} VALUES (7, 2), (8, 4)")
    finally:
        table.lake.spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    table.run("INSERT OVERWRITE {t} VALUES (5, 3), (9, 3)")
    assert table.changes()[1:] == [
        [(-1, 1, 1), (-1, 3, 2)],
        [(1, 6, 1)],
        [(-1, 4, 2), (1, 7, 2), (1, 8, 4)],
        [(-1, 2, 1), (-1, 6, 1), (-1, 7, 2), (-1, 8, 4), (1, 9, 3)],
    ]


@written_by(COPY_V1, VECTORS_V3, soak=[PARTITION_V2])
def test_emptied_partitions_and_tables_are_exact(make_lake: LakeFactory, mode: Mode) -> None:
    table = WrittenTable.created(make_lake, mode, "id INT, p STRING", "p")
    table.run(
        "INSERT INTO {t} VALUES (1, 'a'), (2, 'a'), (3, 'a'), (4, 'b'), (5, NULL), (6, NULL)",
        "DELETE FROM {t} WHERE id IN (1, 6)",
        "DELETE FROM {t} WHERE p = 'a'",
        "TRUNCATE TABLE {t}",
        "INSERT INTO {t} VALUES (1, 'a')",
    )
    assert table.changes()[1:] == [
        [(-1, 1, "a"), (-1, 6, None)],
        [(-1, 2, "a"), (-1, 3, "a")],
        [(-1, 4, "b"), (-1, 5, None)],
        [(1, 1, "a")],
    ]


@written_by(COPY_V1, VECTORS_V3, soak=[FILE_V2, PARTITION_V2])
def test_compaction_changes_no_row(make_lake: LakeFactory, mode: Mode) -> None:
    table = WrittenTable.created(make_lake, mode, "id INT, v STRING")
    table.run("INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (3, 'c')", "INSERT INTO {t} VALUES (4, 'd')")
    table.run("DELETE FROM {t} WHERE id IN (1, 4)")
    table.call("rewrite_data_files", REWRITE_ALL)
    table.run("DELETE FROM {t} WHERE id = 2")
    table.call("rewrite_manifests")
    table.run("INSERT INTO {t} VALUES (5, 'e')")
    table.call("rewrite_data_files", REWRITE_ALL)
    changes = table.changes()
    assert [diffs for diffs in changes if diffs][1:] == [
        [(1, 4, "d")],
        [(-1, 1, "a"), (-1, 4, "d")],
        [(-1, 2, "b")],
        [(1, 5, "e")],
    ]
    operations = [s.summary.operation.value for s in table.lake.catalog.load_table(NAME).snapshots() if s.summary]
    assert [not diffs for diffs in changes] == [operation == "replace" for operation in operations]
    assert operations.count("replace") >= 2


@written_by(COPY_V1, VECTORS_V3, soak=[FILE_V2, PARTITION_V2])
def test_compaction_between_changes_adds_no_diffs(make_lake: LakeFactory, mode: Mode) -> None:
    """Expire the snapshots around a compaction: a rewritten row is in a removed file and in an added one."""
    table = WrittenTable.created(make_lake, mode, "id INT, v STRING")
    table.run("INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (3, 'c')", "DELETE FROM {t} WHERE id = 1")
    table.run("INSERT INTO {t} VALUES (4, 'd')")
    table.call("rewrite_data_files", REWRITE_ALL)
    table.run("DELETE FROM {t} WHERE id = 2")
    first, *between, last = table.versions
    ids = ", ".join(str(version.snapshot_id) for version in between)
    table.call("expire_snapshots", f"snapshot_ids => array({ids})")
    result = table.subscribe(f"WITH (SNAPSHOT = false) AS OF {first.mz_timestamp}")
    at = last.mz_timestamp
    assert result.rows == [(at, -1, 1, "a"), (at, -1, 2, "b"), (at, 1, 4, "d")]


@written_by(PARTITION_V2, soak=[FILE_V2])
def test_rewritten_position_deletes_change_no_row(make_lake: LakeFactory, mode: Mode) -> None:
    table = WrittenTable.created(make_lake, mode, "id INT, p INT", "p")
    table.run("INSERT INTO {t} SELECT id, id % 2 FROM range(10)", "INSERT INTO {t} SELECT id, 0 FROM range(10, 14)")
    table.run("DELETE FROM {t} WHERE id IN (0, 1, 10)", "DELETE FROM {t} WHERE id IN (2, 11)")
    table.call("rewrite_position_delete_files", REWRITE_ALL)
    table.run("DELETE FROM {t} WHERE id = 4")
    changes = table.changes()
    assert changes[2:] == [
        [(-1, 0, 0), (-1, 1, 1), (-1, 10, 0)],
        [(-1, 2, 0), (-1, 11, 0)],
        [],
        [(-1, 4, 0)],
    ]


@written_by(PARTITION_V2, soak=[FILE_V2])
def test_position_deletes_become_deletion_vectors(make_lake: LakeFactory, mode: Mode) -> None:
    """Upgrade to format 3: a vector includes the positions of its file's position deletes, kept or removed."""
    table = WrittenTable.created(make_lake, mode, "id INT, p INT", "p")
    table.run("INSERT INTO {t} SELECT /*+ COALESCE(1) */ id, 0 FROM range(6)")
    table.run("INSERT INTO {t} SELECT /*+ COALESCE(1) */ id, 0 FROM range(6, 9)")
    table.run("DELETE FROM {t} WHERE id IN (1, 6)")
    table.run("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    table.run("DELETE FROM {t} WHERE id = 2", "DELETE FROM {t} WHERE id IN (3, 7)")
    assert table.changes()[2:] == [
        [(-1, 1, 0), (-1, 6, 0)],
        [(-1, 2, 0)],
        [(-1, 3, 0), (-1, 7, 0)],
    ]
    assert table.delete_formats == {"PARQUET", "PUFFIN"}


@written_by(PARTITION_V2, soak=[COPY_V2, VECTORS_V3])
def test_rollbacks_and_returns_are_changes(make_lake: LakeFactory, mode: Mode) -> None:
    table = WrittenTable.created(make_lake, mode, "id INT, v STRING")
    table.run(
        "INSERT INTO {t} VALUES (1, 'a'), (2, 'b')", "DELETE FROM {t} WHERE id = 1", "INSERT INTO {t} VALUES (3, 'c')"
    )
    first, _, last = table.versions
    table.call("rollback_to_snapshot", f"snapshot_id => {first.snapshot_id}")
    table.call("set_current_snapshot", f"snapshot_id => {last.snapshot_id}")
    table.call("rollback_to_timestamp", f"timestamp => timestamp_millis({first.mz_timestamp + 1})")
    table.run("UPDATE {t} SET v = 'd' WHERE id = 2")
    assert table.changes() == [
        [(1, 1, "a"), (1, 2, "b")],
        [(-1, 1, "a")],
        [(1, 3, "c")],
        [(1, 1, "a"), (-1, 3, "c")],
        [(-1, 1, "a"), (1, 3, "c")],
        [(1, 1, "a"), (-1, 3, "c")],
        [(-1, 2, "b"), (1, 2, "d")],
    ]
    back = table.versions[3]
    notices = table.subscribe(f"AS OF {first.mz_timestamp} UP TO {back.mz_timestamp + 1}").notices
    assert notices == (
        f'"shop.t" was set to snapshot {first.snapshot_id} at {back.mz_timestamp}: it had shown that snapshot before, '
        "so its rows are the same as then",
    )


@written_by(VECTORS_V3, soak=[COPY_V2])
def test_a_branch_is_visible_when_main_moves_to_it(make_lake: LakeFactory, mode: Mode) -> None:
    table = WrittenTable.created(make_lake, mode, "id INT, v STRING")
    table.run("INSERT INTO {t} VALUES (1, 'a'), (2, 'b')", "ALTER TABLE {t} CREATE BRANCH audit")
    table.run("INSERT INTO {t}.branch_audit VALUES (3, 'c')", "DELETE FROM {t}.branch_audit WHERE id = 1")
    assert table.changes() == [[(1, 1, "a"), (1, 2, "b")]]
    table.call("fast_forward", "branch => 'main', to => 'audit'")
    table.run("DELETE FROM {t} WHERE id = 2", "DELETE FROM {t}.branch_audit WHERE id = 3")
    assert table.changes()[1:] == [[(-1, 1, "a"), (1, 3, "c")], [(-1, 2, "b")]]


def test_staged_writes_are_visible_when_they_are_cherry_picked(make_lake: LakeFactory) -> None:
    table = WrittenTable.created(make_lake, VECTORS_V3, "id INT, v STRING")
    table.run("INSERT INTO {t} VALUES (1, 'a')", "ALTER TABLE {t} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    staged = []
    for wap_id, statement in [("one", "INSERT INTO {t} VALUES (2, 'b')"), ("two", "INSERT INTO {t} VALUES (3, 'c')")]:
        table.lake.spark.conf.set("spark.wap.id", wap_id)
        try:
            table.run(statement)
        finally:
            table.lake.spark.conf.unset("spark.wap.id")
        staged.append(table.lake.catalog.load_table(NAME).snapshots()[-1].snapshot_id)
    assert table.changes() == [[(1, 1, "a")]]
    table.call("cherrypick_snapshot", f"snapshot_id => {staged[0]}")
    table.run("INSERT INTO {t} VALUES (4, 'd')")
    table.call("cherrypick_snapshot", f"snapshot_id => {staged[1]}")
    assert table.changes()[1:] == [[(1, 2, "b")], [(1, 4, "d")], [(1, 3, "c")]]


@written_by(VECTORS_V3, soak=[COPY_V1])
def test_duplicate_rows_are_counted(make_lake: LakeFactory, mode: Mode) -> None:
    table = WrittenTable.created(make_lake, mode, "id INT, v STRING")
    table.run(
        "INSERT INTO {t} VALUES (1, 'a'), (1, 'a'), (2, NULL), (2, NULL)",
        "INSERT INTO {t} VALUES (1, 'a')",
        "INSERT OVERWRITE {t} VALUES (1, 'a'), (2, NULL), (2, NULL), (2, NULL)",
        "DELETE FROM {t} WHERE v IS NULL",
    )
    expected = [[(2, 1, "a"), (2, 2, None)], [(1, 1, "a")], [(-2, 1, "a"), (1, 2, None)], [(-3, 2, None)]]
    assert table.changes() == expected
    if mode == VECTORS_V3:
        assert table.changes(table.reading_by_spark()) == expected


@written_by(COPY_V1, VECTORS_V3, soak=[PARTITION_V2])
def test_a_change_of_partitioning_changes_no_row(make_lake: LakeFactory, mode: Mode) -> None:
    table = WrittenTable.created(make_lake, mode, "id INT, p STRING, at TIMESTAMP", "p")

    def rows(first: int, end_exclusive: int) -> str:
        values = "id, IF(id % 2 = 0, 'even', 'odd'), TIMESTAMP '2024-01-01'"
        return f"INSERT INTO {{t}} SELECT {values} FROM range({first}, {end_exclusive})"

    table.run(rows(0, 4), "DELETE FROM {t} WHERE id = 0")
    table.run("ALTER TABLE {t} REPLACE PARTITION FIELD p WITH bucket(2, id)", rows(4, 8))
    table.run("DELETE FROM {t} WHERE id IN (1, 4, 5)")
    table.run("ALTER TABLE {t} ADD PARTITION FIELD days(at)", rows(8, 10), "DELETE FROM {t} WHERE id IN (2, 6, 8)")
    table.run("ALTER TABLE {t} DROP PARTITION FIELD bucket(2, id)", "DELETE FROM {t} WHERE p = 'odd'")
    diffs = [[(diff, number) for diff, number, *_ in version] for version in table.changes()]
    assert diffs == [
        [(1, 0), (1, 1), (1, 2), (1, 3)],
        [(-1, 0)],
        [(1, 4), (1, 5), (1, 6), (1, 7)],
        [(-1, 1), (-1, 4), (-1, 5)],
        [(1, 8), (1, 9)],
        [(-1, 2), (-1, 6), (-1, 8)],
        [(-1, 3), (-1, 7), (-1, 9)],
    ]


@written_by(COPY_V1, VECTORS_V3, soak=[PARTITION_V2])
def test_changes_of_an_expired_snapshot_are_part_of_the_next_one(make_lake: LakeFactory, mode: Mode) -> None:
    table = WrittenTable.created(make_lake, mode, "id INT, v STRING")
    table.run("INSERT INTO {t} VALUES (1, 'a'), (2, 'b')", "UPDATE {t} SET v = 'c' WHERE id = 1")
    table.run("UPDATE {t} SET v = 'd' WHERE id = 1", "DELETE FROM {t} WHERE id = 2")
    first, gone, third, last = table.versions
    table.call("expire_snapshots", f"snapshot_ids => array({gone.snapshot_id})")
    rows = table.subscribe(f"AS OF {first.mz_timestamp}").rows
    assert rows == [
        (first.mz_timestamp, 1, 1, "a"),
        (first.mz_timestamp, 1, 2, "b"),
        (third.mz_timestamp, -1, 1, "a"),
        (third.mz_timestamp, 1, 1, "d"),
        (last.mz_timestamp, -1, 2, "b"),
    ]
    with pytest.raises(NotReadable, match="no longer readable") as refused:
        table.subscribe(f"AS OF {gone.mz_timestamp}")
    assert str(gone.snapshot_id) in refused.value.detail
    assert str(third.mz_timestamp) in refused.value.detail
    with pytest.raises(NotReadable, match="no longer readable"):
        table.subscribe(f"WITH (SNAPSHOT = false) AS OF {third.mz_timestamp - 1}")
    with pytest.raises(NotReadable, match="no longer readable"):
        table.lake.sql(f"SELECT * FROM {NAME} AS OF {gone.mz_timestamp}")


def test_queries_read_on_over_an_expired_snapshot(make_lake: LakeFactory) -> None:
    table = WrittenTable.created(make_lake, VECTORS_V3, "id INT, v STRING")
    table.run("INSERT INTO {t} VALUES (1, 'a'), (2, 'b')", "CREATE TABLE shop.u (id INT) USING iceberg")
    table.run("INSERT INTO shop.u VALUES (1)", "UPDATE {t} SET v = 'c' WHERE id = 1", "INSERT INTO shop.u VALUES (2)")
    table.run("UPDATE {t} SET v = 'd' WHERE id = 1")
    _, gone, last = table.versions
    table.call("expire_snapshots", f"snapshot_ids => array({gone.snapshot_id})")
    begin, other = (entry.timestamp_ms for entry in table.lake.catalog.load_table("shop.u").history())
    for query, times in (
        (f"SELECT id, v, rank() OVER (PARTITION BY id ORDER BY v) AS n FROM {NAME}", {begin, last.mz_timestamp}),
        (f"SELECT v, count(DISTINCT id) AS n FROM {NAME} GROUP BY v", {begin, last.mz_timestamp}),
        (f"SELECT v, count(*) AS n FROM {NAME} GROUP BY v", {begin, last.mz_timestamp}),
        (f"SELECT t.id, v FROM {NAME} t JOIN shop.u ON t.id = u.id", {begin, other, last.mz_timestamp}),
        (f"SELECT t.id, v FROM {NAME} t FULL JOIN shop.u ON t.id = u.id", {begin, last.mz_timestamp}),
    ):
        rows = table.lake.sql(f"SUBSCRIBE ({query}) AS OF {begin}").rows
        assert {at_ms for at_ms, *_ in rows} == times, query
        state: Counter[str] = Counter()
        for _, diff, *values in rows:
            state[exact(tuple(values))] += diff
        assert +state == Counter(map(exact, table.lake.sql(query).rows)), query


@written_by(COPY_V1, VECTORS_V3, soak=[PARTITION_V2])
def test_history_begins_at_the_oldest_remaining_snapshot(make_lake: LakeFactory, mode: Mode) -> None:
    table = WrittenTable.created(make_lake, mode, "id INT, v STRING")
    table.run("INSERT INTO {t} VALUES (1, 'a'), (2, 'b')", "DELETE FROM {t} WHERE id = 1")
    table.run("UPDATE {t} SET v = 'c' WHERE id = 2")
    first, second, last = table.versions
    table.call("expire_snapshots", "older_than => TIMESTAMP '2100-01-01', retain_last => 1")
    assert table.subscribe(f"AS OF {last.mz_timestamp}").rows == [(last.mz_timestamp, 1, 2, "c")]
    for version in (first, second):
        with pytest.raises(NotReadable) as refused:
            table.subscribe(f"AS OF {version.mz_timestamp}")
        assert str(last.mz_timestamp) in f"{refused.value.detail} {refused.value.hint}"
    table.run("DELETE FROM {t} WHERE id = 2")
    assert table.changes() == [[(1, 2, "c")], [(-1, 2, "c")]]


def test_a_table_without_rows_has_no_diffs(make_lake: LakeFactory) -> None:
    table = WrittenTable.created(make_lake, VECTORS_V3, "id INT")
    result = table.subscribe("")
    assert (result.columns, result.rows) == (("mz_timestamp", "mz_diff", "id"), [])
    assert table.lake.sql(f"SUBSCRIBE (SELECT count(*) AS n FROM {NAME})").rows[0][1:] == (1, 0)
    table.run("INSERT INTO {t} SELECT 1 WHERE false", "INSERT INTO {t} VALUES (1)", "DELETE FROM {t} WHERE id = 2")
    assert [diffs for diffs in table.changes() if diffs] == [[(1, 1)]]


def test_a_recreated_table_has_no_history_of_its_namesake(make_lake: LakeFactory) -> None:
    table = WrittenTable.created(make_lake, VECTORS_V3, "id INT, v STRING")
    table.run("INSERT INTO {t} VALUES (1, 'a')", "DELETE FROM {t} WHERE id = 1")
    before, _ = table.versions
    table.changes()
    table.run("DROP TABLE {t} PURGE")
    table.create(VECTORS_V3, "v STRING, id BIGINT")
    table.run("INSERT INTO {t} VALUES ('b', 2)", "DELETE FROM {t} WHERE id = 2")
    assert table.changes() == [[(1, "b", 2)], [(-1, "b", 2)]]
    with pytest.raises(NotReadable):
        table.subscribe(f"AS OF {before.mz_timestamp}")
