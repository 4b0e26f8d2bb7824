"""Messages in odd or wrong formats each become a row, a delete, or an error that says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import recorded_files
from tests.conftest import LakeFactory
from tests.connect_converters import envelope, json_record, struct
from tests.message_cases import DEBEZIUM, DEBEZIUM_UPSERT, UPSERT, Case, Message, ingested, problems

pytestmark = pytest.mark.spark

INT, TEXT, DOUBLE = {"type": "int64"}, {"type": "string"}, {"type": "double"}
KEY = struct("Key", {"id": INT})
ROW = struct("Row", {"id": INT, "v": TEXT | {"optional": True}})


def key(id_: Any, schema: Any = KEY) -> bytes:
    return json_record(schema, {"id": id_})


def row(id_: Any, v: Any = "a", schema: Any = ROW) -> bytes:
    return json_record(schema, {"id": id_, "v": v})


def compact(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


NULLS = {
    "schema_null": b'{"schema":null,"payload":null}',
    "payload_first": b' { "payload" : null , "schema" : null } ',
    "payload_only": b'{"payload":null}',
    "json_null": b" null\n",
    "with_schema": json_record(ROW | {"optional": True}, None),
    "schema_last": compact({"payload": None, "schema": ROW | {"optional": True}}),
}


def test_a_null_in_any_form_deletes(make_lake: LakeFactory, tmp_path: Path) -> None:
    kept = (key(2), row(2))
    change = envelope(ROW)
    event = json_record(change, {"op": "c", "after": {"id": 1, "v": "a"}, "source": {"connector": "postgresql"}})
    other = json_record(change, {"op": "c", "after": {"id": 2, "v": "a"}, "source": {"connector": "postgresql"}})
    declared = "(id BIGINT, v STRING)|"
    bare = [(b'{"id":1}', b'{"id":1,"v":"a"}'), (b'{"id":2}', b'{"id":2,"v":"a"}')]
    bare_events = [(k, b'{"op":"c","after":' + v + b"}") for k, v in bare if v]
    cases: dict[str, Case] = {}
    for name, null in NULLS.items():
        cases[f"u_{name}"] = Case(UPSERT, [(key(1), row(1)), kept, (key(1), null)], [(2, "a")])
        cases[f"d_{name}"] = Case(DEBEZIUM_UPSERT, [(key(1), event), (key(2), other), (key(1), null)], [(2, "a")])
        cases[f"b_{name}"] = Case(f"{declared}{UPSERT}", [*bare, (b'{"id":1}', null)], [(2, "a")])
        cases[f"e_{name}"] = Case(f"{declared}{DEBEZIUM_UPSERT}", [*bare_events, (b'{"id":1}', null)], [(2, "a")])
    lake = make_lake()
    assert problems(lake, ingested(lake, tmp_path, cases), cases) == []


def test_a_row_of_a_snapshot_that_denies_to_be_one_is_an_error(make_lake: LakeFactory, tmp_path: Path) -> None:
    """It would begin a snapshot, and the rows before it be deleted."""
    source = struct("Source", {"connector": TEXT, "snapshot": TEXT, "lsn": INT})
    change = envelope(ROW, source)

    def event(op: str, id_: int, snapshot: str = "false") -> Message:
        place = {"connector": "postgresql", "snapshot": snapshot, "lsn": id_}
        return key(id_), json_record(change, {"op": op, "after": {"id": id_, "v": "a"}, "source": place})

    streamed = [event("c", 1), event("c", 2)]
    cases = {
        "denied": Case(DEBEZIUM_UPSERT, [*streamed, event("r", 3)], [(1, "a"), (2, "a")], reasons={2: "unknown-op"}),
        "snapshot": Case(DEBEZIUM_UPSERT, [*streamed, event("r", 3, "true"), event("c", 4)], [(3, "a"), (4, "a")]),
    }
    lake = make_lake()
    assert problems(lake, ingested(lake, tmp_path, cases), cases) == []


def _in_other_orders(schema: Any, payload: Any) -> list[bytes]:
    return [
        compact({"payload": payload, "schema": schema}),
        compact({"version": 1, "schema": schema, "payload": payload}),
        compact({"schema": schema, "more": [], "payload": payload}),
    ]


def test_a_schema_in_another_place_than_connects_is_an_error(make_lake: LakeFactory, tmp_path: Path) -> None:
    good = [(key(n), row(n)) for n in range(3)]
    bad = [(key(3), text) for text in _in_other_orders(ROW, {"id": 3, "v": "x"})]
    bare = [(b'{"id":1}', b'{"payload":null,"id":1,"v":"a"}'), (b'{"id":2}', b'{"schema":"x","id":2,"v":"b"}')]
    cases = {
        "rows": Case(
            UPSERT, [*good, *bad], [(n, "a") for n in range(3)], reasons=dict.fromkeys((3, 4, 5), "unknown-schema")
        ),
        "own_payload": Case(f"(id BIGINT, v STRING)|{UPSERT}", bare, [(1, "a"), (2, "b")]),
    }
    for driver_records in (100, 0):
        lake = make_lake(driver_read_max_records=driver_records)
        assert problems(lake, ingested(lake, tmp_path / str(driver_records), cases), cases) == []


def test_an_envelope_needs_no_before(make_lake: LakeFactory, tmp_path: Path) -> None:
    change = struct("Envelope", {"after": ROW | {"optional": True}, "op": TEXT})

    def event(op: str, after: Any) -> bytes:
        return json_record(change, {"after": after, "op": op})

    changes = [
        (key(1), event("c", {"id": 1, "v": "a"})),
        (key(2), event("r", {"id": 2, "v": "b"})),
        (key(1), event("u", {"id": 1, "v": "c"})),
        (key(2), event("d", None)),
        (key(2), None),
        (None, event("m", None)),
    ]
    bare = [(k, v and json.dumps(json.loads(v)["payload"]).encode()) for k, v in changes]
    cases = {
        "upsert": Case(DEBEZIUM_UPSERT, changes, [(1, "c")]),
        "declared": Case(f"(id BIGINT, v STRING)|{DEBEZIUM_UPSERT}", bare, [(1, "c")]),
        "classic": Case(DEBEZIUM, changes, stopped="before-missing"),
        "inserts": Case(DEBEZIUM, changes[:2], [(1, "a"), (2, "b")]),
    }
    lake = make_lake()
    report = ingested(lake, tmp_path, cases)
    assert problems(lake, report, cases) == []
    stop = report.stopped["s.classic"]
    assert "no such field" in stop.detail
    assert "REPLICA IDENTITY" not in stop.hint


GARBAGE = [(b"\xff\x00", b"\xfe"), (b"{", b'{"id":'), (b"x", b" "), (None, b"[")]


def test_a_batch_of_bad_messages_becomes_a_batch_of_errors(make_lake: LakeFactory, tmp_path: Path) -> None:
    unknown = {0: "undecodable-key", 1: "undecodable-key", 2: "empty-value", 3: "unknown-schema"}
    broken = {0: "undecodable-key", 1: "undecodable-key", 2: "empty-value", 3: "undecodable-value"}
    cases = {
        "upsert": Case(UPSERT, GARBAGE, reasons=unknown),
        "named": Case(
            f"KEY (id) {UPSERT}", GARBAGE, reasons=dict.fromkeys((0, 1, 3), "unknown-schema") | {2: "empty-value"}
        ),
        "events": Case(DEBEZIUM_UPSERT, GARBAGE, reasons=unknown),
        "classic": Case(DEBEZIUM, GARBAGE, reasons=unknown),
        "declared": Case(f"(id BIGINT, v STRING)|KEY (id) {UPSERT}", GARBAGE, reasons=broken | {2: "undecodable-key"}),
        "tombstones": Case(UPSERT, [(key(1), None), (None, None)]),
        "only_null": Case(DEBEZIUM_UPSERT, [(key(1), b"null")]),
    }
    for driver_records, some in ((100, cases), (0, {name: cases[name] for name in ("upsert", "tombstones")})):
        directory = tmp_path / str(driver_records)
        lake = make_lake(driver_read_max_records=driver_records)
        assert problems(lake, ingested(lake, directory, some), some) == []
        goes_on = [name for name in ("upsert", "named") if name in some]
        for name in goes_on:
            good = [recorded_files.line(name, 0, 10 + n, row(n), key(n)) for n in range(2)]
            recorded_files.append(directory / f"{name}.jsonl", good)
        lake.ingest("feed")
        for name in goes_on:
            assert sorted(lake.sql(f"SELECT * FROM s.{name}").rows) == [(0, "a"), (1, "a")]
            bad = [recorded_files.line(name, 0, 20 + n, value, k) for n, (k, value) in enumerate(GARBAGE)]
            recorded_files.append(directory / f"{name}.jsonl", bad)
        (report,) = lake.ingest("feed")
        assert not report.stopped
        assert {(each.records, each.errors) for each in report.tables} == {(4, 4)}
        assert sorted(lake.sql("SELECT * FROM s.upsert").rows) == [(0, "a"), (1, "a")]


@pytest.mark.parametrize("opening", [b"[", b'{"id":'], ids=["arrays", "objects"])
def test_a_message_that_is_nested_too_deeply_is_an_error_for_each_table(
    make_lake: LakeFactory, tmp_path: Path, opening: bytes
) -> None:
    deep = opening * 1_100
    messages = [(b'{"id":1}', b'{"id":1,"v":"a"}'), (deep, b'{"id":2,"v":"a"}'), (b'{"id":3}', deep)]
    reasons = {1: "undecodable-key", 2: "undecodable-value"}
    cases = {
        name: Case(f"(id BIGINT, v STRING)|{clauses}", messages, [(1, "a")], reasons=reasons)
        for name, clauses in (("latest", UPSERT), ("with_key", f"INCLUDE KEY {UPSERT}"))
    }
    lake = make_lake()
    assert problems(lake, ingested(lake, tmp_path, cases), cases) == []


def _typed(key_type: Any, row_type: Any, *values: tuple[Any, Any]) -> list[Message]:
    keyed, of_row = struct("Key", {"id": key_type}), struct("Row", {"id": row_type, "v": TEXT})
    return [(key(k, keyed), row(r, f"v{n}", of_row)) for n, (k, r) in enumerate(values)]


def test_types_of_key_and_value_may_differ_where_values_are_equal(make_lake: LakeFactory, tmp_path: Path) -> None:
    date = {"type": "int32", "name": "io.debezium.time.Date"}
    decimal = {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "2", "connect.decimal.precision": "9"},
    }
    texts = _typed(TEXT, INT, ("1", 1), ("x", 2), ("03", 3), (str(2**70), 4))
    change = envelope(struct("Row", {"id": INT, "v": TEXT}))
    text_key = struct("Key", {"id": TEXT})
    events = [
        (
            key(k, text_key),
            json_record(change, {"op": "c", "after": {"id": n, "v": "e"}, "source": {"connector": "mysql"}}),
        )
        for n, k in enumerate(("0", "one", "2"))
    ]
    cases = {
        "text_number": Case(
            UPSERT, [*texts, (key("1", text_key), None)], [], reasons=dict.fromkeys((1, 2, 3), "key-type")
        ),
        "named": Case(f"KEY (id) {UPSERT}", texts, [(1, "v0")], reasons=dict.fromkeys((1, 2, 3), "key-type")),
        "double_number": Case(
            UPSERT,
            _typed(DOUBLE, INT, (1.0, 1), (2.5, 2), ("NaN", 3)),
            [(1, "v0")],
            reasons={1: "key-type", 2: "key-type"},
        ),
        "number_double": Case(
            UPSERT, _typed(INT, DOUBLE, (1, 1.0), (2**53 + 1, 2.0**53)), [(1.0, "v0")], reasons={1: "key-type"}
        ),
        "number_text": Case(UPSERT, _typed(INT, TEXT, (1, "1")), [("1", "v0")]),
        "int_long": Case(UPSERT, _typed({"type": "int32"}, INT, (1, 1)), [(1, "v0")]),
        "long_int": Case(UPSERT, _typed(INT, {"type": "int32"}, (2**40, 1)), [(2**40, "v0")]),
        "boolean_text": Case(UPSERT, _typed({"type": "boolean"}, TEXT, (True, "true")), [("true", "v0")]),
        "decimal_number": Case(
            UPSERT, _typed(decimal, INT, ("AMg=", 2), ("AMk=", 2)), [(2, "v0")], reasons={1: "key-type"}
        ),
        "date_text": Case(UPSERT, _typed(date, TEXT, (0, "1970-01-01")), [("1970-01-01", "v0")]),
        "bytes_number": Case(UPSERT, _typed({"type": "bytes"}, INT, ("AA==", 1)), stopped="key-type"),
        "date_number": Case(UPSERT, _typed(date, INT, (1, 1)), stopped="key-type"),
        "structure": Case(UPSERT, _typed(struct("S", {"a": INT}), INT, ({"a": 1}, 1)), stopped="key-type"),
        "structures": Case(
            UPSERT,
            _typed(struct("S", {"a": INT}), struct("S", {"a": INT}), ({"a": 1}, {"a": 1})),
            stopped="unsupported-key",
        ),
        "events": Case(DEBEZIUM_UPSERT, events, [(0, "e"), (2, "e")], reasons={1: "key-type"}),
        "events_named": Case(f"KEY (id) {DEBEZIUM_UPSERT}", events, [(0, "e"), (2, "e")], reasons={1: "key-type"}),
    }
    for driver_records, some in ((100, cases), (0, {name: cases[name] for name in ("text_number", "events")})):
        lake = make_lake(driver_read_max_records=driver_records)
        assert problems(lake, ingested(lake, tmp_path / str(driver_records), some), some) == []


def test_keys_of_any_single_type_are_kept_apart(make_lake: LakeFactory, tmp_path: Path) -> None:
    array, entries = {"type": "array", "items": INT}, {"type": "map", "keys": TEXT, "values": INT}

    def twice(schema: Any, *values: Any) -> list[Message]:
        keyed, of_row = struct("Key", {"k": schema}), struct("Row", {"v": TEXT})
        return [
            (json_record(keyed, {"k": k}), json_record(of_row, {"v": f"{v}{n}"}))
            for v in "ab"
            for n, k in enumerate(values)
        ]

    floats = ("NaN", 0.0, "-Infinity", -0.0)
    cases = {
        "doubles": Case(UPSERT, twice(DOUBLE, *floats), []),
        "floats": Case(UPSERT, twice({"type": "float"}, *floats), []),
        "bytes": Case(
            UPSERT, twice({"type": "bytes"}, "", "AA==", "AAA="), [(b"", "b0"), (b"\0", "b1"), (b"\0\0", "b2")]
        ),
        "booleans": Case(UPSERT, twice({"type": "boolean"}, True, False), [(True, "b0"), (False, "b1")]),
        "arrays": Case(UPSERT, twice(array, [1]), stopped="unsupported-key"),
        "maps": Case(UPSERT, twice(entries, {"a": 1}), stopped="unsupported-key"),
        "named": Case(f"KEY (k) {UPSERT}", twice(struct("S", {"a": INT}), {"a": 1}), stopped="unsupported-key"),
    }
    for driver_records, some in ((100, cases), (0, {name: cases[name] for name in ("doubles", "floats", "bytes")})):
        lake = make_lake(driver_read_max_records=driver_records)
        directory = tmp_path / str(driver_records)
        found = problems(lake, ingested(lake, directory, some), some)
        assert [each for each in found if "float" not in each and "double" not in each] == []
        again = {name: case.messages for name, case in some.items() if case.stopped is None}
        for name, messages in again.items():
            lines = [recorded_files.line(name, 0, 100 + n, value, k) for n, (k, value) in enumerate(messages)]
            recorded_files.append(directory / f"{name}.jsonl", lines)
        lake.ingest("feed")
        for name in ("doubles", "floats"):
            held = lake.sql(f"SELECT CAST(k AS STRING), v FROM s.{name}").rows
            assert sorted((k.removeprefix("-") if k == "-0.0" else k, v) for k, v in held) == [
                ("-Infinity", "b2"),
                ("0.0", "b3"),
                ("NaN", "b0"),
            ]
        assert sorted(lake.sql("SELECT * FROM s.bytes").rows) == [(b"", "b0"), (b"\0", "b1"), (b"\0\0", "b2")]
