"""Maintenance of real tables never deletes held history, foreign tables' history, or files that a writer is about to use."""

from __future__ import annotations

import io
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings

from lakehold.cli.command_output import OutputFormat, open_output
from lakehold.cli.maintain import run_maintain
from lakehold.errors import LakeholdError
from lakehold.holds.commands import NewHold
from lakehold.lake import Lake
from lakehold.maintenance import maintain
from lakehold.maintenance.file_layout import SMALL_FILES_MOST
from lakehold.maintenance.maintain import MaintenanceReport
from lakehold.maintenance.procedures import ORPHANS_SEARCHED_PROPERTY, Procedures, is_file_gone
from lakehold.maintenance.survey import ORPHANS_EVERY_MS
from lakehold.progress import NoProgress
from lakehold.state.iceberg_state import IcebergState
from lakehold.state.read_lease_store import ReadLeaseStore, StoredReadLease
from lakehold.timeline.versions import versions
from lakehold.times import now_ms
from tests import recorded_files
from tests.conftest import LakeFactory
from tests.random_histories import DELETES_LEFT_BEHIND, FORMATS, PLACES, Change, histories, made, one_of

pytestmark = pytest.mark.spark

NOW = {"foreign_lag_ms": 50, "retain_history_ms": 0, "expire_grace_ms": 0}
"""Settings of a lake that keeps only the history that somebody needs."""

EVERYTHING = "older_than => TIMESTAMP '2100-01-01', retain_last => 1"
"""Arguments of the most aggressive expire_snapshots."""

OF_FIRST = {"expire_snapshots": ", snapshot_ids => array({}L)", "remove_orphan_files": ""}
"""Further arguments that make a procedure read the manifest list of a snapshot."""

OLD_S = 10 * 24 * 60 * 60
NAME = "shop.t"


def table_of(lake: Lake, version: int = 3, batches: int = SMALL_FILES_MOST + 2) -> None:
    """Create a table of `batches` small files with some deleted rows."""
    properties = f"'format-version' = '{version}', 'write.delete.mode' = 'merge-on-read'"
    lake.sql(f"""
        CREATE NAMESPACE IF NOT EXISTS shop;
        CREATE TABLE {NAME} (id BIGINT, v STRING) USING iceberg TBLPROPERTIES ({properties})
    """)
    for number in range(batches):
        lake.sql(f"INSERT INTO {NAME} VALUES ({number}, 'a'), ({number + 100}, 'b'), ({number + 200}, 'c')")
    lake.sql(f"DELETE FROM {NAME} WHERE id IN (1, 102)")
    newest = times(lake)[-1]
    while lake.timelines.of([NAME])[NAME].upper_ms <= newest:
        pass  # the last write is readable only after the clock has passed its timestamp


def times(lake: Lake, source: str | None = None) -> list[int]:
    return [version.mz_timestamp for version in versions(lake.catalog.load_table(NAME), source)]


def hold(lake: Lake, at_ms: int) -> None:
    lake.holds.create(NewHold("kept", None, (NAME,), at_ms=at_ms))


def snapshots(lake: Lake) -> int:
    return len(lake.catalog.load_table(NAME).metadata.snapshots)


def tags(lake: Lake) -> set[str]:
    return lake.catalog.load_table(NAME).metadata.refs.keys() - {"main"}


@pytest.mark.parametrize("version", [3, pytest.param(2, marks=pytest.mark.soak)])
def test_a_hold_keeps_its_history_from_maintenance_and_from_other_tools(make_lake: LakeFactory, version: int) -> None:
    lake = make_lake(**NOW)
    table_of(lake, version)
    at_ms = times(lake)[4]
    hold(lake, at_ms)
    before = lake.sql(f"SUBSCRIBE {NAME} AS OF {at_ms}").rows
    (report,) = lake.maintain([NAME])
    assert report.error is None
    assert report.snapshots == 4
    assert report.files
    assert report.rewritten > SMALL_FILES_MOST
    lake.sql(f"CALL system.expire_snapshots(table => '{NAME}', {EVERYTHING})")
    assert lake.sql(f"SUBSCRIBE {NAME} AS OF {at_ms}").rows == before

    lake.holds.drop("kept")
    assert tags(lake) == set()
    lake.maintain([NAME])
    assert (snapshots(lake), tags(lake)) == (1, set())
    assert lake.sql(f"SELECT count(*), sum(id) FROM {NAME}").rows == [(len_left(before), sum_left(before))]


def len_left(diffs: list[tuple[int, ...]]) -> int:
    return sum(diff[1] for diff in diffs)


def sum_left(diffs: list[tuple[int, ...]]) -> int:
    return sum(diff[1] * diff[2] for diff in diffs)


def test_maintaining_again_finds_nothing_to_do(make_lake: LakeFactory) -> None:
    lake = make_lake(**NOW)
    table_of(lake)
    lake.maintain([NAME])
    lake.maintain([NAME])
    (report,) = lake.maintain([NAME])
    assert (report.snapshots, report.files, report.rewritten, report.orphans, report.tags) == (0, 0, 0, 0, 0)


def test_files_of_deletes_are_not_compacted_into_as_many(make_lake: LakeFactory) -> None:
    lake = make_lake(**NOW)
    layout = "'format-version' = '2', 'write.delete.mode' = 'merge-on-read', 'write.delete.granularity' = 'file'"
    no_file_is_small = "'write.target-file-size-bytes' = '1'"
    lake.sql(f"""
        CREATE NAMESPACE shop;
        CREATE TABLE {NAME} (id BIGINT) USING iceberg TBLPROPERTIES ({layout}, {no_file_is_small})
    """)
    for number in range(SMALL_FILES_MOST):
        lake.sql(f"INSERT INTO {NAME} SELECT id FROM range({number * 10}, {number * 10 + 10}, 1, 1)")
    lake.sql(f"DELETE FROM {NAME} WHERE id % 10 = 0")
    assert lake.sql(f"SELECT count(*) FROM {NAME}.delete_files").rows == [(SMALL_FILES_MOST,)]
    assert [(report.rewritten, report.error) for report in lake.maintain([NAME])] == [(0, None)]


def test_a_dry_run_reports_its_plan_and_changes_nothing(make_lake: LakeFactory) -> None:
    lake = make_lake(**NOW)
    table_of(lake)
    metadata = lake.catalog.load_table(NAME).metadata_location
    (foreseen,) = lake.maintain([NAME], dry_run=True)
    assert lake.catalog.load_table(NAME).metadata_location == metadata
    (done,) = lake.maintain([NAME])
    assert (foreseen.snapshots, foreseen.rewritten) == (done.snapshots, done.rewritten)


def test_a_running_read_keeps_the_history_it_needs(make_lake: LakeFactory) -> None:
    lake = make_lake(**NOW)
    table_of(lake, batches=3)
    reads = ReadLeaseStore(IcebergState(lake.catalog))
    reads.put(StoredReadLease("slow", ("shop.other", NAME), times(lake)[1], now_ms() + 600_000))
    assert [report.snapshots for report in lake.maintain([NAME])] == [1]
    reads.remove("slow")
    assert [report.snapshots for report in lake.maintain([NAME])] == [3], "all snapshots but the one of the compaction"


def test_history_within_retention_and_grace_is_kept(make_lake: LakeFactory) -> None:
    for kept in ({"retain_history_ms": 60_000}, {"expire_grace_ms": 60_000}):
        lake = make_lake(**{**NOW, **kept})
        table_of(lake, batches=2)
        (report,) = lake.maintain([NAME])
        assert (report.snapshots, report.error) == (0, None)


def test_foreign_tables_are_maintained_only_when_they_say_how_much_to_keep(make_lake: LakeFactory) -> None:
    lake = make_lake(**NOW)
    table_of(lake)
    assert NAME not in {report.table for report in lake.maintain()}
    assert snapshots(lake) == SMALL_FILES_MOST + 3

    hold(lake, times(lake)[-1])
    lake.sql(f"INSERT INTO {NAME} VALUES (7, 'later')")
    assert len(tags(lake)) == 1
    assert {report.error for report in lake.maintain()} == {None}
    assert (snapshots(lake), len(tags(lake))) == (SMALL_FILES_MOST + 4, 2), (
        "a held foreign table is tagged and not maintained"
    )

    lake.sql(f"ALTER TABLE {NAME} SET (RETAIN HISTORY = '1 ms')")
    assert NAME in {report.table for report in lake.maintain()}
    assert snapshots(lake) < SMALL_FILES_MOST
    lake.sql(f"ALTER TABLE {NAME} RESET (RETAIN HISTORY)")
    assert NAME not in lake.catalog.load_table(NAME).properties


def test_unreferenced_files_are_deleted_once_they_are_old(make_lake: LakeFactory) -> None:
    """Clean up tables whose metadata PyIceberg wrote, since it spells paths in its own way."""
    lake = make_lake(**NOW)
    table_of(lake, batches=2)
    hold(lake, times(lake)[1])
    assert tags(lake)
    warehouse = Path(lake.settings.warehouse.removeprefix("file://"))
    left_behind = [warehouse / "shop/t/data/a.parquet", warehouse / "mz_catalog/mz_batches/metadata/a-m0.avro"]
    young = warehouse / "shop/t/data/young.parquet"
    for path in (*left_behind, young):
        path.write_bytes(b"left behind")
    for path in warehouse.rglob("*"):
        if path != young:
            os.utime(path, (now_ms() / 1000 - OLD_S,) * 2)
    (foreseen,) = lake.maintain([NAME], dry_run=True)
    assert foreseen.orphans == 1
    assert all(path.exists() for path in left_behind)
    reports = lake.maintain([NAME, "mz_catalog.mz_batches", "mz_catalog.mz_holds"])
    assert [(report.orphans, report.error) for report in reports] == [(1, None), (1, None), (0, None)]
    assert [path.exists() for path in (*left_behind, young)] == [False, False, True]
    assert lake.sql(f"SELECT count(*) FROM {NAME}").rows == [(5,)]
    assert [h.name for h in lake.holds.all()] == ["kept"]


@pytest.mark.parametrize(("name", "listings"), [("a.parquet", 1), ("a?b.parquet", 2)])
def test_a_search_for_orphans_lists_the_store_once_unless_only_spark_can_delete_them(
    make_lake: LakeFactory, monkeypatch: pytest.MonkeyPatch, name: str, listings: int
) -> None:
    lake = make_lake(**NOW)
    table_of(lake, batches=1)
    path = Path(lake.settings.warehouse.removeprefix("file://")) / "shop/t/data" / name
    path.write_bytes(b"left behind")
    os.utime(path, (now_ms() / 1000 - OLD_S,) * 2)
    listed: list[bool] = []
    remove = Procedures.remove_orphan_files

    def counted(of: Procedures, full_name: str, before_ms: int, *, dry_run: bool) -> list[str]:
        listed.append(dry_run)
        return remove(of, full_name, before_ms, dry_run=dry_run)

    monkeypatch.setattr(Procedures, "remove_orphan_files", counted)
    assert [report.orphans for report in lake.maintain([NAME])] == [1]
    assert not path.exists()
    assert len(listed) == listings


def test_orphans_are_searched_once_a_day_or_on_request(make_lake: LakeFactory) -> None:
    lake = make_lake(**NOW)
    table_of(lake, batches=1)
    lake.sql(f"ALTER TABLE {NAME} SET (RETAIN HISTORY = '1 day')")
    warehouse = Path(lake.settings.warehouse.removeprefix("file://"))
    paths = [warehouse / "shop/t/data/a.parquet", warehouse / "mz_catalog/mz_batches/metadata/a-m0.avro"]

    def found(*, dry_run: bool = False, orphans: bool = False) -> list[int]:
        for path in paths:
            path.write_bytes(b"left behind")
            os.utime(path, (now_ms() / 1000 - OLD_S,) * 2)
        counts = {report.table: report.orphans for report in lake.maintain(dry_run=dry_run, orphans=orphans)}
        return [counts[NAME], counts["mz_catalog.mz_batches"]]

    assert found(dry_run=True) == [1, 1], "a dry run searches orphans without recording the time"
    assert found() == [1, 1]
    assert found() == [0, 0]
    assert found(orphans=True, dry_run=True) == [1, 1]
    assert found(orphans=True) == [1, 1]
    assert [report.orphans for report in lake.maintain([NAME])] == [0]
    yesterday = now_ms() - ORPHANS_EVERY_MS
    lake.sql(f"ALTER TABLE {NAME} SET TBLPROPERTIES ('{ORPHANS_SEARCHED_PROPERTY}' = '{yesterday}')")
    assert found() == [1, 0]


def test_old_records_of_healed_errors_are_deleted(make_lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete old healed errors, and keep open errors however old they are."""
    lake = make_lake(**NOW)
    name, errors = lake.settings.catalog_name, "mz_catalog.mz_source_errors"
    for offset, healed_at in enumerate(("5", "NULL", "9")):
        lake.spark.sql(
            f"INSERT INTO {name}.{errors} VALUES ('s', 'shop.t', 't', 0, {offset}, 1, NULL, NULL, NULL, 'r', NULL, {healed_at})"
        )
    monkeypatch.setattr(maintain, "KEPT_MS", 0)
    survey = lake._parts.maintaining.survey
    monkeypatch.setattr(
        lake._parts, "maintaining", replace(lake._parts.maintaining, survey=replace(survey, clock=lambda: 9))
    )
    assert {report.table: report.rows for report in lake.maintain(dry_run=True)}[errors] == 1
    assert {report.table: report.rows for report in lake.maintain()}[errors] == 1
    assert lake.sql(f"SELECT offset FROM {errors} ORDER BY offset").rows == [(1,), (2,)]


def test_a_table_without_a_complete_snapshot_is_skipped_and_named(make_lake: LakeFactory, tmp_path: Path) -> None:
    lake = make_lake(**NOW)
    lake.sql(f"""
        CREATE SOURCE feed FROM FILES '{tmp_path}' FORMAT JSON;
        CREATE TABLE {NAME} (id BIGINT) FROM SOURCE feed (TOPIC 't') KEY (id) ENVELOPE UPSERT
    """)
    out, err = io.StringIO(), io.StringIO()
    lake.catalog.create_namespace_if_not_exists("shop")
    lake.catalog.create_table(NAME, pa.schema([("id", pa.int64())]))
    output = open_output(OutputFormat.CSV, out, err)
    assert run_maintain(lake, [], output, NoProgress(), dry_run=False, orphans=False)
    assert f'notice: skipped {NAME}: "{NAME}" is not readable yet\n' in err.getvalue()


def test_two_concurrent_maintenances_of_a_table_succeed(make_lake: LakeFactory) -> None:
    lake = make_lake(**NOW)
    table_of(lake)
    other = make_lake(lake.settings.warehouse_path, **NOW, catalog_name=lake.settings.catalog_name)
    at_ms = times(lake)[4]
    hold(lake, at_ms)
    rows = lake.sql(f"SELECT * FROM {NAME} ORDER BY id").rows
    before = lake.sql(f"SUBSCRIBE {NAME} AS OF {at_ms}").rows
    for _ in range(2):
        ready = threading.Barrier(2)

        def maintained(one: Lake, ready: threading.Barrier = ready) -> list[MaintenanceReport]:
            ready.wait()
            return one.maintain([NAME, "mz_catalog.mz_batches"])

        with ThreadPoolExecutor(2) as both:
            reports = [report for done in both.map(maintained, (lake, other)) for report in done]
        assert [report.error for report in reports] == [None] * 4
        assert lake.sql(f"SELECT * FROM {NAME} ORDER BY id").rows == rows
        assert lake.sql(f"SUBSCRIBE {NAME} AS OF {at_ms}").rows == before
        for number in range(SMALL_FILES_MOST + 1):
            lake.sql(f"INSERT INTO {NAME} VALUES ({number + 1000}, 'more')")
        rows = lake.sql(f"SELECT * FROM {NAME} ORDER BY id").rows
        before = lake.sql(f"SUBSCRIBE {NAME} AS OF {at_ms}").rows
    assert all(
        Path(path).exists() for (path,) in lake.sql(f"SELECT replace(file_path, 'file:') FROM {NAME}.files").rows
    )


@pytest.mark.parametrize("procedure", ["expire_snapshots", "remove_orphan_files"])
def test_a_file_that_another_maintenance_deleted_is_recognized_by_the_error_of_spark(
    make_lake: LakeFactory, procedure: str
) -> None:
    lake = make_lake(**NOW)
    table_of(lake, batches=2)
    first = lake.catalog.load_table(NAME).metadata.snapshots[0]
    Path(first.manifest_list.removeprefix("file:")).unlink()
    arguments = "older_than => TIMESTAMP '2020-01-01'" + OF_FIRST[procedure].format(first.snapshot_id)
    with pytest.raises(LakeholdError) as raised:
        lake.sql(f"CALL system.{procedure}(table => '{NAME}', {arguments})")
    assert is_file_gone(f"{raised.value.message} {raised.value.detail}")


def test_a_failing_table_does_not_stop_the_maintenance_of_the_others(make_lake: LakeFactory) -> None:
    lake = make_lake(**NOW)
    table_of(lake)
    missing, there = lake.maintain(["shop.missing", NAME])
    assert missing.error is not None
    assert missing.error.code == "table-missing"
    assert there.error is None
    assert there.snapshots


def test_a_fed_table_goes_on_after_its_history_was_cut(make_lake: LakeFactory, tmp_path: Path) -> None:
    lake = make_lake(**NOW)
    topics = tmp_path / "topics"
    lake.sql(f"""
        CREATE SOURCE feed FROM FILES '{topics}' FORMAT JSON;
        CREATE TABLE {NAME} (id BIGINT, v STRING) FROM SOURCE feed (TOPIC 't') KEY (id) ENVELOPE UPSERT
          WITH (BUCKETS = 1, RETAIN HISTORY = '2 days')
    """)
    assert "RETAIN HISTORY '2d'" in lake.sql(f"SHOW CREATE TABLE {NAME}").rows[0][1]

    def batch(number: int) -> None:
        key, value = json.dumps({"id": number % 7}).encode(), json.dumps({"id": number % 7, "v": f"{number}"}).encode()
        recorded_files.append(topics / "t.jsonl", [recorded_files.line("t", 0, number, value, key)])
        assert not lake.ingest("feed")[-1].stopped

    for number in range(SMALL_FILES_MOST + 2):
        batch(number)
    (report,) = lake.maintain([NAME])
    assert (report.snapshots, report.error) == (0, None), "two days"
    assert report.rewritten > SMALL_FILES_MOST

    lake.sql(f"ALTER TABLE {NAME} SET (RETAIN HISTORY = '1 ms')")
    batch(20)
    batch(21)
    before = times(lake, "feed")
    assert {r.error for r in lake.maintain()} == {None}
    kept = times(lake, "feed")
    assert kept == before[-len(kept) :]
    assert snapshots(lake) < SMALL_FILES_MOST
    batch(22)
    rows = dict.fromkeys(range(7))
    for _, diff, key, value in lake.sql(f"SUBSCRIBE {NAME} AS OF {kept[0]}").rows:
        rows[key] = value if diff > 0 else rows[key]
    assert rows == {0: "21", 1: "22", 2: "9", 3: "3", 4: "4", 5: "5", 6: "20"}


@settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(changes=histories("s.t"), layout=FORMATS, place=PLACES)
@example(changes=DELETES_LEFT_BEHIND, layout=(2, "merge-on-read"), place=0)
def test_random_histories_read_the_same_from_their_hold_on(
    make_lake: LakeFactory, changes: list[tuple[str, Change]], layout: tuple[int, str], place: int
) -> None:
    lake = make_lake(**NOW)
    past = made(lake, changes, False, layout)
    at_ms = one_of(past.readable(["s.t"])[-4:], place)
    lake.holds.create(NewHold("kept", None, ("s.t",), at_ms=at_ms))
    before = lake.sql(f"SUBSCRIBE s.t AS OF {at_ms}").rows
    (report,) = lake.maintain(["s.t"])
    assert report.error is None
    lake.sql(f"CALL system.expire_snapshots(table => 's.t', {EVERYTHING})")
    assert lake.sql(f"SUBSCRIBE s.t AS OF {at_ms}").rows == before
