"""Change events as Debezium's other connectors write them, as far as its documentation shows them, and published ones.

`tests/recorded/connectors.jsonl` has published messages, one a line, with key and value as JSON. Their sources are

sqlserver     the create, the update and the delete in Debezium's documentation (`connectors/sqlserver.adoc`), with
              `event_serial_no` as the number that its schema says
mongodb       a row of a snapshot of Debezium 2.1 from RisingWave's tests (`parser/debezium/mongo_json_parser.rs`), and the
              update with `updateDescription` and the delete in Debezium's documentation (`connectors/mongodb.adoc`)
mongodb_bare  a create, an update and a delete from Paimon's tests (`kafka/debezium-bson/table/event`), Debezium 2.7, no schemas

Debezium, RisingWave and Paimon have the Apache License 2.0.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import LakeFactory
from tests.connect_converters import envelope, json_record, struct
from tests.message_cases import DEBEZIUM, DEBEZIUM_UPSERT, UPSERT, Case, Message, ingested, problems

pytestmark = pytest.mark.spark

RECORDED = Path(__file__).parents[1] / "recorded" / "connectors.jsonl"
TEXT, NUMBER, SMALL = (
    {"type": "string", "optional": True},
    {"type": "int64", "optional": True},
    {"type": "int32", "optional": True},
)
COMMON = {
    "version": {"type": "string"},
    "connector": {"type": "string"},
    "name": {"type": "string"},
    "ts_ms": {"type": "int64"},
    "snapshot": TEXT
    | {"name": "io.debezium.data.Enum", "parameters": {"allowed": "true,first,last,false,incremental"}},
    "db": {"type": "string"},
    "sequence": TEXT,
    "ts_us": NUMBER,
    "ts_ns": NUMBER,
    "schema": TEXT,
    "table": {"type": "string"},
}
SOURCES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sqlserver": (
        {"change_lsn": TEXT, "commit_lsn": TEXT, "event_serial_no": NUMBER},
        {"change_lsn": "00000027:00000758:0003", "commit_lsn": "00000027:00000758:0005", "event_serial_no": 1},
    ),
    "oracle": (
        {"txId": TEXT, "scn": TEXT, "commit_scn": TEXT, "lcr_position": TEXT, "rs_id": TEXT, "ssn": NUMBER}
        | {"redo_thread": SMALL, "user_name": TEXT, "redo_sql": TEXT, "row_id": TEXT},
        {"txId": "6.28.807", "scn": "2122185", "commit_scn": "2122185", "rs_id": "001234.00012345.0124", "ssn": 1}
        | {"redo_thread": 1, "row_id": "AAASgjAAMAAAACnAAA"},
    ),
    "db2": (
        {"change_lsn": TEXT, "commit_lsn": TEXT},
        {"change_lsn": "00000027:00000758:0003", "commit_lsn": "00000027:00000758:0005"},
    ),
    "informix": (
        {"txId": TEXT, "commit_lsn": TEXT, "change_lsn": TEXT, "begin_lsn": TEXT, "user_id": TEXT},
        {"txId": "19", "commit_lsn": "309241921704", "change_lsn": "309241921836", "begin_lsn": "309241921560"},
    ),
    "vitess": (
        {"keyspace": {"type": "string"}, "shard": {"type": "string"}, "vgtid": {"type": "string"}},
        {
            "keyspace": "shop",
            "shard": "-80",
            "vgtid": '[{"keyspace":"shop","shard":"-80","gtid":"MySQL56/e03ece:1-41"}]',
        },
    ),
}


def changes(connector: str) -> list[Message]:
    """Return the events of a snapshot of two rows, an update of one row and a delete of the other."""
    more, fields = SOURCES[connector]
    of_oracle = connector == "oracle"
    variable = struct("VariableScaleDecimal", {"scale": {"type": "int32"}, "value": {"type": "bytes"}})
    id_type = variable | {"name": "io.debezium.data.VariableScaleDecimal"} if of_oracle else {"type": "int64"}
    row = struct("Value", {"ID" if of_oracle else "id": id_type, "name": TEXT})
    change, key = envelope(row, struct("Source", COMMON | more)), struct("Key", {next(iter(_fields(row))): id_type})

    def message(op: str, before: Any, after: Any, snapshot: str = "false") -> Message:
        source = {
            "version": "3.3.0.Final",
            "connector": connector,
            "name": "shop",
            "ts_ms": 1795250902045,
            "db": "shop",
        }
        source |= {"snapshot": snapshot, "schema": "dbo", "table": "t"} | (fields if snapshot == "false" else {})
        source |= {n: fields[n] for n in ("keyspace", "shard", "vgtid") if n in fields}
        transaction = {"id": "7", "total_order": 1} if snapshot == "false" else None
        payload = {"before": before, "after": after, "source": source, "op": op, "transaction": transaction, "ts_ms": 1}
        own = (after or before)[next(iter(_fields(row)))]
        return json_record(key, {next(iter(_fields(row))): own}), json_record(change, payload)

    def values(number: int, name: str) -> dict[str, Any]:
        id_ = {"scale": 0, "value": "AQ==" if number == 1 else "Ag=="} if of_oracle else number
        return {next(iter(_fields(row))): id_, "name": name}

    first, second = values(1, "a"), values(2, "b")
    deleted = message("d", second, None)
    return [
        message("r", None, first, "first"),
        message("r", None, second, "last"),
        message("u", first, values(1, "c")),
        deleted,
        (deleted[0], None),
    ]


def _fields(row: Any) -> dict[str, Any]:
    return {field["field"]: field for field in row["fields"]}


def recorded(case: str, *, payloads: bool = False) -> list[Message]:
    """Return the published messages of a case; with `payloads` as a converter without schemas writes them."""
    messages = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    pairs = [(each["key"], each["value"]) for each in messages if each["case"] == case]
    if payloads:
        pairs = [(key["payload"], value["payload"]) for key, value in pairs]
    return [(_as_json(key), _as_json(value)) for key, value in pairs]


def _as_json(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def test_events_of_other_connectors_are_rows(make_lake: LakeFactory, tmp_path: Path) -> None:
    listed, documents = "(id INT, email STRING)|", dict.fromkeys(range(3), "unsupported-schema")
    flat = struct("orders", {"_id": TEXT, "total": SMALL})
    cases = {
        name: Case(DEBEZIUM_UPSERT, changes(name), [("1" if name == "oracle" else 1, "c")]) for name in SOURCES
    } | {
        "classic": Case(DEBEZIUM, changes("sqlserver"), stopped="envelope-connector"),
        "published": Case(DEBEZIUM_UPSERT, recorded("sqlserver"), []),
        "published_bare": Case(
            listed + DEBEZIUM_UPSERT, recorded("sqlserver", payloads=True)[:2], [(1005, "noreply@example.org")]
        ),
        "mongodb": Case(DEBEZIUM_UPSERT, recorded("mongodb"), reasons=documents),
        "mongodb_bare": Case("(id STRING)|" + DEBEZIUM_UPSERT, recorded("mongodb_bare"), reasons=documents),
        "documents": Case(
            UPSERT,
            [(json_record(struct("Key", {"_id": TEXT}), {"_id": "1"}), json_record(flat, {"_id": "1", "total": 5}))],
            [("1", 5)],
        ),
    }
    lake = make_lake()
    assert problems(lake, ingested(lake, tmp_path, cases), cases) == []
    (detail,) = lake.sql("SELECT DISTINCT detail FROM mz_catalog.mz_source_errors").rows[0]
    assert "text with a document" in detail
    assert "ExtractNewDocumentState" in detail
