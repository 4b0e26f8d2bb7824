"""Tables with a schema file take its columns as if the statement had listed them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

from lakehold.lake import Lake
from tests import recorded_files
from tests.conftest import LakeFactory
from tests.connect_converters import json_record, struct

pytestmark = pytest.mark.spark

KEY = struct("Key", {"id": {"type": "int64"}})


def write_contract(directory: Path, table: str, **columns: str) -> None:
    """Write a schema file whose first column is the key."""
    fields = [
        {"id": number, "name": name, "required": number == 1, "type": of}
        for number, (name, of) in enumerate(columns.items(), start=1)
    ]
    schema = {"type": "struct", "identifier-field-ids": [1], "fields": fields}
    (directory / f"{table}.json").write_text(json.dumps({"table": table, "schema": schema}))


@pytest.fixture
def schemas(tmp_path: Path) -> Path:
    directory = tmp_path / "schemas"
    directory.mkdir()
    return directory


@pytest.fixture
def lake(make_lake: LakeFactory, schemas: Path, tmp_path: Path) -> Lake:
    """Open a lake with a source `feed` over a directory of recorded topics."""
    opened = make_lake(schemas=str(schemas))
    opened.sql(f"CREATE SOURCE feed FROM FILES '{tmp_path / 'topics'}' FORMAT JSON")
    return opened


def append(tmp_path: Path, topic: str, *messages: tuple[Any, Any]) -> None:
    lines = [recorded_files.line(topic, 0, i, value, key) for i, (key, value) in enumerate(messages)]
    recorded_files.append(tmp_path / "topics" / f"{topic}.jsonl", lines)


def test_a_schema_file_defines_the_same_table_as_a_column_list(lake: Lake, schemas: Path, tmp_path: Path) -> None:
    write_contract(schemas, "s.filed", id="long", price="decimal(6, 2)", day="date", at="timestamptz", late="string")
    lake.sql(
        "CREATE TABLE s.filed FROM SOURCE feed (TOPIC 't') ENVELOPE UPSERT;"
        "CREATE TABLE s.listed (id BIGINT, price DECIMAL(6, 2), day DATE, at TIMESTAMP, late STRING)"
        " FROM SOURCE feed (TOPIC 't') KEY (id) ENVELOPE UPSERT"
    )
    append(
        tmp_path,
        "t",
        (b'{"id": 1}', b'{"id": 1, "price": "1.50", "day": "2026-01-02", "at": "2026-01-02T03:04:05Z", "more": 1}'),
        (b'{"id": 2}', b'{"id": 2, "price": "no price"}'),
        (b'{"id": 3}', b'{"id": 3}'),
    )
    (report,) = lake.ingest("feed")
    assert report.stopped == {}
    rows = {name: lake.sql(f"SELECT * FROM s.{name} ORDER BY id").rows for name in ("filed", "listed")}
    assert [(row[0], str(row[1]), str(row[2])) for row in rows["filed"]] == [
        (1, "1.50", "2026-01-02"),
        (3, "None", "None"),
    ]
    assert rows["filed"] == rows["listed"]
    filed, listed = (lake.tables.table_state(f"s.{name}") for name in ("filed", "listed"))
    assert filed is not None
    assert listed is not None
    assert filed.schema.as_struct() == listed.schema.as_struct()


def test_messages_that_break_the_schema_file_stop_their_table_only(lake: Lake, schemas: Path, tmp_path: Path) -> None:
    row = struct("Row", {"id": {"type": "int64"}, "n": {"type": "int64"}, "more": {"type": "string"}})
    write_contract(schemas, "s.wide", id="long", n="long")
    write_contract(schemas, "s.narrow", id="long", n="int")
    lake.sql(
        "CREATE TABLE s.wide FROM SOURCE feed (TOPIC 't') ENVELOPE UPSERT;"
        "CREATE TABLE s.narrow FROM SOURCE feed (TOPIC 't') ENVELOPE UPSERT"
    )
    append(tmp_path, "t", (json_record(KEY, {"id": 1}), json_record(row, {"id": 1, "n": 5_000_000_000, "more": "x"})))
    (report,) = lake.ingest("feed")
    assert {name: error.code for name, error in report.stopped.items()} == {"s.narrow": "contract-broken"}
    assert 'column "n" of table "s.narrow" is declared as int' in report.stopped["s.narrow"].message
    assert lake.sql("SELECT * FROM s.wide").rows == [(1, 5_000_000_000)], (
        "fields that the file does not name are skipped"
    )


def test_fields_of_a_declared_structure_are_found_by_name(lake: Lake, tmp_path: Path) -> None:
    text = {"type": "string", "optional": True}
    address = struct("Address", {"zip": text, "city": text}, optional=True)
    row = struct(
        "Row",
        {
            "id": {"type": "int64"},
            "home": address,
            "past": {"type": "array", "items": address, "optional": True},
            "named": {"type": "map", "keys": {"type": "string"}, "values": address, "optional": True},
        },
    )
    declared = "STRUCT<city: STRING, zip: STRING>"
    longer = "STRUCT<city: STRING, country: STRING, zip: STRING>"
    lake.sql(
        f"CREATE TABLE s.same (id BIGINT, home {declared}, past ARRAY<{declared}>, named MAP<STRING, {declared}>)"
        " FROM SOURCE feed (TOPIC 't') ENVELOPE UPSERT;"
        f"CREATE TABLE s.longer (id BIGINT, home {longer}, past ARRAY<{longer}>, named MAP<STRING, {longer}>)"
        " FROM SOURCE feed (TOPIC 't') ENVELOPE UPSERT"
    )
    ulm = {"zip": "89073", "city": "Ulm"}
    full = {"id": 1, "home": ulm, "past": [ulm, None], "named": {"work": ulm}}
    empty = {"id": 2, "home": None, "past": None, "named": None}
    append(tmp_path, "t", *((json_record(KEY, {"id": r["id"]}), json_record(row, r)) for r in (full, empty)))
    (report,) = lake.ingest("feed")
    assert report.stopped == {}
    city, in_country = Row(city="Ulm", zip="89073"), Row(city="Ulm", country=None, zip="89073")
    for table, found in (("s.same", city), ("s.longer", in_country)):
        assert lake.sql(f"SELECT * FROM {table} ORDER BY id").rows == [
            (1, found, [found, None], {"work": found}),
            (2, None, None, None),
        ]


def test_a_column_that_messages_spell_in_another_case_has_its_values(lake: Lake, schemas: Path, tmp_path: Path) -> None:
    text = {"type": "string", "optional": True}
    row = struct("Row", {"id": {"type": "int64"}, "name": text, "note": text})
    write_contract(schemas, "s.t", id="long", Name="string")
    lake.sql("CREATE TABLE s.t FROM SOURCE feed (TOPIC 't') ENVELOPE UPSERT")
    append(tmp_path, "t", (json_record(KEY, {"id": 1}), json_record(row, {"id": 1, "name": "Ulm", "note": "x"})))
    (report,) = lake.ingest("feed")
    assert report.stopped == {}
    found = lake.sql("SELECT * FROM s.t")
    assert (found.columns, found.rows) == (("id", "Name"), [(1, "Ulm")])
