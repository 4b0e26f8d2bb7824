"""Odd Avro messages: fields that no table can hold are skipped and reported, and branches of unions keep their columns."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import fastavro
import pytest

from lakehold.status import status_of
from tests import recorded_files
from tests.conftest import LakeFactory
from tests.connect_converters import framed
from tests.message_cases import DEBEZIUM, DEBEZIUM_UPSERT, NONE, UPSERT, Case, Message, ingested, problems
from tests.registry_server import registry_server, subjects

pytestmark = pytest.mark.spark

NULL = "Avro's type null has no values"
EMPTY = "a table can hold no structure without fields"
UNKNOWN = 99


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


class Schemas:
    """The schemas of a registry, and messages written with them."""

    def __init__(self) -> None:
        self.of_topics: dict[str, dict[int, str]] = {}
        self._texts: dict[str, int] = {}

    def written(self, topic: str, part: str, schema: Any, value: Any) -> bytes:
        """Return a part of a message."""
        text = json.dumps(schema)
        number = self._texts.setdefault(text, len(self._texts) + 1)
        self.of_topics.setdefault(f"{topic}-{part}", {})[number] = text
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
        return framed(number, out.getvalue())

    def messages(self, topic: str, key: Any, value: Any, *pairs: tuple[Any, Any]) -> list[Message]:
        """Return messages of one key and one value schema; a pair's None is a Kafka null."""
        return [
            (
                None if k is None else self.written(topic, "key", key, k),
                None if v is None else self.written(topic, "value", value, v),
            )
            for k, v in pairs
        ]


def left_out(path: str, why: str) -> str:
    return f'"{path}" is left out: {why}.'


def test_fields_that_no_table_can_hold_are_skipped_and_reported(make_lake: LakeFactory, tmp_path: Path) -> None:
    schemas = Schemas()
    key, row = record("Key", id="long"), record("Row", id="long", v=["null", "string"])
    odd = record(
        "Odd",
        id="long",
        nothing="null",
        nobody=["null", record("Empty")],
        nulls={"type": "array", "items": "null"},
        inside=record("Inside", gone=record("Gone", x="null"), here="int"),
        listed={"type": "array", "items": record("Item", gone={"type": "map", "values": "null"}, here=["int"])},
        either=["string", record("None"), "long"],
    )
    value = {
        "id": 1,
        "nothing": None,
        "nobody": {},
        "nulls": [None],
        "inside": {"gone": {"x": None}, "here": 2},
        "listed": [{"gone": {"k": None}, "here": 3}],
        "either": 5,
    }
    paths = {"nothing": NULL, "nobody": EMPTY, "nulls": NULL, "inside.gone": EMPTY, "listed.gone": NULL}
    sentences = [left_out(path, why) for path, why in {**paths, "either.None": EMPTY}.items()]
    nested_key, keyed = record("Key", id="long", of=record("Of", a="long")), {"id": 1, "of": {"a": 1}}
    key_with_null = record("Key", id="long", none="null")
    change = record("Change", after=["null", row], op="string")
    documents = record("Change", before=["null", "string"], after=["null", "string"], op="string")
    no_columns = record("Change", after=["null", record("Row")], op="string")
    cases = {
        "odd": Case(
            UPSERT,
            schemas.messages("odd", key, odd, ({"id": 1}, value)),
            [(1, (2,), [(3,)], (None, 5))],
            left_out=sentences,
        ),
        "nested_key": Case(
            UPSERT,
            schemas.messages("nested_key", nested_key, row, (keyed, {"id": 1, "v": "a"})),
            stopped="unsupported-key",
        ),
        "other_key": Case(
            f"KEY (id) {UPSERT}",
            schemas.messages("other_key", nested_key, row, (keyed, {"id": 1, "v": "a"}), (keyed, None)),
            [],
        ),
        "key_null": Case(
            UPSERT,
            schemas.messages("key_null", key_with_null, row, ({"id": 1, "none": None}, {"id": 1, "v": "a"})),
            [(1, "a")],
            left_out=[left_out("none", NULL)],
        ),
        "no_columns": Case(
            UPSERT,
            schemas.messages("no_columns", key, record("Row"), ({"id": 1}, {})),
            reasons={0: "unsupported-schema"},
        ),
        "null_value": Case(
            UPSERT,
            [
                *schemas.messages(
                    "null_value", key, row, ({"id": 1}, {"id": 1, "v": "a"}), ({"id": 2}, {"id": 2, "v": "b"})
                ),
                (
                    schemas.written("null_value", "key", key, {"id": 1}),
                    schemas.written("null_value", "value", ["null"], None),
                ),
                (
                    schemas.written("null_value", "key", key, {"id": 2}),
                    schemas.written("null_value", "value", "null", None),
                ),
            ],
            [],
        ),
        "events": Case(
            DEBEZIUM_UPSERT,
            schemas.messages(
                "events",
                key,
                change,
                ({"id": 1}, {"op": "c", "after": {"id": 1, "v": "a"}}),
                ({"id": 2}, {"op": "r", "after": {"id": 2, "v": None}}),
                ({"id": 1}, {"op": "d", "after": None}),
                ({"id": 1}, None),
                (None, {"op": "m", "after": None}),
            ),
            [(2, None)],
        ),
        "documents": Case(
            DEBEZIUM_UPSERT,
            schemas.messages("documents", key, documents, ({"id": 1}, {"op": "c", "before": None, "after": "{}"})),
            reasons={0: "unsupported-schema"},
        ),
        "no_row": Case(
            DEBEZIUM_UPSERT,
            schemas.messages("no_row", key, no_columns, ({"id": 1}, {"op": "c", "after": {}})),
            reasons={0: "unsupported-schema"},
        ),
        "flat": Case(
            DEBEZIUM_UPSERT,
            schemas.messages("flat", key, row, ({"id": 1}, {"id": 1, "v": "a"})),
            reasons={0: "not-debezium"},
        ),
        "unknown": Case(
            DEBEZIUM, [(framed(UNKNOWN, b"\x02"), framed(UNKNOWN, b"\x02"))], reasons={0: "unknown-schema"}
        ),
        "broken": Case(
            UPSERT,
            [(b"x", b"y"), (framed(UNKNOWN, b""), None), (None, b"")],
            reasons={0: "undecodable-key", 1: "unknown-schema", 2: "empty-value"},
        ),
        "only_m": Case(DEBEZIUM, schemas.messages("only_m", key, change, (None, {"op": "m", "after": None})), []),
        "appended": Case(
            NONE,
            [
                *schemas.messages(
                    "appended", key, ["null", row], (None, {"id": 1, "v": "a"}), (None, {"id": 1, "v": "a"})
                ),
                (b"no Avro", schemas.written("appended", "value", ["null", row], {"id": 2, "v": None})),
                (None, schemas.written("appended", "value", ["null", row], None)),
                (b"k", None),
                (b"k", b"x"),
                (b"k", framed(UNKNOWN, b"")),
            ],
            [(1, "a"), (1, "a"), (2, None)],
            reasons={3: "null-value", 4: "null-value", 5: "undecodable-value", 6: "unknown-schema"},
        ),
        "with_key": Case(
            f"INCLUDE KEY, KEY AS whole, OFFSET AS at {NONE}",
            [
                *schemas.messages("with_key", nested_key, record("Value", v="string"), (keyed, {"v": "a"})),
                (b"no Avro", schemas.written("with_key", "value", record("Value", v="string"), {"v": "b"})),
            ],
            [("a", 1, (1,), (1, (1,)), 0)],
            reasons={1: "undecodable-key"},
        ),
        "keyless": Case(
            UPSERT, schemas.messages("keyless", key, row, (None, {"id": 1, "v": "a"})), stopped="key-missing"
        ),
    }
    with registry_server(subjects(schemas.of_topics)) as registry:
        for driver_records in (100, 0):
            lake = make_lake(driver_read_max_records=driver_records)
            lake.sql(f"CREATE CONNECTION registry TO SCHEMA REGISTRY (URL '{registry.url}')")
            directory = tmp_path / str(driver_records)
            report = ingested(lake, directory, cases, "AVRO USING SCHEMA REGISTRY CONNECTION registry")
            assert problems(lake, report, cases) == []
            details = dict(lake.sql("SELECT table_name, detail FROM mz_catalog.mz_source_errors").rows)
            assert "ExtractNewDocumentState" in details["s.documents"]
            assert "no after and no op" in details["s.flat"]
            assert f"s.odd: {sentences[0]}" in status_of(lake).notices
            again = schemas.messages("odd", key, odd, ({"id": 2}, value | {"id": 2}))
            recorded_files.append(
                directory / "odd.jsonl", [recorded_files.line("odd", 0, 5 + n, v, k) for n, (k, v) in enumerate(again)]
            )
            reports = [each for batch in lake.ingest("feed") for each in batch.tables if each.table == "s.odd"]
            assert [(each.records, each.left_out) for each in reports] == [(1, ())]
            assert f"s.odd: {sentences[0]}" in status_of(lake).notices


def test_a_branch_of_a_union_keeps_its_column_wherever_later_versions_of_the_schema_put_it(
    make_lake: LakeFactory, tmp_path: Path
) -> None:
    schemas = Schemas()
    created, deleted, moved, other = (
        record(name, n="long") for name in ("shop.Created", "shop.Deleted", "shop.Moved", "other.Moved")
    )
    batches: list[tuple[list[Any], list[Any]]] = [
        (["null", created, deleted, "double"], [("shop.Created", {"n": 1}), ("shop.Deleted", {"n": 2}), 0.5]),
        (["long", deleted, "null", moved, created], [("shop.Created", {"n": 3}), 4, ("shop.Moved", {"n": 5})]),
        (["null", other, moved], [("other.Moved", {"n": 6}), ("shop.Moved", {"n": 7})]),
    ]
    written = [
        [
            (
                schemas.written("fields", "value", record("Event", what=union), {"what": value}),
                schemas.written("whole", "value", union, value),
            )
            for value in values
        ]
        for union, values in batches
    ]
    with registry_server(subjects(schemas.of_topics)) as registry:
        lake = make_lake()
        lake.sql(f"CREATE CONNECTION registry TO SCHEMA REGISTRY (URL '{registry.url}')")
        lake.sql(f"CREATE SOURCE feed FROM FILES '{tmp_path}' FORMAT AVRO USING SCHEMA REGISTRY CONNECTION registry")
        for name in ("fields", "whole"):
            lake.sql(f"CREATE TABLE s.{name} FROM SOURCE feed (TOPIC '{name}') ENVELOPE NONE")
        count = 0
        for values in written:
            for pair in values:
                for name, value in zip(("fields", "whole"), pair, strict=True):
                    recorded_files.append(
                        tmp_path / f"{name}.jsonl", [recorded_files.line(name, 0, count, value, None)]
                    )
                count += 1
            lake.ingest("feed")
    assert lake.sql("SELECT * FROM mz_catalog.mz_source_errors").rows == []
    known = [
        '{"Created":{"n":1}}',
        '{"Created":{"n":3}}',
        '{"Deleted":{"n":2}}',
        '{"Moved":{"n":5}}',
        '{"double":0.5}',
        '{"long":4}',
        '{"other_Moved":{"n":6}}',
        '{"shop_Moved":{"n":7}}',
    ]
    of_fields = lake.sql("SELECT to_json(what) FROM s.fields ORDER BY 1").rows
    of_whole = lake.sql("SELECT to_json(struct(*)) FROM s.whole ORDER BY 1").rows
    assert (of_fields, of_whole) == ([(text,) for text in known],) * 2


def test_the_hint_of_a_type_that_changed_can_be_followed_inside_columns_and_protects_the_key(
    make_lake: LakeFactory, tmp_path: Path
) -> None:
    schemas = Schemas()

    def message(number: str, key: str = "long") -> list[Message]:
        inside = record("Inside", value=number)
        listed, by_name = {"type": "array", "items": record("Item", x=number)}, {"type": "map", "values": number}
        row = record("Row", id=key, inside=inside, listed=listed, by_name=by_name)
        n, row_id = (1, 1) if number == "int" else (number, 1 if key == "long" else "1")
        value = {"id": row_id, "inside": {"value": n}, "listed": [{"x": n}], "by_name": {"k": n}}
        return schemas.messages("t", record("Key", id=key), row, ({"id": row_id}, value))

    messages = [*message("int"), *message("string"), *message("string", "string")]
    with registry_server(subjects(schemas.of_topics)) as registry:
        lake = make_lake()
        lake.sql(f"CREATE CONNECTION registry TO SCHEMA REGISTRY (URL '{registry.url}')")
        lake.sql(f"CREATE SOURCE feed FROM FILES '{tmp_path}' FORMAT AVRO USING SCHEMA REGISTRY CONNECTION registry")
        lake.sql(f"CREATE TABLE s.t FROM SOURCE feed (TOPIC 't') {UPSERT}")
        renames = []
        for number, (key, value) in enumerate(messages):
            recorded_files.append(tmp_path / "t.jsonl", [recorded_files.line("t", 0, number, value, key)])
            while error := next((e for report in lake.ingest("feed") for e in report.stopped.values()), None):
                assert error.code == "type-changed"
                if not (rename := re.search(r"ALTER TABLE .* TO …", error.hint)):
                    break
                renames.append(rename[0])
                lake.sql(rename[0].replace("…", "earlier"))
        assert [text.removeprefix("ALTER TABLE s.t RENAME COLUMN ") for text in renames] == [
            "inside.value TO …",
            "listed.element.x TO …",
            "by_name TO …",
        ]
        assert error is not None
        assert 'column "id"' in error.message
        assert "drop the table, delete its topic" in error.hint
        (found,) = lake.sql("SELECT to_json(struct(*)) FROM s.t").rows
        assert found == ('{"id":1,"inside":{"value":"string"},"listed":[{"x":"string"}],"by_name":{"k":"string"}}',)
