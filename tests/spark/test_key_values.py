"""Keys of any value are merged: one row for each key that the upstream distinguishes, and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakehold.lake import Lake
from tests import recorded_files
from tests.conftest import LakeFactory
from tests.connect_converters import json_record, struct

pytestmark = pytest.mark.spark

_DEBEZIUM, _CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
_SHOWN = {"b": "hex(k)", "f": "CAST(k AS STRING)"}

KEYS: dict[str, tuple[dict[str, Any], list[Any], list[str]]] = {
    "d": (
        {"type": "int32", "name": f"{_DEBEZIUM}Date"},
        [-735160, 6670000, -2440588, 2145042905, 20778],
        ["-0043-03-15", "+20231-11-04", "-4713-11-24", "+5874897-12-31", "2026-11-21"],
    ),
    "l": (
        {"type": "int64", "name": f"{_DEBEZIUM}MicroTimestamp"},
        [576300000000000000, -63522230400000000, 9223372036825200000, -1],
        ["+20232-03-21 21:20:00", "-0043-01-23 00:00:00", "9999-12-31 23:59:59.999999", "1969-12-31 23:59:59.999999"],
    ),
    "i": (
        {"type": "string", "name": f"{_DEBEZIUM}ZonedTimestamp"},
        ["+20232-01-01T00:00:00Z", "-0043-03-15T12:00:00Z", "infinity", "-infinity", "2026-11-21T08:48:22+02:00"],
        [
            *("+20232-01-01 00:00:00", "-0043-03-15 12:00:00", "9999-12-31 23:59:59.999999", "0001-01-01 00:00:00"),
            "2026-11-21 06:48:22",
        ],
    ),
    "t": (
        {"type": "int64", "name": f"{_DEBEZIUM}MicroTime"},
        [360000000000, 36000000000, 3020399000000, -3600000000, -1, 0],
        ["100:00:00", "10:00:00", "838:59:59", "-01:00:00", "-00:00:00.000001", "00:00:00"],
    ),
    "s": (
        {"type": "string"},
        ["a", "a ", " a", "A", "\u00e9", "e\u0301", "\U0001f600", "", "it's \\ ${x}", "a\u0000"],
        ["a", "a ", " a", "A", "\u00e9", "e\u0301", "\U0001f600", "", "it's \\ ${x}", "a\u0000"],
    ),
    "b": ({"type": "bytes"}, ["", "AA==", "AAA=", "gA==", "/w=="], ["", "00", "0000", "80", "FF"]),
    "f": (
        {"type": "float64"},
        ["NaN", "Infinity", "-Infinity", 0.1, 0.30000000000000004, 0.3, 5e-324],
        ["NaN", "Infinity", "-Infinity", "0.1", "0.30000000000000004", "0.3", "4.9E-324"],
    ),
    "n": (
        {
            "type": "bytes",
            "name": f"{_CONNECT}Decimal",
            "parameters": {"scale": "2", "connect.decimal.precision": "38"},
        },
        ["BBo=", "/w==", "AA==", "tMSzV6V5O4X2dd3AAAAAAQ=="],
        ["10.50", "-0.01", "0.00", "-999999999999999999999999999999999999.99"],
    ),
}
"""For each table: the schema of its key, the keys as Connect's JSON encodes them, and as Spark shows them."""


class Feeds:
    """A source with a topic and a table for each type of key."""

    def __init__(self, lake: Lake, directory: Path) -> None:
        self.lake = lake
        self.directory = directory
        self.offsets = dict.fromkeys(KEYS, 0)
        directory.mkdir()
        lake.sql(f"CREATE SOURCE feed FROM FILES '{directory}' FORMAT JSON")
        for name in KEYS:
            lake.sql(f"CREATE TABLE s.{name} FROM SOURCE feed (TOPIC '{name}') ENVELOPE UPSERT")

    def send(self, name: str, key: Any, value: str | None) -> None:
        """Append a message, which deletes the key if `value` is None."""
        schema = KEYS[name][0]
        row = struct("Row", {"k": schema, "v": {"type": "string"}})
        key_bytes = json_record(struct("Key", {"k": schema}), {"k": key})
        value_bytes = None if value is None else json_record(row, {"k": key, "v": value})
        line = recorded_files.line(name, 0, self.offsets[name], value_bytes, key_bytes)
        recorded_files.append(self.directory / f"{name}.jsonl", [line])
        self.offsets[name] += 1

    def ingest(self) -> None:
        """Ingest the messages sent so far; no table stops."""
        for report in self.lake.ingest("feed"):
            assert report.stopped == {}

    def rows(self, name: str) -> dict[str, str]:
        shown = _SHOWN.get(name, "CAST(k AS STRING)")
        found = self.lake.spark.sql(f"SELECT {shown} AS k, v FROM {self.lake.settings.catalog_name}.s.{name}").collect()
        rows = {row.k: row.v for row in found}
        assert len(rows) == len(found), f"two rows with one key in {name}: {found}"
        return rows


@pytest.mark.parametrize("few", [100_000, 0], ids=["read in the driver", "read by Spark"])
def test_keys_of_any_value_are_inserted_updated_and_deleted(make_lake: LakeFactory, tmp_path: Path, few: int) -> None:
    feeds = Feeds(make_lake(driver_read_max_records=few), tmp_path / "topics")
    for name, (_, keys, _) in KEYS.items():
        for key in keys:
            feeds.send(name, key, "old")
    feeds.ingest()
    assert {name: feeds.rows(name) for name in KEYS} == {
        name: dict.fromkeys(shown, "old") for name, (_, _, shown) in KEYS.items()
    }

    for name, (_, keys, _) in KEYS.items():
        for key in keys[1:]:
            feeds.send(name, key, "new")
        feeds.send(name, keys[0], None)
    feeds.ingest()
    assert {name: feeds.rows(name) for name in KEYS} == {
        name: dict.fromkeys(shown[1:], "new") for name, (_, _, shown) in KEYS.items()
    }

    for name, (_, keys, _) in KEYS.items():
        feeds.send(name, keys[0], "again")
    feeds.ingest()
    assert {name: feeds.rows(name)[shown[0]] for name, (_, _, shown) in KEYS.items()} == dict.fromkeys(KEYS, "again")
    assert feeds.lake.sql("SELECT count(*) FROM mz_catalog.mz_source_errors").rows == [(0,)]


def test_a_batch_of_deletes_finds_rows_whose_key_has_another_type(lake: Lake, tmp_path: Path) -> None:
    key, row = struct("Key", {"id": {"type": "string"}}), struct("Row", {"id": {"type": "int64"}})
    topic = tmp_path / "topics" / "t.jsonl"

    def ingest(offset: int, number: str, value: bytes | None) -> list[tuple[Any, ...]]:
        recorded_files.append(topic, [recorded_files.line("t", 0, offset, value, json_record(key, {"id": number}))])
        (report,) = lake.ingest("s")
        assert report.stopped == {}
        return lake.sql("SELECT id FROM s.t ORDER BY id").rows

    lake.sql(
        f"CREATE SOURCE s FROM FILES '{topic.parent}' FORMAT JSON;"
        "CREATE TABLE s.t FROM SOURCE s (TOPIC 't') ENVELOPE UPSERT"
    )
    assert ingest(0, "1", json_record(row, {"id": 1})) == [(1,)]
    assert ingest(1, "2", json_record(row, {"id": 2})) == [(1,), (2,)]
    assert ingest(2, "2", b"{") == [(1,), (2,)]
    assert ingest(3, "one", None) == [(1,), (2,)]
    assert ingest(4, "1", None) == [(2,)]
