"""A column whose name no table can have stops its table before anything changes; the error names the column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakehold.errors import LakeholdError
from lakehold.lake import Lake
from lakehold.tables.stored_key import stored_key
from tests import recorded_files
from tests.connect_converters import avro_body, avro_schema, framed, json_record, struct
from tests.registry_server import registry_server, subjects

pytestmark = pytest.mark.spark

TEXT = {"type": "string", "optional": True}
NUMBER = {"type": "int32", "optional": True}


class Feed:
    """A source `feed` of recorded files, whose topics each feed a table of the same name."""

    def __init__(self, lake: Lake, directory: Path) -> None:
        self.lake, self.directory = lake, directory
        self.offsets: dict[str, int] = {}
        directory.mkdir(parents=True)
        lake.sql(f"CREATE SOURCE feed FROM FILES '{directory}' FORMAT JSON")

    def table(self, topic: str, columns: str = "", options: str = "") -> None:
        self.lake.sql(f"CREATE TABLE s.{topic} {columns} FROM SOURCE feed (TOPIC '{topic}') ENVELOPE UPSERT {options}")

    def write(self, topic: str, fields: dict[str, Any], row: dict[str, Any]) -> None:
        """Append the message of one row, whose key is its `id`."""
        key = json_record(struct("Key", {"id": NUMBER}), {"id": row["id"]})
        value = json_record(struct("Row", {"id": NUMBER, **fields}), row)
        offset = self.offsets.get(topic, 0)
        line = recorded_files.line(topic, 0, offset, value, key)
        recorded_files.append(self.directory / f"{topic}.jsonl", [line])
        self.offsets[topic] = offset + 1

    def stopped(self) -> dict[str, LakeholdError]:
        return {name: error for report in self.lake.ingest("feed") for name, error in report.stopped.items()}

    def rows(self, topic: str) -> list[tuple[Any, ...]]:
        return self.lake.sql(f"SELECT * FROM {self.lake.settings.catalog_name}.s.{topic} ORDER BY id").rows


NAMES: list[tuple[dict[str, Any], str, str]] = [
    ({"_File": TEXT}, "column-reserved", 'column "_File"'),
    ({"__row_operation": TEXT}, "column-reserved", 'column "__row_operation"'),
    ({"ID": TEXT}, "column-case", '"id" and "ID"'),
    ({"o": struct("O", {"x": TEXT, "X": TEXT})}, "column-case", '"o"."x" and "o"."X"'),
    ({"a": struct("A", {"b": TEXT}), "a.b": TEXT}, "column-collision", '"a"."b" and "a.b"'),
    ({"o": struct("O", {"": TEXT})}, "column-unnamed", 'in column "o"'),
]


def test_column_names_that_a_table_cannot_have_stop_it_and_no_neighbour(lake: Lake, tmp_path: Path) -> None:
    feed = Feed(lake, tmp_path / "feed")
    cases = dict(enumerate(NAMES))
    feed.table("plain")
    feed.write("plain", {"v": TEXT}, {"id": 1, "v": "a"})
    for number, (fields, _, _) in cases.items():
        feed.table(f"new{number}")
        feed.write(f"new{number}", fields, {"id": 1})
        feed.table(f"old{number}")
        feed.write(f"old{number}", {}, {"id": 1})
    first = feed.stopped()
    assert set(first) == {f"s.new{number}" for number in cases}
    for number, (fields, _, _) in cases.items():
        feed.write(f"old{number}", fields, {"id": 2})
    feed.write("plain", {"v": TEXT}, {"id": 2, "v": "b"})
    later = feed.stopped()
    for number, (fields, code, message) in cases.items():
        for error in (first[f"s.new{number}"], later[f"s.old{number}"]):
            assert (error.code, message in error.message) == (code, True), error
            assert 'of table "s.' in error.message
            assert ("column list" in error.hint) == ("ID" not in fields)
        assert feed.rows(f"old{number}") == [(1,)]
    assert feed.rows("plain") == [(1, "a"), (2, "b")]


def test_a_column_that_is_renamed_in_case_only_continues_after_the_hint(lake: Lake, tmp_path: Path) -> None:
    feed = Feed(lake, tmp_path / "feed")
    for topic in ("same", "other"):
        feed.table(topic)
        feed.write(topic, {"Note": TEXT}, {"id": 1, "Note": "a"})
    assert feed.stopped() == {}
    for topic in ("same", "other"):
        feed.write(topic, {"note": TEXT}, {"id": 2, "note": "b"})
    errors = feed.stopped()
    assert {name: error.code for name, error in errors.items()} == {"s.same": "column-case", "s.other": "column-case"}
    same, _, other = errors["s.same"].hint.partition(". If it is another one: ")
    lake.sql(same.removeprefix("If it is the same column: "))
    lake.sql(other.removesuffix(". Then ingest again.").replace("s.same", "s.other"))
    assert feed.stopped() == {}
    assert (feed.rows("same"), feed.rows("other")) == ([(1, "a"), (2, "b")], [(1, None), (2, "b")])


def test_a_table_that_its_owner_partitioned_by_a_column_goes_on(lake: Lake, tmp_path: Path) -> None:
    feed = Feed(lake, tmp_path / "feed")
    feed.table("t")
    feed.write("t", {"v": TEXT}, {"id": 1, "v": "a"})
    assert feed.stopped() == {}
    lake.sql("ALTER TABLE s.t ADD PARTITION FIELD v")
    feed.write("t", {"v": TEXT, "w": TEXT}, {"id": 1, "v": "b", "w": "c"})
    assert feed.stopped() == {}
    assert feed.rows("t") == [(1, "b", "c")]


def test_a_column_list_skips_columns_with_impossible_names(lake: Lake, tmp_path: Path) -> None:
    feed = Feed(lake, tmp_path / "feed")
    feed.table("t", "(id INT, v STRING)")
    feed.table("u", "(id INT, Name STRING)")
    fields = {"_file": TEXT, "name": TEXT, "Name": TEXT, "v": TEXT, "o": struct("O", {"x": TEXT, "X": TEXT})}
    for topic in ("t", "u"):
        feed.write(topic, fields, {"id": 1, "_file": "f", "name": "lower", "Name": "Upper", "v": "v", "o": {"x": "x"}})
    assert {name: error.code for name, error in feed.stopped().items()} == {"s.u": "column-case"}
    assert feed.rows("t") == [(1, "v")]


def test_avro_fields_that_differ_in_case_only_stop_their_tables_whatever_columns_they_list(
    lake: Lake, tmp_path: Path
) -> None:
    key, row = (
        avro_schema(struct(name, fields))
        for name, fields in (("Key", {"id": NUMBER}), ("Row", {"id": NUMBER, "Name": TEXT, "name": TEXT, "v": TEXT}))
    )
    value = framed(2, avro_body(row, {"id": 1, "Name": "N", "name": "n", "v": "v"}))
    line = recorded_files.line("t", 0, 0, value, framed(1, avro_body(key, {"id": 1})))
    recorded_files.append(tmp_path / "feed" / "t.jsonl", [line])
    known = {"t-key": {1: json.dumps(key)}, "t-value": {2: json.dumps(row)}}
    with registry_server(subjects(known)) as registry:
        lake.sql(
            f"CREATE CONNECTION registry TO SCHEMA REGISTRY (URL '{registry.url}');"
            f"CREATE SOURCE feed FROM FILES '{tmp_path / 'feed'}' FORMAT AVRO USING SCHEMA REGISTRY CONNECTION registry;"
            "CREATE TABLE s.t FROM SOURCE feed (TOPIC 't') ENVELOPE UPSERT;"
            "CREATE TABLE s.u (id INT, v STRING) FROM SOURCE feed (TOPIC 't') ENVELOPE UPSERT"
        )
        stopped = {name: error for report in lake.ingest("feed") for name, error in report.stopped.items()}
    assert {name: error.code for name, error in stopped.items()} == {"s.t": "column-case", "s.u": "column-case"}
    assert not any("column list" in error.hint for error in stopped.values())


def test_a_column_may_have_the_name_of_the_key_buckets(lake: Lake, tmp_path: Path) -> None:
    feed = Feed(lake, tmp_path / "feed")
    for topic in ("t", "u"):
        feed.table(topic, options="WITH (BUCKETS = 4)")
    for number in (1, 2, 1):
        feed.write("t", {"id_bucket": TEXT, "id_bucket_2": TEXT}, {"id": number, "id_bucket": "b"})
        feed.write("u", {}, {"id": number})
        assert feed.stopped() == {}
    assert feed.rows("t") == [(1, "b", None), (2, "b", None)]
    (spec,) = [spec for spec in feed.lake.catalog.load_table(("s", "t")).specs().values() if spec.fields]
    assert [(field.name, str(field.transform)) for field in spec.fields] == [("id_bucket_3", "bucket[4]")]

    feed.write("u", {"id_bucket": TEXT}, {"id": 3})
    error = feed.stopped()["s.u"]
    assert (error.code, '"id_bucket"' in error.message) == ("column-collision", True)
    feed.lake.sql("DROP TABLE s.u")
    feed.table("u")
    assert feed.stopped() == {}
    assert feed.rows("u") == [(1, None), (2, None), (3, None)]


@pytest.mark.parametrize("names", [("a,b", "c"), ("[a]",)])
def test_key_columns_may_have_any_names(lake: Lake, tmp_path: Path, names: tuple[str, ...]) -> None:
    feed = Feed(lake, tmp_path / "feed")
    listed = ", ".join(f"`{name}`" for name in names)
    feed.table("t", f"(id INT, {', '.join(f'`{name}` STRING' for name in names)})", f"KEY ({listed})")
    for text in ("x", "y", "x"):
        feed.write("t", dict.fromkeys(names, TEXT), {"id": 1, **dict.fromkeys(names, text)})
        assert feed.stopped() == {}
    state = feed.lake.tables.table_state("s.t")
    assert tuple(column.name for column in stored_key(state)) == names
    assert len(feed.rows("t")) == 2
