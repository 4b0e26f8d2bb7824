"""JSON with and without a schema in one topic, and JSON that is not UTF-8: each message is a row, a delete, or an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import LakeFactory
from tests.connect_converters import envelope, json_record, struct
from tests.message_cases import DEBEZIUM_UPSERT, NONE, UPSERT, Case, ingested, problems

pytestmark = pytest.mark.spark

KEY = struct("Key", {"id": {"type": "int64"}})
ROW = struct("Row", {"id": {"type": "int64"}, "v": {"type": "string"}})
DECLARED = "(id BIGINT, v STRING)|"


def bare(id_: int, v: str) -> tuple[bytes, bytes]:
    return json.dumps({"id": id_}).encode(), json.dumps({"id": id_, "v": v}).encode()


def with_schema(id_: int, v: str) -> tuple[bytes, bytes]:
    return json_record(KEY, {"id": id_}), json_record(ROW, {"id": id_, "v": v})


@pytest.mark.parametrize("driver_records", [100, 0], ids=["read in the driver", "read by Spark"])
def test_messages_with_and_without_a_schema_share_a_topic(
    make_lake: LakeFactory, tmp_path: Path, driver_records: int
) -> None:
    null = json_record(ROW | {"optional": True}, None)
    change = envelope(ROW)
    event = json_record(change, {"op": "c", "after": {"id": 1, "v": "a"}, "source": {"connector": "postgresql"}})
    bare_event = b'{"op":"c","after":{"id":2,"v":"b"}}'
    unusable = b'{"schema":{"type":"strange"},"payload":{"id":3,"v":"c"}}'
    rows = [(1, "a"), (2, "b"), (3, "c")]
    cases = {
        "one_with_a_schema": Case(f"{DECLARED}{UPSERT}", [bare(1, "a"), with_schema(2, "b"), bare(3, "c")], rows),
        "one_without": Case(f"{DECLARED}KEY (id) {UPSERT}", [with_schema(1, "a"), bare(2, "b")], rows[:2]),
        "deleted": Case(
            f"{DECLARED}KEY (id) {UPSERT}",
            [bare(1, "a"), with_schema(2, "b"), (with_schema(1, "")[0], null)],
            rows[1:2],
        ),
        "events": Case(
            f"{DECLARED}KEY (id) {DEBEZIUM_UPSERT}",
            [(with_schema(1, "")[0], event), (bare(2, "")[0], bare_event)],
            rows[:2],
        ),
        "unusable": Case(
            f"{DECLARED}KEY (id) {UPSERT}",
            [bare(1, "a"), with_schema(2, "b"), (None, unusable)],
            rows[:2],
            reasons={2: "unsupported-schema"},
        ),
        "not_declared": Case(
            f"KEY (id) {UPSERT}", [with_schema(1, "a"), bare(2, "b")], rows[:1], reasons={1: "unknown-schema"}
        ),
        "columns_called_so": Case(
            f"(schema MAP<STRING, BIGINT>, payload STRING)|{NONE}",
            [(None, b'{"schema":{"a":1},"payload":"x"}')],
            [({"a": 1}, "x")],
        ),
    }
    outbox = struct("Outbox", {"id": {"type": "int64"}, "payload": {"type": "string"}})
    cases["column_called_payload"] = Case(
        f"(id BIGINT, payload STRING)|KEY (id) {UPSERT}",
        [
            (with_schema(1, "")[0], json_record(outbox, {"id": 1, "payload": "a"})),
            (bare(2, "")[0], b'{"id":2,"payload":"b"}'),
        ],
        rows[:2],
    )
    if not driver_records:  # Spark runs the decoding of the driver: what matters is how a batch mixes messages
        cases = {name: cases[name] for name in ("deleted", "events", "unusable")}
    lake = make_lake(driver_read_max_records=driver_records)
    assert problems(lake, ingested(lake, tmp_path, cases), cases) == []


@pytest.mark.parametrize("driver_records", [100, 0], ids=["read in the driver", "read by Spark"])
def test_json_that_is_not_utf8_is_an_error(make_lake: LakeFactory, tmp_path: Path, driver_records: int) -> None:
    """Check it before the parser writes one character for all that it cannot read, so that two keys become one."""
    latin = "Müller".encode("latin-1")
    (good_key, good), (key, row) = bare(1, "Müller"), with_schema(2, "NAME")
    cases = {
        "declared": Case(
            f"{DECLARED}KEY (id) {UPSERT}",
            [(good_key, good), (b'{"id":2}', b'{"id":2,"v":"' + latin + b'"}')],
            [(1, "Müller")],
            reasons={1: "undecodable-value"},
        ),
        "with_schema": Case(
            UPSERT,
            [with_schema(1, "Müller"), (key, row.replace(b"NAME", latin))],
            [(1, "Müller")],
            reasons={1: "undecodable-value"},
        ),
        "key": Case(
            f"(name STRING, n BIGINT)|KEY (name) {UPSERT}",
            [(b'{"name":"M\xfcller"}', b'{"n":1}'), (b"M\xf6ller", b'{"n":2}'), (b"Muller", b'{"n":3}')],
            [("Muller", 3)],
            reasons={0: "undecodable-key", 1: "null-key"},
        ),
    }
    lake = make_lake(driver_read_max_records=driver_records)
    assert problems(lake, ingested(lake, tmp_path, cases), cases) == []
