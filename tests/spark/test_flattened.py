"""Debezium's flattened events: recorded ones, and rows that do not say whether they were deleted.

`tests/recorded/flattened` has what four connectors of Debezium 3.7 sent for one table of PostgreSQL, with `ExtractNewRecordState`
and `add.fields=op,lsn,source.ts_ms`: a snapshot of rows 1 and 2, an insert of row 3, an update of row 1 that leaves a large text
unchanged, an update of the key 3 to 4, and a delete of row 2. Their `delete.tombstone.handling.mode` is

flatjson, flatbare  rewrite: JSON with its schema, and without one
flatavro            rewrite-with-tombstone
flattomb            tombstone, so that rows have no `__deleted`
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from lakehold.ingest.decode.debezium import PLACEHOLDER
from tests.conftest import LakeFactory
from tests.connect_converters import envelope, json_record, struct
from tests.message_cases import UPSERT, Case, ingested, problems
from tests.registry_server import registry_server, subjects

pytestmark = pytest.mark.spark

RECORDED = Path(__file__).parents[1] / "recorded" / "flattened"
FLATTENED = "ENVELOPE DEBEZIUM FLATTENED"
LARGE = "a" * 2100
ROWS = [(1, "Ann", LARGE, Decimal("11.00"), "u"), (4, "Cid", "short", Decimal("7.00"), "c")]
ID, TEXT = {"type": "int64"}, {"type": "string", "optional": True}
KEY = struct("Key", {"id": ID})


def test_recorded_events_become_the_rows_of_the_database(make_lake: LakeFactory) -> None:
    lake = make_lake()
    schemas = {name: {int(n): text for n, text in of.items()} for name, of in _registry().items()}
    with registry_server(subjects(schemas)) as registry:
        lake.sql(f"CREATE CONNECTION registry TO SCHEMA REGISTRY (URL '{registry.url}')")
        lake.sql(f"CREATE SOURCE jsons FROM FILES '{RECORDED}' FORMAT JSON WITH (MAX RECORDS = 4)")
        lake.sql(f"CREATE SOURCE others FROM FILES '{RECORDED}' FORMAT JSON")
        lake.sql(f"CREATE SOURCE avros FROM FILES '{RECORDED}' FORMAT AVRO USING SCHEMA REGISTRY CONNECTION registry")
        listed = "(id INT, name STRING, bio STRING, __op STRING)"
        for name, source, topic, clauses in (
            ("flatjson", "jsons", "flatjson", FLATTENED),
            ("flatbare", "others", "flatbare", FLATTENED),
            ("flattomb", "others", "flattomb", FLATTENED),
            ("upserted", "others", "flattomb", UPSERT),
            ("flatavro", "avros", "flatavro", FLATTENED),
        ):
            columns = listed if name == "flatbare" else ""
            lake.sql(f"CREATE TABLE s.{name} {columns} FROM SOURCE {source} (TOPIC '{topic}.public.people') {clauses}")
        for source in ("jsons", "others", "avros"):
            lake.ingest(source)
    for name in ("flatjson", "flatavro"):
        assert lake.sql(f"SELECT id, name, bio, balance, __op FROM s.{name} ORDER BY id").rows == ROWS, name
        assert "__deleted" not in lake.sql(f"SELECT * FROM s.{name}").columns
    bare = [(id_, name, bio, op) for id_, name, bio, _, op in ROWS]
    assert lake.sql("SELECT * FROM s.flatbare ORDER BY id").rows == bare
    assert lake.sql("SELECT id, bio FROM s.upserted ORDER BY id").rows == [(1, PLACEHOLDER), (4, "short")]
    errors = lake.sql("SELECT table_name, reason, detail FROM mz_catalog.mz_source_errors WHERE healed_at IS NULL").rows
    assert {(table, reason) for table, reason, _ in errors} == {("s.flattomb", "not-debezium")}
    assert all("use ENVELOPE UPSERT" in detail for _, _, detail in errors)


def _registry() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads((RECORDED / "registry.json").read_text())
    return found


def test_rows_that_do_not_say_whether_they_were_deleted_are_errors(make_lake: LakeFactory, tmp_path: Path) -> None:
    def row(id_: int, v: str, **deleted: str | None) -> tuple[bytes, bytes]:
        fields = {"id": ID, "v": TEXT, **dict.fromkeys(deleted, TEXT)}
        return json_record(KEY, {"id": id_}), json_record(struct("Row", fields), {"id": id_, "v": v, **deleted})

    def bare(id_: int, **fields: str | bool) -> tuple[bytes, bytes]:
        return json.dumps({"id": id_}).encode(), json.dumps({"id": id_, **fields}).encode()

    # MongoDB's transformation sends a boolean, and of a deleted document perhaps nothing else.
    flag, id_ = {"type": "boolean", "optional": True}, struct("Key", {"id": TEXT})
    document, gone = struct("Document", {"total": ID, "__deleted": flag}), struct("Document", {"__deleted": flag})
    documents = [
        (json_record(id_, {"id": "a"}), json_record(document, {"total": 1, "__deleted": False})),
        (json_record(id_, {"id": "b"}), json_record(document, {"total": 2, "__deleted": False})),
        (json_record(id_, {"id": "a"}), json_record(gone, {"__deleted": True})),
    ]
    event = envelope(struct("Row", {"id": ID}))
    whole = {"before": None, "after": {"id": 1}, "op": "c", "source": None, "transaction": None, "ts_ms": 1}
    columns = "(id BIGINT, v STRING)|"
    cases = {
        "mixed": Case(
            FLATTENED,
            [row(1, "a"), row(2, "b", __deleted="false"), row(3, "c", __deleted=None)],
            [(2, "b")],
            reasons={0: "not-debezium", 2: "undecodable-value"},
        ),
        "healed": Case(
            FLATTENED,
            [row(1, "a", __deleted="false"), row(1, "a", __deleted="true"), (json_record(KEY, {"id": 2}), None)],
            [],
        ),
        "keyed_by_rows": Case(
            f"KEY (v) {FLATTENED}",
            [row(1, "a", __deleted="false"), row(2, "b", __deleted="false"), row(1, "a", __deleted="true")],
            [(2, "b")],
        ),
        "documents": Case(FLATTENED, documents, [("b", 2)]),
        "whole_events": Case(
            FLATTENED, [(json_record(KEY, {"id": 1}), json_record(event, whole))], reasons={0: "not-debezium"}
        ),
        "bare": Case(
            columns + FLATTENED,
            [
                bare(1, v="a", __deleted="false"),
                bare(2, v="b"),
                bare(1, v="a", __deleted=True),
                bare(3, v="c", __deleted="false"),
            ],
            [(3, "c")],
            reasons={1: "undecodable-value"},
        ),
        "not_flattened": Case(UPSERT, [row(1, "a", __deleted="true")], [(1, "a", "true")]),
    }
    lake = make_lake()
    assert problems(lake, ingested(lake, tmp_path, cases), cases) == []
