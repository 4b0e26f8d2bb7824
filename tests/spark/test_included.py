"""INCLUDE makes keys, partitions, offsets, timestamps and headers of messages columns of tables of any envelope."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lakehold.errors import LakeholdError
from lakehold.ingest.batch_report import BatchReport
from lakehold.lake import Lake
from tests import recorded_files
from tests.conftest import LakeFactory
from tests.connect_converters import json_record, struct
from tests.counters import decodes
from tests.debezium_messages import Topic
from tests.transaction_files import Connector, define

pytestmark = pytest.mark.spark

ALL = "INCLUDE KEY AS k, PARTITION AS p, OFFSET AS o, TIMESTAMP AS at, HEADERS AS h"
LATEST_MS = 2**63 - 1
KEY = struct("Key", {"id": {"type": "int64"}, "part": {"type": "string", "optional": True}})
ROW = struct("Row", {"id": {"type": "int64"}, "v": {"type": "string", "optional": True}})
COLUMNS: dict[str, dict[str, Any]] = {"id": {"type": "int64"}, "v": {"type": "string", "optional": True}}


class Feed:
    """A source `feed` of recorded files, with tables `s.<name>` over its topic `t`."""

    def __init__(self, lake: Lake, directory: Path, **tables: str) -> None:
        self.lake = lake
        self.file = directory / "t.jsonl"
        self.offsets = {0: 0, 3: 0}
        lake.sql(f"CREATE SOURCE feed FROM FILES '{directory}' FORMAT JSON")
        for name, clauses in tables.items():
            columns, _, rest = clauses.rpartition("|")
            lake.sql(f"CREATE TABLE s.{name} {columns} FROM SOURCE feed (TOPIC 't') {rest}")

    def write(
        self,
        key: bytes | None,
        value: bytes | None,
        partition: int = 0,
        at_ms: int = 1_000,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> None:
        offset = self.offsets[partition]
        recorded_files.append(self.file, [recorded_files.line("t", partition, offset, value, key, at_ms, headers)])
        self.offsets[partition] += 1

    def ingest(self) -> BatchReport:
        (report,) = self.lake.ingest("feed")
        return report

    def rows(self, name: str = "t") -> list[tuple[Any, ...]]:
        found = self.lake.spark.sql(f"SELECT * FROM {self.lake.settings.catalog_name}.s.{name}")
        return sorted((tuple(map(plain, row)) for row in found.collect()), key=repr)

    def columns(self, name: str = "t") -> tuple[str, ...]:
        return self.lake.sql(f"SELECT * FROM s.{name}").columns

    def stopped(self) -> Mapping[str, LakeholdError]:
        return {name.removeprefix("s."): error for name, error in self.ingest().stopped.items()}


def plain(value: Any) -> Any:
    """Turn Spark's rows inside a value into tuples."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


def second(n: int) -> datetime:
    return datetime.fromtimestamp(n, UTC).replace(tzinfo=None)


def bare(**content: Any) -> bytes:
    return json.dumps(content).encode()


@pytest.mark.parametrize("driver_records", [10_000, 0], ids=["in the driver", "by Spark"])
def test_a_row_has_the_included_parts_of_its_message(
    make_lake: LakeFactory, tmp_path: Path, driver_records: int
) -> None:
    lake = make_lake(driver_read_max_records=driver_records)
    feed = Feed(lake, tmp_path / "topics", t=f"{ALL} ENVELOPE NONE", keyed=f"{ALL} ENVELOPE UPSERT")
    key, other = json_record(KEY, {"id": 1, "part": "a"}), json_record(KEY, {"id": 2, "part": None})
    feed.write(key, json_record(ROW, {"id": 1, "v": "x"}), headers=[("b", b"\x00"), ("a", None), ("b", b"2")])
    feed.write(key, json_record(ROW, {"id": 1, "v": "y"}), at_ms=2_500)
    feed.write(other, json_record(ROW, {"id": 2, "v": "z"}), partition=3, at_ms=-1, headers=[("", b"")])
    feed.write(other, json_record(ROW, {"id": 2, "v": "z"}), partition=3, at_ms=LATEST_MS)
    assert feed.stopped() == {}
    half = datetime.fromtimestamp(2.5, UTC).replace(tzinfo=None)
    first_headers = [("b", b"\x00"), ("a", None), ("b", b"2")]
    assert feed.rows() == [
        (1, "x", (1, "a"), 0, 0, second(1), first_headers),
        (1, "y", (1, "a"), 0, 1, half, []),
        (2, "z", (2, None), 3, 0, None, [("", b"")]),
        (2, "z", (2, None), 3, 1, None, []),
    ]
    assert feed.columns() == ("id", "v", "k", "p", "o", "at", "h")
    assert feed.columns("keyed") == ("part", "id", "v", "k", "p", "o", "at", "h")
    assert feed.rows("keyed") == [
        ("a", 1, "y", (1, "a"), 0, 1, half, []),
        (None, 2, "z", (2, None), 3, 1, None, []),
    ]
    feed.write(key, json_record(ROW, {"id": 1, "v": "w"}), at_ms=4_000, headers=[("n", b"")])
    feed.write(other, None, partition=3)
    feed.ingest()
    assert feed.rows("keyed") == [("a", 1, "w", (1, "a"), 0, 2, second(4), [("n", b"")])]
    assert len(feed.rows()) == 5
    types = dict(lake.sql("DESCRIBE s.t").rows[index][:2] for index in range(7))
    assert types == {
        "id": "bigint",
        "v": "string",
        "k": "struct<id:bigint,part:string>",
        "p": "int",
        "o": "bigint",
        "at": "timestamp",
        "h": "array<struct<key:string,value:binary>>",
    }


@pytest.mark.parametrize(("envelope", "applied"), [("DEBEZIUM", 6), ("DEBEZIUM UPSERT", 7)])
def test_change_events_have_the_included_parts_of_the_applied_message(
    lake: Lake, tmp_path: Path, envelope: str, applied: int
) -> None:
    """Send an event again: DEBEZIUM skips it, DEBEZIUM UPSERT applies it."""
    topic = Topic("t", COLUMNS)
    lake.sql(
        f"CREATE SOURCE feed FROM FILES '{tmp_path}' FORMAT JSON;"
        f"CREATE TABLE s.t FROM SOURCE feed (TOPIC 't') INCLUDE KEY, OFFSET, KEY AS k ENVELOPE {envelope}"
    )
    topic.snapshot([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    topic.update({"id": 1, "v": "a"}, {"id": 1, "v": "c"})
    topic.delete({"id": 2, "v": "b"})
    topic.create({"id": 3, "v": "d"})
    topic.write(tmp_path)
    lake.ingest("feed")
    assert lake.sql("SELECT * FROM s.t ORDER BY id").rows == [(1, "c", 2, 1), (3, "d", 5, 3)]
    topic.update({"id": 3, "v": "d"}, {"id": 3, "v": "e"})
    topic.resend(1)
    topic.write(tmp_path)
    lake.ingest("feed")
    assert lake.sql("SELECT * FROM s.t ORDER BY id").rows == [(1, "c", 2, 1), (3, "e", applied, 3)]


def test_fields_of_a_key_become_columns(lake: Lake, tmp_path: Path) -> None:
    value = struct("Value", {"v": {"type": "string"}})
    single = struct("Single", {"user": {"type": "string"}})
    feed = Feed(
        lake,
        tmp_path / "topics",
        fields="INCLUDE KEY, OFFSET ENVELOPE NONE",
        named="INCLUDE KEY AS who ENVELOPE NONE",
        placed="(user STRING, `offset` STRING, v STRING)|INCLUDE KEY, OFFSET AS o ENVELOPE NONE",
    )
    feed.write(json_record(single, {"user": "u"}), json_record(value, {"v": "x"}))
    feed.write(None, json_record(value, {"v": "y"}))
    feed.write(b"{", json_record(value, {"v": "lost"}))
    assert feed.stopped() == {}
    assert (feed.columns("fields"), feed.rows("fields")) == (("v", "user", "offset"), [("x", "u", 0), ("y", None, 1)])
    assert (feed.columns("named"), feed.rows("named")) == (("v", "who"), [("x", "u"), ("y", None)])
    assert (feed.columns("placed"), feed.rows("placed")) == (
        ("user", "offset", "v", "o"),
        [("u", None, "x", 0), (None, None, "y", 1)],
    )
    errors = lake.sql("SELECT table_name, `offset`, reason FROM mz_catalog.mz_source_errors ORDER BY table_name").rows
    # With a column list, a key may also have no schema.
    assert errors == [
        ("s.fields", 2, "unknown-schema"),
        ("s.named", 2, "unknown-schema"),
        ("s.placed", 2, "undecodable-key"),
    ]


def test_bare_keys_have_the_types_that_the_column_list_gives(lake: Lake, tmp_path: Path) -> None:
    feed = Feed(
        lake,
        tmp_path / "topics",
        text="(v STRING)|INCLUDE KEY ENVELOPE NONE",
        number="(key INT, v STRING)|INCLUDE KEY ENVELOPE NONE",
        named="(v STRING, k BIGINT)|INCLUDE KEY AS k ENVELOPE NONE",
        keyed="(id INT, v STRING)|KEY (id) INCLUDE KEY AS k ENVELOPE UPSERT",
    )
    feed.write(b"7", bare(v="x"))
    feed.write(None, bare(v="y"))
    assert feed.stopped() == {}
    assert feed.rows("text") == [("x", "7"), ("y", None)]
    assert feed.rows("number") == [(7, "x"), (None, "y")]
    assert feed.rows("named") == [("x", 7), ("y", None)]
    assert feed.rows("keyed") == [(7, "x", 7)]


def test_a_record_among_bare_keys_is_an_error_of_its_message(lake: Lake, tmp_path: Path) -> None:
    feed = Feed(
        lake,
        tmp_path / "topics",
        t="(v STRING)|INCLUDE KEY ENVELOPE NONE",
        named="(v STRING)|INCLUDE KEY AS k ENVELOPE NONE",
    )
    feed.write(bare(id=1), bare(v="odd"))
    feed.write(b"a", bare(v="x"))
    feed.write(b"b", bare(v="y"))
    assert feed.stopped() == {}
    feed.write(bare(id=2), bare(v="odd in a batch of its own"))
    assert feed.stopped() == {}
    assert feed.rows("t") == feed.rows("named") == [("x", "a"), ("y", "b")]
    errors = lake.sql("SELECT table_name, `offset`, reason FROM mz_catalog.mz_source_errors ORDER BY 1, 2").rows
    assert errors == [(f"s.{name}", offset, "undecodable-key") for name in ("named", "t") for offset in (0, 3)]


def test_fields_of_bare_keys_need_types(lake: Lake, tmp_path: Path) -> None:
    feed = Feed(
        lake,
        tmp_path / "topics",
        listed="(id BIGINT, part STRING, v STRING)|INCLUDE KEY AS k ENVELOPE NONE",
        unlisted="(v STRING)|INCLUDE KEY ENVELOPE NONE",
    )
    feed.write(bare(id=1, part="a"), bare(id=1, v="x"))
    stopped = feed.stopped()
    assert {name: error.code for name, error in stopped.items()} == {"unlisted": "columns-unknown"}
    assert "or change the table's KEY (…) or INCLUDE KEY" in stopped["unlisted"].hint
    assert feed.rows("listed") == [(1, None, "x", (1, "a"))]


def test_a_first_load_has_the_included_columns(make_lake: LakeFactory, tmp_path: Path) -> None:
    lake = make_lake(driver_read_max_records=0)
    feed = Feed(lake, tmp_path / "topics", t="INCLUDE OFFSET, KEY AS k, HEADERS ENVELOPE UPSERT")
    for n in range(30):
        key, value = json_record(KEY, {"id": n, "part": "a"}), json_record(ROW, {"id": n, "v": "x"})
        feed.write(key, value, headers=[("n", b"%d" % n)])
    assert feed.stopped() == {}
    expected = [("a", n, "x", n, (n, "a"), [("n", b"%d" % n)]) for n in range(30)]
    assert feed.rows() == sorted(expected, key=repr)


@pytest.mark.parametrize(
    ("clauses", "way_out"),
    [
        ("INCLUDE OFFSET ENVELOPE NONE", "INCLUDE OFFSET AS name"),
        ("INCLUDE TIMESTAMP AS OFFSET ENVELOPE UPSERT", "INCLUDE TIMESTAMP AS name"),
        ("INCLUDE KEY ENVELOPE NONE", "INCLUDE KEY AS name"),
        ("INCLUDE KEY AS `OFFSET` ENVELOPE UPSERT", "INCLUDE KEY AS name"),
        ("INCLUDE PARTITION AS id ENVELOPE UPSERT", "INCLUDE PARTITION AS name"),
        ("INCLUDE PARTITION AS part, KEY AS k ENVELOPE UPSERT", "INCLUDE PARTITION AS name"),
        ("INCLUDE HEADERS AS part, KEY ENVELOPE NONE", "INCLUDE KEY AS name"),
        ("(id BIGINT, part STRING)|INCLUDE KEY AS part ENVELOPE UPSERT", "INCLUDE KEY AS name"),
    ],
)
def test_an_included_column_with_a_taken_name_stops_the_table(
    lake: Lake, tmp_path: Path, clauses: str, way_out: str
) -> None:
    row = struct("Row", {"id": {"type": "int64"}, "offset": {"type": "string"}})
    feed = Feed(lake, tmp_path / "topics", t=clauses, next="INCLUDE OFFSET AS o ENVELOPE UPSERT")
    feed.write(json_record(KEY, {"id": 1, "part": "a"}), json_record(row, {"id": 1, "offset": "x"}))
    stopped = feed.stopped()
    assert {name: error.code for name, error in stopped.items()} == {"t": "include-name"}
    assert way_out in stopped["t"].hint
    assert feed.rows("next") == [("a", 1, "x", 0)]


def test_a_later_column_with_the_name_of_an_included_one_stops_the_table(lake: Lake, tmp_path: Path) -> None:
    feed = Feed(lake, tmp_path / "topics", t="INCLUDE OFFSET ENVELOPE NONE")
    feed.write(None, json_record(struct("R", {"v": {"type": "string"}}), {"v": "a"}))
    assert feed.stopped() == {}
    wider = struct("R", {"v": {"type": "string"}, "Offset": {"type": "string"}})
    feed.write(None, json_record(wider, {"v": "b", "Offset": "c"}))
    assert [error.code for error in feed.stopped().values()] == ["include-name"]
    assert feed.rows() == [("a", 0)]


def test_a_table_without_rows_has_the_included_columns(lake: Lake, tmp_path: Path) -> None:
    define(lake, tmp_path / "topics", {"a": "DEBEZIUM", "empty": "NONE INCLUDE PARTITION, KEY, HEADERS"})
    connector = Connector(tmp_path / "topics")
    connector.transaction(("a", 1, 2))
    lake.ingest("shop")
    found = lake.sql("SELECT * FROM shop.empty")
    assert (found.columns, found.rows) == (("id", "v", "partition", "headers"), [])


def test_change_events_become_rows_in_whole_transactions(lake: Lake, tmp_path: Path) -> None:
    define(lake, tmp_path / "topics", {"a": "DEBEZIUM"})
    lake.sql(
        "CREATE TABLE shop.log (op STRING, after STRUCT<id: BIGINT, v: BIGINT>)"
        " FROM SOURCE shop (TOPIC 'shop.public.a') INCLUDE OFFSET ENVELOPE NONE"
    )
    connector = Connector(tmp_path / "topics")
    connector.transaction(("a", 1, 2), ("a", 1, 3))
    connector.transaction(("a", 2, 4), end=False)
    lake.ingest("shop")
    assert lake.sql("SELECT op, after.v, offset FROM shop.log ORDER BY offset").rows == [("c", 2, 0), ("c", 3, 1)]
    assert lake.sql("SELECT * FROM shop.a").rows == [(1, 3)]


@pytest.mark.parametrize(("driver_records", "tables"), [(10_000, 10), (0, 4)], ids=["in the driver", "by Spark"])
def test_tables_of_mixed_envelopes_share_one_decoding(
    make_lake: LakeFactory, tmp_path: Path, driver_records: int, tables: int
) -> None:
    lake = make_lake(driver_read_max_records=driver_records)
    source = f"mixed{driver_records}"
    topic = Topic("t", COLUMNS)
    lake.sql(f"CREATE SOURCE {source} FROM FILES '{tmp_path}' FORMAT JSON")
    for n in range(tables):
        envelope = ("NONE", "UPSERT", "DEBEZIUM UPSERT", "DEBEZIUM")[n % 4]
        lake.sql(f"CREATE TABLE s.t{n} FROM SOURCE {source} (TOPIC 't') INCLUDE OFFSET ENVELOPE {envelope}")
    topic.snapshot([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    topic.update({"id": 1, "v": "a"}, {"id": 1, "v": "c"})
    topic.write(tmp_path)
    before = decodes(source)
    (report,) = lake.ingest(source)
    assert not report.stopped
    own, shared = decodes(source)
    assert (own - before[0], shared - before[1]) == (1, tables - 1)
    for n in range(0, tables, 4):
        assert lake.sql(f"SELECT op, after.v, offset FROM s.t{n} ORDER BY offset").rows == [
            ("r", "a", 0),
            ("r", "b", 1),
            ("u", "c", 2),
        ]
    for n in range(1, tables, 4):
        assert lake.sql(f"SELECT after.v, offset FROM s.t{n} ORDER BY offset").rows == [("b", 1), ("c", 2)]
    for n in (n for n in range(tables) if n % 4 > 1):
        assert lake.sql(f"SELECT * FROM s.t{n} ORDER BY id").rows == [(1, "c", 2), (2, "b", 1)]


def test_a_table_that_names_its_key_may_include_the_message_key(lake: Lake, tmp_path: Path) -> None:
    feed = Feed(lake, tmp_path / "topics", t="KEY (v) INCLUDE KEY AS message ENVELOPE UPSERT")
    feed.write(json_record(struct("K", {"n": {"type": "int32"}}), {"n": 4}), json_record(ROW, {"id": 1, "v": "x"}))
    assert feed.stopped() == {}
    assert (feed.columns(), feed.rows()) == (("id", "v", "message"), [(1, "x", 4)])
