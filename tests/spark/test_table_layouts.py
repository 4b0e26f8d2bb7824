"""Partitioned and sorted tables, and those of format version 2, have the rows and the history that other tables have."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

from lakehold.lake import Lake
from lakehold.maintenance.file_layout import SMALL_FILES_MOST
from tests import recorded_files
from tests.conftest import LakeFactory
from tests.connect_converters import json_record, struct
from tests.debezium_messages import Topic

pytestmark = pytest.mark.spark

COLUMNS = "(id BIGINT, day DATE, region STRING, n INT)"
DAYS = ["2024-01-01", "2024-01-31", "2024-02-01", None]
REGIONS = ["eu", "a/b=c?", "", None]
LAYOUTS = {
    "plain": "",
    "by_day": "WITH (PARTITIONED BY (day(day), region))",
    "by_key": "WITH (PARTITIONED BY (truncate(4, id), n), SORTED BY (region DESC, n))",
    "of_version_2": "WITH (PARTITIONED BY (month(day), bucket(2, id)), SORTED BY (n), FORMAT VERSION = 2)",
}

Row = tuple[Any, ...]


class Feed:
    """A source `feed` of recorded files with the topic `t`, which feeds a table `s.<layout>` of each layout."""

    def __init__(self, lake: Lake, directory: Path) -> None:
        self.lake, self.file, self.offset = lake, directory / "t.jsonl", 0
        self.rows: dict[int, Row] = {}
        self.timestamp_ms = 0
        directory.mkdir()
        lake.sql(f"CREATE SOURCE feed FROM FILES '{directory}' FORMAT JSON")
        for name, options in LAYOUTS.items():
            lake.sql(f"CREATE TABLE s.{name} {COLUMNS} FROM SOURCE feed (TOPIC 't') ENVELOPE UPSERT {options}")

    def ingest(self, changes: dict[int, Row | None]) -> Counter[Row]:
        """Set or delete rows by id in one batch; returns the diffs that it makes."""
        diffs: Counter[Row] = Counter()
        for id_, row in changes.items():
            value = None if row is None else json.dumps(dict(zip(("id", "day", "region", "n"), row, strict=True)))
            key = json.dumps({"id": id_}).encode()
            line = recorded_files.line("t", 0, self.offset, None if value is None else value.encode(), key)
            recorded_files.append(self.file, [line])
            self.offset += 1
            before = self.rows.pop(id_, None)
            if before is not None:
                diffs[typed(before)] -= 1
            if row is not None:
                self.rows[id_] = row
                diffs[typed(row)] += 1
        (report,) = self.lake.ingest("feed")
        assert not report.stopped
        self.timestamp_ms = report.timestamp_ms
        return Counter({row: diff for row, diff in diffs.items() if diff})

    def expected(self) -> list[Row]:
        return sorted(map(typed, self.rows.values()))


def typed(row: Row) -> Row:
    id_, day, region, n = row
    return id_, None if day is None else date.fromisoformat(day), region, n


def drawn(random: Random) -> dict[int, Row | None]:
    ids = random.sample(range(8), 6)
    rows = ((i, random.choice(DAYS), random.choice(REGIONS), random.choice([1, 2, None])) for i in ids)
    return {row[0]: row if random.random() < 0.75 else None for row in rows}


def test_rows_move_between_partitions_and_history_and_holds_show_it(lake: Lake, tmp_path: Path) -> None:
    random = Random(7)
    feed = Feed(lake, tmp_path / "feed")
    tables = [f"s.{name}" for name in LAYOUTS]
    diffs = [feed.ingest({id_: (id_, *random.choice([("2024-01-01", "eu"), (None, None)]), 1) for id_ in range(8)})]
    diffs.append(feed.ingest(drawn(random)))
    lake.sql(f"CREATE HOLD month_end ON {', '.join(tables)} AT {feed.timestamp_ms}")
    held = feed.expected()
    diffs.append(feed.ingest(drawn(random)))
    times = sorted({row[0] for row in lake.sql(f"SUBSCRIBE {tables[0]} AS OF EARLIEST UP TO {2**60}").rows})
    wanted = Counter({(at, row): n for at, found in zip(times, diffs, strict=True) for row, n in found.items()})
    for name, table in zip(LAYOUTS, tables, strict=True):
        assert sorted(lake.sql(f"SELECT * FROM {table}").rows) == feed.expected(), name
        assert sorted(lake.sql(f"SELECT * FROM {table} VERSION AS OF 'hold_month_end'").rows) == held, name
        shown: Counter[tuple[int, Row]] = Counter()
        for at, diff, *row in lake.sql(f"SUBSCRIBE {table} AS OF EARLIEST UP TO {2**60}").rows:
            shown[at, tuple(row)] += diff
        assert shown == wanted, name
        assert lake.catalog.load_table(table).format_version == (2 if name == "of_version_2" else 3)
    (file, *_) = [task.file for task in lake.catalog.load_table("s.by_key").scan().plan_files()]
    assert file.sort_order_id != 0
    spec = lake.catalog.load_table("s.by_day").spec()
    assert [field.name for field in spec.fields] == ["day_day", "region"]
    assert all(pq.read_metadata(path).num_rows for path in tmp_path.rglob("region=a%2Fb%3Dc%3F/*.parquet"))


def test_a_column_that_upstream_drops_partitions_by_null_and_one_that_is_missing_stops_the_table(
    lake: Lake, tmp_path: Path
) -> None:
    fields: dict[str, Any] = {"id": {"type": "int64"}, "region": {"type": "string", "optional": True}}
    file = tmp_path / "feed" / "t.jsonl"
    file.parent.mkdir()
    lake.sql(f"CREATE SOURCE feed FROM FILES '{file.parent}' FORMAT JSON")
    table = "FROM SOURCE feed (TOPIC 't') ENVELOPE UPSERT WITH"
    lake.sql(f"CREATE TABLE s.t {table} (PARTITIONED BY (region)); CREATE TABLE s.u {table} (SORTED BY (country))")
    messages: list[tuple[list[str], list[Any]]] = [
        (["id", "region"], [1, "eu"]),
        (["id", "region"], [2, "eu"]),
        (["id"], [1]),
    ]
    for offset, (names, row) in enumerate(messages):
        value = json_record(struct("Row", {name: fields[name] for name in names}), dict(zip(names, row, strict=True)))
        key = json_record(struct("Key", {"id": fields["id"]}), {"id": row[0]})
        recorded_files.append(file, [recorded_files.line("t", 0, offset, value, key)])
        stopped = [error for report in lake.ingest("feed") for error in report.stopped.values()]
    assert sorted(lake.sql("SELECT * FROM s.t").rows) == [(1, None), (2, "eu")]
    assert {error.code for error in stopped} == {"layout-unfit"}
    assert stopped[-1].message == 'table "s.u" has no column "country", by which it is to be sorted'


def test_a_snapshot_taken_again_replaces_rows_of_all_partitions(lake: Lake, tmp_path: Path) -> None:
    topic = Topic("t", {"id": {"type": "int64"}, "region": {"type": "string"}})
    directory = tmp_path / "topics"
    directory.mkdir()
    lake.sql(f"CREATE SOURCE feed FROM FILES '{directory}' FORMAT JSON")
    lake.sql("CREATE TABLE s.t FROM SOURCE feed (TOPIC 't') ENVELOPE DEBEZIUM WITH (PARTITIONED BY (region))")
    options = "FORMAT VERSION 2, PARTITIONED BY (region), SORTED BY (id DESC)"
    lake.sql(f"CREATE MATERIALIZED VIEW bi.v KEY (id) WITH ({options}) AS SELECT id, region FROM s.t")
    assert "SORTED BY (id DESC)" in lake.sql("SHOW CREATE MATERIALIZED VIEW bi.v").rows[0][1]
    topic.snapshot([{"id": 1, "region": "eu"}, {"id": 2, "region": "us"}, {"id": 3, "region": "eu"}])
    topic.update({"id": 1, "region": "eu"}, {"id": 1, "region": "us"})
    topic.write(directory)
    lake.ingest("feed")
    assert sorted(lake.sql("SELECT * FROM s.t").rows) == [(1, "us"), (2, "us"), (3, "eu")]
    lake.publish("bi.v")
    topic.lsn += 10
    topic.snapshot([{"id": 1, "region": "eu"}, {"id": 4, "region": "us"}])
    topic.write(directory)
    lake.ingest("feed")
    lake.publish("bi.v")
    for table in ("s.t", "bi.v"):
        assert sorted(lake.sql(f"SELECT * FROM {table}").rows) == [(1, "eu"), (4, "us")]
    view = lake.catalog.load_table("bi.v")
    assert (view.format_version, [field.name for field in view.spec().fields]) == (2, ["region"])


def test_maintenance_keeps_the_layout_the_rows_and_the_history(make_lake: LakeFactory, tmp_path: Path) -> None:
    lake = make_lake(foreign_lag_ms=50, retain_history_ms=0, expire_grace_ms=0)
    file, tables = tmp_path / "feed" / "t.jsonl", ["s.new", "s.old"]
    file.parent.mkdir()
    lake.sql(f"CREATE SOURCE feed FROM FILES '{file.parent}' FORMAT JSON")
    for table, version in zip(tables, (3, 2), strict=True):
        options = f"PARTITIONED BY (region), SORTED BY (n DESC), FORMAT VERSION = {version}"
        lake.sql(f"CREATE TABLE {table} {COLUMNS} FROM SOURCE feed (TOPIC 't') ENVELOPE UPSERT WITH ({options})")
    rows = []
    for offset in range(SMALL_FILES_MOST + 2):
        # Each batch writes a file of one partition; rows 0 and 1 move to it from another one.
        id_, region = offset - 2 if offset in (2, 3) else offset, "us" if offset < 2 else "eu"
        row = {"id": id_, "day": None, "region": region, "n": offset}
        key = json.dumps({"id": row["id"]}).encode()
        recorded_files.append(file, [recorded_files.line("t", 0, offset, json.dumps(row).encode(), key)])
        (report,) = lake.ingest("feed")
        rows = sorted(lake.sql("SELECT * FROM s.new").rows)
        if offset == SMALL_FILES_MOST:
            lake.sql(f"CREATE HOLD kept ON s.new, s.old AT {report.timestamp_ms}")
            held = rows
    changes = {table: lake.sql(f"SUBSCRIBE {table} AS OF EARLIEST UP TO {2**60}").rows for table in tables}
    reports = {done.table: done for done in lake.maintain(tables)}
    for table, version in zip(tables, (3, 2), strict=True):
        done, loaded = reports[table], lake.catalog.load_table(table)
        assert done.error is None
        assert done.rewritten >= SMALL_FILES_MOST
        assert sorted(lake.sql(f"SELECT * FROM {table}").rows) == rows
        assert sorted(lake.sql(f"SELECT * FROM {table} VERSION AS OF 'hold_kept'").rows) == held
        since = lake.sql(f"SUBSCRIBE {table} AS OF EARLIEST UP TO {2**60}").rows
        assert since[-1] == changes[table][-1], "the change since the hold is the same"
        assert (loaded.format_version, [field.name for field in loaded.spec().fields]) == (version, ["region"])
        paths = [task.file.file_path.removeprefix("file:") for task in loaded.scan().plan_files()]
        assert all("/region=" in path for path in paths)
        for path in paths:
            numbers = pq.read_table(re.sub("^/+", "/", path), columns=["n"])["n"].to_pylist()
            assert numbers == sorted(numbers, reverse=True)
