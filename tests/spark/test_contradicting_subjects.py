"""A registry holds contradicting schemas of a topic: only the schemas of the batch's messages matter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import recorded_files
from tests.conftest import LakeFactory
from tests.connect_converters import avro_body, avro_schema, framed, struct
from tests.registry_server import registry_server, subjects

pytestmark = pytest.mark.spark

KEY = avro_schema(struct("Key", {"id": {"type": "int64"}}))
ROW = avro_schema(struct("Row", {"id": {"type": "int64"}, "n": {"type": "int32"}}))
RETYPED = avro_schema(struct("Row", {"id": {"type": "int64"}, "n": {"type": "string"}}))
OTHER_KEY = avro_schema(struct("Key", {"code": {"type": "string"}}))
TEXTS = {number: json.dumps(schema) for number, schema in enumerate([KEY, ROW, RETYPED, OTHER_KEY], 1)}


@pytest.mark.parametrize(
    ("keys", "values", "code"), [((1,), (2, 3), "type-changed"), ((1, 4), (2,), "key-changed")], ids=["type", "key"]
)
def test_a_large_batch_stops_a_table_only_for_schemas_of_its_messages(
    make_lake: LakeFactory, tmp_path: Path, keys: tuple[int, ...], values: tuple[int, ...], code: str
) -> None:
    known = {"t-key": {i: TEXTS[i] for i in keys}, "t-value": {i: TEXTS[i] for i in values}}
    lake = make_lake(driver_read_max_records=0)

    def write(offset: int, key: bytes, content: bytes) -> None:
        recorded_files.append(tmp_path / "t.jsonl", [recorded_files.line("t", 0, offset, content, key)])

    def key_of(number: int) -> bytes:
        return framed(1, avro_body(KEY, {"id": number}))

    def row_of(number: int, n: Any, schema_id: int = 2) -> bytes:
        return framed(schema_id, avro_body(ROW if schema_id == 2 else RETYPED, {"id": number, "n": n}))

    with registry_server(subjects(known)) as registry:
        lake.sql(
            f"CREATE CONNECTION registry TO SCHEMA REGISTRY (URL '{registry.url}');"
            f"CREATE SOURCE feed FROM FILES '{tmp_path}' FORMAT AVRO USING SCHEMA REGISTRY CONNECTION registry;"
            "CREATE TABLE s.t FROM SOURCE feed (TOPIC 't') ENVELOPE UPSERT"
        )
        write(0, key_of(1), row_of(1, 10))
        (report,) = lake.ingest("feed")
        assert not report.stopped
        assert lake.sql(f"SELECT * FROM {lake.settings.catalog_name}.s.t").rows == [(1, 10)]

        if code == "type-changed":
            write(1, key_of(2), row_of(2, "ten", 3))
        else:
            write(1, framed(4, avro_body(OTHER_KEY, {"code": "a"})), row_of(2, 20))
        (report,) = lake.ingest("feed")
        assert report.stopped["s.t"].code == code
