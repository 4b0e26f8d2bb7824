"""Key and value messages become tables: the last message of a key is its row (`envelopes.md`, "Goals")."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import IntegerType, LongType, StringType
from pyspark.sql import SparkSession

from lakehold.ingest.batch_report import BatchReport
from lakehold.ingest.write import merge
from lakehold.ingest.write.evolve import creation
from lakehold.lake import Lake
from lakehold.session import configured
from lakehold.table_layout import Layout
from lakehold.tables.column_types import ColumnType
from tests import recorded_files
from tests.conftest import LakeFactory
from tests.connect_converters import json_record, struct
from tests.debezium_messages import Topic

pytestmark = pytest.mark.spark

COLUMNS = "(id BIGINT, name STRING, n INT)"
COLUMN_TYPES = [ColumnType("id", LongType()), ColumnType("name", StringType()), ColumnType("n", IntegerType())]
KEY = struct("Key", {"id": {"type": "int64"}})
ROW = struct(
    "Row",
    {
        "id": {"type": "int64"},
        "name": {"type": "string", "optional": True},
        "price": {
            "type": "bytes",
            "optional": True,
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2", "connect.decimal.precision": "6"},
        },
    },
)
COMPOUND_KEY = struct("Key", {"a": {"type": "int32", "optional": True}, "b": {"type": "string", "optional": True}})
VALUE = struct("Value", {"v": {"type": "string"}})


def as_json(content: Any) -> bytes | None:
    """Encode a key or value as JSON, unless it is null or bytes."""
    if content is None or isinstance(content, bytes):
        return content
    return json.dumps(content).encode()


class Feed:
    """A source `feed` of recorded files with one topic `t`, which feeds the table `s.t`."""

    def __init__(self, lake: Lake, directory: Path) -> None:
        self.lake = lake
        self.file = directory / "t.jsonl"
        self.offset = 0
        directory.mkdir()
        lake.sql(f"CREATE SOURCE feed FROM FILES '{directory}' FORMAT JSON")

    def table(self, columns: str = "", clauses: str = "ENVELOPE UPSERT", name: str = "t") -> None:
        self.lake.sql(f"CREATE TABLE s.{name} {columns} FROM SOURCE feed (TOPIC 't') {clauses}")

    def ingest(self, *messages: tuple[Any, Any]) -> BatchReport:
        """Append (key, value) messages, as JSON unless they are bytes, and ingest them in one batch."""
        for key, value in messages:
            line = recorded_files.line("t", 0, self.offset, as_json(value), as_json(key))
            recorded_files.append(self.file, [line])
            self.offset += 1
        (report,) = self.lake.ingest("feed")
        return report

    def rows(self, name: str = "t") -> list[tuple[Any, ...]]:
        return sorted(self.lake.sql(f"SELECT * FROM s.{name}").rows, key=repr)

    def errors(self) -> list[tuple[int, str, bool]]:
        """Return the offset, the reason and whether it is healed of each error."""
        found = self.lake.sql("SELECT offset, reason, healed_at FROM mz_catalog.mz_source_errors ORDER BY offset").rows
        return [(offset, reason, healed_at is not None) for offset, reason, healed_at in found]

    def history(self) -> list[int]:
        """Return the ids of the table's snapshots."""
        state = self.lake.tables.table_state("s.t")
        return [snapshot.snapshot_id for snapshot in state.history] if state is not None else []

    @property
    def open_errors(self) -> int:
        return self.lake.batches.readers("feed")["main"].tables["s.t"].open_errors


@pytest.fixture
def feed(lake: Lake, tmp_path: Path) -> Feed:
    return Feed(lake, tmp_path / "topics")


def test_the_last_message_of_a_key_is_its_row_and_null_deletes(feed: Feed) -> None:
    feed.table(COLUMNS)
    report = feed.ingest(
        ({"id": 1}, {"id": 1, "name": "first", "n": 1}),
        ({"id": 2}, {"id": 2, "name": "two", "n": 2}),
        ({"id": 1}, {"id": 1, "name": "last", "n": 3}),
        ({"id": 3}, {"id": 3, "name": "gone", "n": 4}),
        ({"id": 3}, None),
        ({"id": 4}, None),
        ({"id": 4}, {"id": 4, "name": "back", "n": None}),
    )
    assert feed.rows() == [(1, "last", 3), (2, "two", 2), (4, "back", None)]
    assert [(t.records, t.inserted, t.deleted) for t in report.tables] == [(7, 3, 0)]
    report = feed.ingest(
        ({"id": 1}, None),
        ({"id": 2}, {"id": 2, "name": None, "n": 2}),
        ({"id": 5}, {"id": 5, "name": "five", "n": 5}),
        ({"id": 6}, None),
    )
    assert feed.rows() == [(2, None, 2), (4, "back", None), (5, "five", 5)]
    assert [(t.inserted, t.updated, t.deleted) for t in report.tables] == [(1, 1, 1)]


def test_ingesting_again_and_repeated_messages_change_nothing(feed: Feed) -> None:
    feed.table(COLUMNS)
    messages = [
        ({"id": 1}, {"id": 1, "name": "a", "n": 1}),
        ({"id": 2}, {"id": 2, "name": "b", "n": 2}),
        ({"id": 2}, None),
        ({"id": 1}, {"id": 1, "name": "c", "n": 3}),
    ]
    feed.ingest(*messages)
    before = feed.history()
    assert feed.ingest().tables == ()
    assert feed.history() == before
    feed.ingest(*messages)
    assert feed.rows() == [(1, "c", 3)]


@pytest.mark.parametrize("of_user", [None, "true", "false"])
def test_a_merge_into_small_files_reads_them_row_by_row(
    feed: Feed, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, of_user: str | None
) -> None:
    plans: list[str] = []
    sessions: list[SparkSession] = []
    name = "spark.sql.iceberg.vectorization.enabled"

    def merged(session: SparkSession, *arguments: Any) -> None:
        sessions.append(session)
        merge_rows(session, *arguments)

    def explained(how: merge.Merge, columns: Sequence[str]) -> str:
        statement = merge_statement(how, columns)
        # An adaptive plan shows how Spark reads files only after it ran.
        with configured(sessions[-1], {"spark.sql.adaptive.enabled": "false"}):
            plans.append(sessions[-1].sql(f"EXPLAIN {statement}").first()[0])  # type: ignore[index]
        return statement

    feed.table(COLUMNS)
    feed.ingest(({"id": 1}, {"id": 1, "name": "a", "n": 1}))
    merge_rows, merge_statement = merge.merge, merge.merge_statement
    monkeypatch.setattr(merge, "merge", merged)
    monkeypatch.setattr(merge, "merge_statement", explained)
    try:
        if of_user is not None:
            spark.conf.set(name, of_user)
        feed.ingest(({"id": 1}, {"id": 1, "name": "b", "n": 2}))
        assert spark.conf.get(name, None) == of_user, "statements of the user run as before"
    finally:
        spark.conf.unset(name)
    assert feed.rows() == [(1, "b", 2)]
    (plan,) = plans
    assert "BatchScan" in plan
    assert "ColumnarToRow" not in plan


def test_a_delete_of_a_missing_row_makes_no_snapshot(feed: Feed) -> None:
    feed.table(COLUMNS)
    feed.ingest(({"id": 1}, None))
    assert feed.history() == []
    feed.ingest(({"id": 5}, {"id": 5, "name": "a", "n": 1}))
    before = feed.history()
    report = feed.ingest(({"id": 9}, None))
    assert feed.history() == before
    assert feed.rows() == [(5, "a", 1)]
    assert [(t.inserted, t.updated, t.deleted) for t in report.tables] == [(0, 0, 0)]


def test_undeclared_columns_are_skipped_and_missing_ones_are_null(feed: Feed) -> None:
    feed.table(COLUMNS)
    feed.ingest(
        ({"id": 1}, {"id": 1, "name": "a", "n": 1, "surprise": {"deep": [1]}}),
        ({"id": 2}, {"id": 2}),
        ({"id": 3}, {"name": "from the message key", "n": 3}),
    )
    assert feed.rows() == [(1, "a", 1), (2, None, None), (3, "from the message key", 3)]
    assert feed.errors() == []


def test_a_schema_in_the_messages_gives_columns_and_types(feed: Feed) -> None:
    feed.table()
    feed.ingest(
        (json_record(KEY, {"id": 1}), json_record(ROW, {"id": 1, "name": "a", "price": "BNI="})),
        (json_record(KEY, {"id": 2}), json_record(ROW, {"id": 2, "name": None, "price": None})),
        (json_record(KEY, {"id": 3}), json_record(ROW, {"id": 3, "name": "c", "price": None})),
        (json_record(KEY, {"id": 3}), None),
    )
    assert [(id_, name, str(price)) for id_, name, price in feed.rows()] == [(1, "a", "12.34"), (2, None, "None")]
    feed.ingest(
        (json_record(KEY, {"id": 1}), json_record(ROW, None)),
        (json_record(KEY, {"id": 2}), json_record(ROW, {"id": 2, "name": "b", "price": None})),
    )
    assert feed.rows() == [(2, "b", None)]


def test_a_key_that_the_value_lacks_becomes_a_column(feed: Feed) -> None:
    feed.table("(key BIGINT, v STRING)", name="t")
    feed.ingest((7, {"v": "seven"}), (8, {"v": "eight"}), (7, {"v": "again"}), (8, None))
    assert feed.rows() == [(7, "again")]


def test_a_key_of_several_columns_may_have_null_parts(feed: Feed) -> None:
    feed.table(clauses="KEY (a, b) ENVELOPE UPSERT")

    def message(a: int | None, b: str | None, v: str | None) -> tuple[bytes, bytes | None]:
        return json_record(COMPOUND_KEY, {"a": a, "b": b}), None if v is None else json_record(VALUE, {"v": v})

    feed.ingest(
        message(1, "x", "1x"),
        message(1, None, "1-"),
        message(None, "x", "-x"),
        message(2, None, "2-"),
        message(1, None, "1- later"),
    )
    assert feed.rows() == [(1, "x", "1x"), (1, None, "1- later"), (2, None, "2-"), (None, "x", "-x")]
    report = feed.ingest(
        message(1, None, "1- again"), message(None, "x", None), message(None, "y", "-y"), message(1, "x", "1x again")
    )
    assert feed.rows() == [(1, "x", "1x again"), (1, None, "1- again"), (2, None, "2-"), (None, "y", "-y")]
    assert [(t.inserted, t.updated, t.deleted) for t in report.tables] == [(1, 2, 1)]
    assert feed.errors() == []
    feed.ingest(message(2, None, None), message(1, "x", None))
    assert feed.rows() == [(1, None, "1- again"), (None, "y", "-y")]


def test_a_key_is_taken_from_the_columns_of_the_value(feed: Feed) -> None:
    feed.table("(region STRING, id BIGINT, n INT)", "KEY (region, id) ENVELOPE UPSERT")
    feed.ingest(
        (None, {"region": "eu", "id": 1, "n": 1}),
        (None, {"region": "us", "id": 1, "n": 2}),
        (None, {"region": "eu", "id": 1, "n": 3}),
    )
    assert feed.rows() == [("eu", 1, 3), ("us", 1, 2)]
    feed.ingest((None, {"region": "us", "id": 1, "n": 4}))
    assert feed.rows() == [("eu", 1, 3), ("us", 1, 4)]
    assert feed.errors() == []


def test_a_value_without_a_key_is_an_error_until_null_for_null_clears_it(feed: Feed) -> None:
    feed.table(COLUMNS)
    feed.ingest(({"id": 1}, {"id": 1, "name": "a", "n": 1}), (None, {"name": "whose?", "n": 2}))
    assert feed.rows() == [(1, "a", 1)]
    assert feed.errors() == [(1, "null-key", False)]
    assert feed.open_errors == 1
    feed.ingest(({"id": 2}, {"id": 2, "name": "b", "n": 1}))
    assert feed.open_errors == 1
    report = feed.ingest((None, None))
    assert feed.errors() == [(1, "null-key", True)]
    assert feed.open_errors == 0
    assert feed.rows() == [(1, "a", 1), (2, "b", 1)]
    assert [t.snapshot_id for t in report.tables] == [None]


def test_an_unreadable_key_does_not_affect_the_others(feed: Feed) -> None:
    feed.table(COLUMNS)
    feed.ingest((b"{{", {"name": "whose?"}), ({"id": 1}, {"id": 1, "name": "a", "n": 1}))
    assert feed.rows() == [(1, "a", 1)]
    feed.ingest((b"{{", {"name": "whose?"}))
    feed.ingest((b"{", None), ({"id": 1}, {"id": 1, "name": "b", "n": 2}), ({"id": 2}, {"id": 2, "name": "c", "n": 3}))
    assert feed.rows() == [(1, "b", 2), (2, "c", 3)]
    assert [reason for _, reason, _ in feed.errors()] == ["undecodable-key"] * 3


def test_a_bad_value_keeps_its_key_in_error_until_a_good_one_or_a_delete(feed: Feed) -> None:
    feed.table(COLUMNS)
    feed.ingest(
        ({"id": 1}, {"id": 1, "name": "kept", "n": 1}),
        ({"id": 1}, b"not json"),
        ({"id": 2}, {"id": 2, "name": "a", "n": "many"}),
        ({"id": 3}, b""),
        ({"id": 4}, b"{"),
        ({"id": 4}, {"id": 4, "name": "healed at once", "n": 4}),
        ({"id": 5}, {"id": 5, "name": "good, then bad", "n": 5}),
        ({"id": 5}, b"[1]"),
    )
    assert feed.rows() == [(1, "kept", 1), (4, "healed at once", 4), (5, "good, then bad", 5)]
    assert feed.errors() == [
        (1, "undecodable-value", False),
        (2, "undecodable-value", False),
        (3, "empty-value", False),
        (4, "undecodable-value", True),
        (7, "undecodable-value", False),
    ]
    assert feed.open_errors == 4
    feed.ingest(({"id": 1}, {"id": 1, "name": "good", "n": 2}), ({"id": 3}, None), ({"id": 6}, None))
    assert [healed for _, _, healed in feed.errors()] == [True, False, True, True, False]
    assert feed.open_errors == 2
    assert feed.rows() == [(1, "good", 2), (4, "healed at once", 4), (5, "good, then bad", 5)]


def test_an_error_keeps_the_message(feed: Feed) -> None:
    feed.table(COLUMNS)
    report = feed.ingest(({"id": 1}, {"id": 1, "name": "a", "n": 1}), ({"id": 2}, b"\xff\x00"))
    (error,) = feed.lake.sql(
        "SELECT source, table_name, topic, partition, offset, mz_timestamp, key, value FROM mz_catalog.mz_source_errors"
    ).rows
    assert error == ("feed", "s.t", "t", 0, 1, report.timestamp_ms, b'{"id": 2}', b"\xff\x00")


def test_an_oversized_message_is_an_error_of_its_key(make_lake: LakeFactory, tmp_path: Path) -> None:
    feed = Feed(make_lake(max_record_bytes=100), tmp_path / "topics")
    feed.table(COLUMNS)
    feed.ingest(
        ({"id": 1}, {"id": 1, "name": "short", "n": 1}),
        ({"id": 1}, {"id": 1, "name": "long" * 100, "n": 2}),
        ({"id": 2}, {"id": 2, "name": "b", "n": 2}),
    )
    assert feed.rows() == [(1, "short", 1), (2, "b", 2)]
    assert feed.errors() == [(1, "oversized", False)]
    feed.ingest(({"id": 1}, {"id": 1, "name": "shorter", "n": 3}))
    assert feed.errors() == [(1, "oversized", True)]


def test_on_error_fail_stops_the_table_and_not_its_neighbour(feed: Feed) -> None:
    feed.table(COLUMNS, "ENVELOPE UPSERT WITH (ON ERROR = 'fail')")
    feed.table(COLUMNS, name="neighbour")
    report = feed.ingest(({"id": 1}, {"id": 1, "name": "a", "n": 1}), ({"id": 2}, b"not json"))
    assert {name: error.code for name, error in report.stopped.items()} == {"s.t": "bad-input"}
    assert "offset 1" in report.stopped["s.t"].detail
    assert feed.rows("neighbour") == [(1, "a", 1)]
    assert feed.lake.tables.table_state("s.t") is None


def test_a_table_whose_creation_was_cut_short_is_ordered_by_its_key(feed: Feed) -> None:
    feed.table(COLUMNS)
    made = [
        "CREATE NAMESPACE IF NOT EXISTS s",
        *creation(feed.lake.definitions.definitions().table("s.t"), "s.t", ["id"], COLUMN_TYPES, Layout(4)).statements,
    ]
    for statement in made:
        feed.lake.spark.sql(statement)
    feed.ingest(({"id": 1}, {"id": 1, "name": "a", "n": 1}))
    assert feed.rows() == [(1, "a", 1)]
    (ordered,) = feed.lake.catalog.load_table("s.t").sort_order().fields
    assert feed.lake.catalog.load_table("s.t").schema().find_column_name(ordered.source_id) == "id"


def test_columns_must_be_known(feed: Feed) -> None:
    feed.table()
    report = feed.ingest(({"id": 1}, {"id": 1, "name": "a"}))
    assert report.stopped["s.t"].code == "columns-unknown"
    assert "CREATE TABLE s.t (id BIGINT, …)" in report.stopped["s.t"].hint


def test_debezium_upsert_takes_tombstones_as_deletes(lake: Lake, tmp_path: Path) -> None:
    """Ingest tombstones without delete events, as compaction leaves them of deleted keys."""
    topic = Topic("t", {"id": {"type": "int64"}, "name": {"type": "string"}})
    directory = tmp_path / "topics"
    lake.sql(f"CREATE SOURCE feed FROM FILES '{directory}' FORMAT JSON")
    lake.sql("CREATE TABLE s.t FROM SOURCE feed (TOPIC 't') ENVELOPE DEBEZIUM UPSERT")
    rows = [{"id": i, "name": "a"} for i in (1, 2, 3)]
    topic.snapshot(rows)
    topic.delete(rows[0])
    topic.write(directory)
    lake.ingest("feed")
    topic.raw(topic._key(rows[1]), None)
    topic.raw(topic._key({"id": 9}), None)
    topic.raw(topic._key(rows[2]), None)
    topic.create({"id": 3, "name": "again"})
    topic.write(directory)
    (report,) = lake.ingest("feed")
    assert lake.sql("SELECT * FROM s.t").rows == [(3, "again")]
    assert [(t.updated, t.deleted, t.errors) for t in report.tables] == [(1, 1, 0)]


def test_messages_read_by_spark_become_the_same_rows(make_lake: LakeFactory, tmp_path: Path) -> None:
    """Read messages with Spark, as large batches do, and compare with a small batch that the driver reads."""
    feed = Feed(make_lake(driver_read_max_records=0), tmp_path / "topics")
    feed.table(COLUMNS)
    feed.ingest(
        ({"id": 1}, {"id": 1, "name": "a", "n": 1}),
        ({"id": 1}, {"id": 1, "name": "b", "n": 2}),
        ({"id": 2}, b"not json"),
        (None, {"name": "whose?"}),
        ({"id": 3}, {"id": 3, "name": "c", "n": 3}),
    )
    feed.ingest(({"id": 1}, None), ({"id": 2}, {"id": 2, "name": "good", "n": 2}), (None, None))
    assert feed.rows() == [(2, "good", 2), (3, "c", 3)]
    assert feed.errors() == [(2, "undecodable-value", True), (3, "null-key", True)]
    assert feed.open_errors == 0
