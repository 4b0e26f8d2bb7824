"""A lake in an object store that is slow, busy, shared with other files, or refuses: what test_catalogs.py does not meet."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io import load_file_io

import lakehold
from lakehold.errors import UpstreamUnavailable
from lakehold.iceberg.deletion import wait_for_deletions
from lakehold.lake import Lake
from lakehold.quality.pages import Pages
from lakehold.state.hold_checks import HoldCheck
from lakehold.state.schema_files import system_tables
from lakehold.times import now_ms
from tests import faulty_s3
from tests.catalog_servers import s3_server
from tests.conftest import LakeFactory
from tests.recorded_files import append, line
from tests.s3_server import S3Server

__all__ = ["s3_server"]

pytestmark = [pytest.mark.spark, pytest.mark.stack]

KEEP_NOTHING = {"foreign_lag_ms": 0, "retain_history_ms": 0, "expire_grace_ms": 0}
LONG_AGO_S = now_ms() / 1_000 - timedelta(days=40).total_seconds()


def feed(lake: Lake, directory: Path, *tables: str) -> None:
    """Create tables of one source."""
    lake.sql(f"CREATE SOURCE feed FROM FILES '{directory}' FORMAT JSON")
    for name in tables:
        lake.sql(
            f"CREATE TABLE shop.{name} (id BIGINT, v STRING) FROM SOURCE feed (TOPIC '{name}') KEY (id) ENVELOPE UPSERT"
        )


def send(directory: Path, topic: str, offset: int, id_: int, value: str) -> None:
    body: dict[str, Any] = {"id": id_, "v": value}
    append(directory / f"{topic}.jsonl", [line(topic, 0, offset, json.dumps(body).encode(), b'{"id":%d}' % id_)])


def write(lake: Lake, path: str) -> None:
    """Write a file below the warehouse."""
    location = f"{lake.settings.warehouse}/{path}"
    with load_file_io(lake.catalog.properties, location).new_output(location).create() as file:
        file.write(b"content")


def make_old(server: S3Server, lake: Lake) -> None:
    """Make all files of a lake look as if they were written long ago."""
    for path in server.files(lake.settings.warehouse):
        os.utime(path, (LONG_AGO_S, LONG_AGO_S))


def test_pages_of_checks_are_written_and_forgotten(make_lake: LakeFactory, s3_server: S3Server, tmp_path: Path) -> None:
    lake = make_lake(**s3_server.new_lake(tmp_path))
    directory = lake.settings.check_pages_uri
    for name in ("old", "linked", "new"):
        write(lake, f"_checks/shop.items/{name}.html")
    for path in s3_server.files(directory):
        if path.stem != "new":
            os.utime(path, (LONG_AGO_S, LONG_AGO_S))
    pages = Pages(directory, load_file_io(lake.catalog.properties, directory))
    before_ms = now_ms() - int(timedelta(days=1).total_seconds() * 1_000)
    named = {f"{directory}/shop.items/{name}.html" for name in ("old", "new", "gone")}
    assert not pages.delete(pages.unneeded(before_ms, named))
    assert [path.stem for path in s3_server.files(directory)] == ["linked", "new"]


def test_a_slow_and_busy_store_loses_nothing(make_lake: LakeFactory, s3_server: S3Server, tmp_path: Path) -> None:
    """Run batches, reads, a view and maintenance on a store that takes 20 ms a request and answers 503 to 5 % of them."""
    with faulty_s3.in_front_of(s3_server.endpoint, delay_s=0.02, failing=0.05) as store:
        place = s3_server.new_lake(tmp_path, store.endpoint)
        place["catalog_properties"] |= {
            "s3.retry.min-wait-ms": "20",
            "s3.multipart.part-size-bytes": str(5 * 2**20),
            "s3.multipart.threshold": "1",
        }
        lake = make_lake(**place, **KEEP_NOTHING)
        feed(lake, tmp_path / "topics", "items")
        for offset, value in enumerate(("a", "b", "c")):
            send(tmp_path / "topics", "items", offset, offset % 2, value)
            (batch,) = lake.ingest("feed")
            assert not batch.stopped
            if offset == 0:
                first_ms = batch.timestamp_ms
                lake.sql(
                    "CREATE HOLD h ON shop.items; "
                    "CREATE MATERIALIZED VIEW shop.seen KEY (id) AS SELECT id, upper(v) AS v FROM shop.items"
                )
        assert len(lake.publish("shop.seen")) == 3
        assert lake.verify("shop.seen").is_equal
        lake.sql(
            "CREATE TABLE shop.big USING iceberg AS SELECT id, sha2(string(id), 512) AS v FROM range(0, 150000, 1, 1)"
        )
        held = lake.sql(f"SUBSCRIBE shop.items AS OF {first_ms}").rows
        assert [str(report.error) for report in lake.maintain(["shop.items", "shop.big"])] == ["None", "None"]
        assert sorted(row[1:] for row in held) == [(-1, 0, "a"), (1, 0, "a"), (1, 0, "c"), (1, 1, "b")]
        assert sorted(lake.sql("SELECT * FROM shop.items").rows) == [(0, "c"), (1, "b")]
        assert lake.sql("SELECT * FROM shop.items VERSION AS OF 'hold_h'").rows == [(0, "a")]
        rows = lake.catalog.load_table("shop.big").scan().to_arrow()
        assert rows.num_rows == 150_000
    assert store.further_parts > 0
    assert store.statuses[503] > 0


def test_a_change_of_the_state_makes_four_requests_and_reads_nothing_again(
    make_lake: LakeFactory, s3_server: S3Server, tmp_path: Path
) -> None:
    with faulty_s3.in_front_of(s3_server.endpoint) as store:
        lake = make_lake(**s3_server.new_lake(tmp_path, store.endpoint))
        lake.sql("CREATE CONNECTION first TO KAFKA (BROKER '127.0.0.1:1')")
        wait_for_deletions()
        before = store.requests.copy()
        lake.sql("CREATE CONNECTION second TO KAFKA (BROKER '127.0.0.1:1')")
        wait_for_deletions()
        # A file of rows, a manifest, a manifest list, and metadata.
        assert store.requests - before == {"PUT state": 4}


def test_the_metadata_of_several_tables_is_requested_side_by_side(s3_server: S3Server, tmp_path: Path) -> None:
    with faulty_s3.in_front_of(s3_server.endpoint) as store:
        place = {**s3_server.new_lake(tmp_path, store.endpoint), "catalog_name": "side_by_side"}
        names = ["shop.a", "shop.b", "shop.c"]
        with lakehold.connect(**place) as lake:
            lake.catalog.create_namespace("shop")
            for name in names:
                lake.catalog.create_table(name, pa.schema([("k", pa.int64())]))
        # The store answers only when the metadata of all tables is requested.
        of_tables = {"HEAD metadata": Barrier(len(names))}
        store.meetings = {"HEAD state": Barrier(len(system_tables())), **of_tables}
        with lakehold.connect(**place) as lake:
            store.meetings = of_tables
            assert list(lake.timelines.readable(names)) == names
        store.meetings = {}
        with lakehold.connect(**place) as lake:
            store.meetings = of_tables
            assert [report.error for report in lake.maintain(names, dry_run=True)] == [None, None, None]


def test_the_files_of_many_timestamps_are_requested_side_by_side(
    make_lake: LakeFactory, s3_server: S3Server, tmp_path: Path
) -> None:
    with faulty_s3.in_front_of(s3_server.endpoint) as store:
        place = s3_server.new_lake(tmp_path, store.endpoint)
        writer = make_lake(**place, catalog_name="ticking")
        feed(writer, tmp_path / "topics", "items")
        times = []
        for offset, value in enumerate(("a", "b", "c", "d")):
            send(tmp_path / "topics", "items", offset, 1, value)
            times += [batch.timestamp_ms for batch in writer.ingest("feed")]
        text = f"SUBSCRIBE shop.items WITH (SNAPSHOT = false) AS OF {times[0]}"
        before = store.requests.copy()
        with lakehold.connect(**place, catalog_name="ticking", spark=writer.spark) as alone:
            expected = alone.sql(text).rows
        found = store.requests - before
        assert (len(expected), found["HEAD manifest list"], found["HEAD deletes"]) == (6, 4, 3)
        # All files of a kind are requested before the store answers for one of them.
        kinds = ("HEAD manifest list", "HEAD manifest", "HEAD deletes", "HEAD data")
        store.meetings = {kind: Barrier(found[kind]) for kind in kinds}
        with lakehold.connect(**place, catalog_name="ticking", spark=writer.spark) as together:
            assert together.sql(text).rows == expected
        # A small file is one request, besides the one for its length.
        assert {kind: found[kind.replace("HEAD", "GET")] for kind in kinds} == {kind: found[kind] for kind in kinds}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"s3.secret-access-key": "wrong"}, "AWS Error"),
        ({"s3.endpoint": "http://127.0.0.1:9"}, "AWS Error NETWORK_CONNECTION"),
    ],
    ids=["credentials", "address"],
)
def test_a_store_that_refuses_is_named_with_what_to_change(
    make_lake: LakeFactory, s3_server: S3Server, tmp_path: Path, wrong: dict[str, str], message: str
) -> None:
    place = s3_server.new_lake(tmp_path)
    place["catalog_properties"] |= wrong
    with pytest.raises(UpstreamUnavailable) as refused:
        make_lake(**place).sql("SHOW TABLES")
    assert refused.value.code == "store-failed"
    assert f'the lake in "{place["warehouse"]}"' in refused.value.message
    assert message in refused.value.detail
    assert "s3.endpoint" in refused.value.hint


def test_a_table_that_the_store_denies_is_named(make_lake: LakeFactory, s3_server: S3Server, tmp_path: Path) -> None:
    with faulty_s3.in_front_of(s3_server.endpoint) as store:
        lake = make_lake(**s3_server.new_lake(tmp_path, store.endpoint))
        feed(lake, tmp_path / "topics", "items")
        send(tmp_path / "topics", "items", 0, 1, "a")
        (batch,) = lake.ingest("feed")
        store.denied = "/shop/items/data/"
        with pytest.raises(UpstreamUnavailable) as refused:
            lake.sql(f"SUBSCRIBE shop.items AS OF {batch.timestamp_ms}")
    assert (refused.value.code, 'table "shop.items"' in refused.value.message) == ("store-failed", True)
    assert "ACCESS_DENIED" in refused.value.detail


def test_a_held_table_that_the_store_denies_stops_the_maintenance_of_no_other(
    make_lake: LakeFactory, s3_server: S3Server, tmp_path: Path
) -> None:
    with faulty_s3.in_front_of(s3_server.endpoint) as store:
        place = s3_server.new_lake(tmp_path, store.endpoint)
        first = make_lake(**place, **KEEP_NOTHING)
        feed(first, tmp_path / "topics", "items", "others")
        for offset in range(3):
            for topic in ("items", "others"):
                send(tmp_path / "topics", topic, offset, 1, f"v{offset}")
            first.ingest("feed")
        first.sql("CREATE HOLD kept ON shop.items")
        store.denied = "/shop/items/metadata/"
        lake = make_lake(**place, **KEEP_NOTHING, catalog_name=first.settings.catalog_name)
        reports = {report.table: report for report in lake.maintain()}
        assert reports["shop.items"].error is not None
        assert reports["shop.items"].error.code == "table-unreadable"
        assert "ACCESS_DENIED" in reports["shop.items"].error.detail
        assert (reports["shop.others"].error, reports["shop.others"].snapshots) == (None, 2)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        pytest.param(403, "AWS Error ACCESS_DENIED", id="denied"),
        pytest.param(503, "AWS Error SLOW_DOWN", id="busy", marks=pytest.mark.soak),
    ],
)
def test_files_that_the_store_refuses_to_delete_are_reported_and_go_with_a_later_maintenance(
    make_lake: LakeFactory, s3_server: S3Server, tmp_path: Path, status: int, words: str
) -> None:
    with faulty_s3.in_front_of(s3_server.endpoint) as store:
        place = s3_server.new_lake(tmp_path, store.endpoint)
        place["catalog_properties"] |= {"s3.retry.min-wait-ms": "20"}
        lake = make_lake(**place, **KEEP_NOTHING)
        for name in ("items", "others"):
            write(lake, f"shop/{name}/data/of-a-killed-writer.parquet")
        make_old(s3_server, lake)
        feed(lake, tmp_path / "topics", "items", "others")
        for offset in range(3):
            for topic in ("items", "others"):
                send(tmp_path / "topics", topic, offset, 1, f"v{offset}")
            lake.ingest("feed")
        store.refuses_deletions_with, store.undeletable = status, "/shop/items/"
        items, others = lake.maintain(["shop.items", "shop.others"])
        assert (items.snapshots, items.orphans, items.files) == (2, 0, 0)
        assert items.refusal.files == 2, "the manifest lists of the snapshots; orphans are fewer"
        assert items.error is not None
        assert (items.error.code, '"shop.items"' in items.error.message) == ("deletion-refused", True)
        assert "At least 2 files" in items.error.detail
        assert words in items.error.detail
        assert f"below {lake.settings.warehouse}/shop/items;" in items.error.hint
        assert (others.error, others.snapshots, others.orphans) == (None, 2, 1)
        assert others.files > 0

        store.undeletable = ""
        make_old(s3_server, lake)
        (later,) = lake.maintain(["shop.items"])
        assert (later.error, later.snapshots) == (None, 0)
        assert later.orphans == 1 + others.files, "also all files of the expired snapshots"
        assert lake.sql("SELECT * FROM shop.items").rows == [(1, "v2")]


def test_a_page_that_the_store_refuses_to_delete_is_reported_and_goes_with_the_next_maintenance(
    make_lake: LakeFactory, s3_server: S3Server, tmp_path: Path
) -> None:
    with faulty_s3.in_front_of(s3_server.endpoint) as store:
        lake = make_lake(**s3_server.new_lake(tmp_path, store.endpoint))
        write(lake, "_checks/shop.items/old.html")
        page = f"{lake.settings.check_pages_uri}/shop.items/old.html"
        lake.checks.kept.append(HoldCheck("", "shop.items", 1, 1, "generated", True, {}, (), page, 1))
        make_old(s3_server, lake)
        store.undeletable = "/_checks/"
        (refused,) = lake.maintain(["mz_catalog.mz_hold_checks"])
        assert refused.error is not None
        assert (refused.error.code, refused.files, refused.refusal.files) == ("deletion-refused", 0, 1)
        assert refused.rows == 0, "the verdict names the page to the next maintenance"
        store.undeletable = ""
        (done,) = lake.maintain(["mz_catalog.mz_hold_checks"])
        assert (done.error, done.files, done.rows) == (None, 1, 1)


def test_a_dropped_table_whose_files_the_store_keeps_is_logged_with_its_location(
    make_lake: LakeFactory, s3_server: S3Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with faulty_s3.in_front_of(s3_server.endpoint) as store:
        lake = make_lake(**s3_server.new_lake(tmp_path, store.endpoint))
        feed(lake, tmp_path / "topics", "items")
        send(tmp_path / "topics", "items", 0, 1, "a")
        lake.ingest("feed")
        store.undeletable = "/shop/items/"
        lake.sql("DROP TABLE shop.items")
    (logged,) = (text for record in caplog.records if "is dropped" in (text := record.getMessage()))
    left = len(s3_server.files(f"{lake.settings.warehouse}/shop/items"))
    assert f"at least {left} of its files are still below {lake.settings.warehouse}/shop/items;" in logged
    assert "AWS Error ACCESS_DENIED" in logged


def test_orphans_go_and_files_of_a_table_whose_name_begins_alike_stay(
    make_lake: LakeFactory, s3_server: S3Server, tmp_path: Path
) -> None:
    lake = make_lake(**s3_server.new_lake(tmp_path), **KEEP_NOTHING)
    feed(lake, tmp_path / "topics", "items", "items2")
    for topic in ("items", "items2"):
        send(tmp_path / "topics", topic, 0, 1, "a")
    lake.ingest("feed")

    warehouse = lake.settings.warehouse
    write(lake, "shop/items/data/of-a-killed-writer.parquet")
    make_old(s3_server, lake)
    write(lake, "shop/items/data/of-a-running-writer.parquet")
    of_the_other = s3_server.files(f"{warehouse}/shop/items2")

    (foreseen,) = lake.maintain(["shop.items"], dry_run=True)
    (report,) = lake.maintain(["shop.items"])
    assert (str(foreseen.error), foreseen.orphans) == ("None", 1)
    assert (str(report.error), report.orphans) == ("None", 1)
    left = {path.name for path in s3_server.files(f"{warehouse}/shop/items/data")}
    assert "of-a-killed-writer.parquet" not in left
    assert "of-a-running-writer.parquet" in left
    assert s3_server.files(f"{warehouse}/shop/items2") == of_the_other
    assert lake.sql("SELECT * FROM shop.items UNION ALL SELECT * FROM shop.items2").rows == [(1, "a"), (1, "a")]
