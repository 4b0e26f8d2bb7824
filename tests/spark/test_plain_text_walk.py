"""Text that Spark, Iceberg or Python's formatting could interpret stays unchanged through every part of a lake."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from lakehold.lake import Lake
from lakehold.spark_sql import literal, quoted
from tests import recorded_files
from tests.connect_converters import avro_body, framed
from tests.debezium_messages import Topic
from tests.registry_server import registry_server, subjects

pytestmark = pytest.mark.spark

ODD = "${env:HOME} it's ''x'' \"q\" {d} %s -- é, 😀"
"""A name of a table or namespace, which becomes a part of a path."""

HOSTILE = f"{ODD} ${{spark.app.name}} \\ \\u0041 \\% /* `b``c` \t\n"
LOWEST, HIGHEST = f"  {HOSTILE}", f"ü{HOSTILE}"
"""The lowest and the highest key of a batch, which are the bounds of its merge."""

ROW: dict[str, dict[str, Any]] = {
    HOSTILE: {"type": "string"},
    "id": {"type": "int64"},
    "create branch": {"type": "string"},
    "s": {"type": "struct", "fields": [{"field": HOSTILE, "type": "string", "optional": True}]},
    "m": {"type": "map", "keys": {"type": "string"}, "values": {"type": "string", "optional": True}},
    "e": {"type": "string", "name": "io.debezium.data.Enum", "parameters": {"allowed": HOSTILE}, "default": HOSTILE},
    "b": {"type": "bytes", "default": base64.b64encode(HOSTILE.encode()).decode()},
}
TABLE = f"{quoted('ns ' + ODD)}.{quoted('t ' + ODD)}"
KEY = f"KEY ({quoted(HOSTILE)}, id)"


def payload(key: str, value: str) -> dict[str, Any]:
    encoded = base64.b64encode(value.encode()).decode()
    nested = {"s": {HOSTILE: value}, "m": {HOSTILE: value}}
    return {HOSTILE: key, "id": 1, "create branch": value, "e": value, "b": encoded, **nested}


def row(key: str, value: str) -> tuple[Any, ...]:
    return (key, 1, value, (value,), {HOSTILE: value}, value, value.encode())


def rows(lake: Lake, sql: str) -> list[tuple[Any, ...]]:
    return sorted(lake.sql(sql).rows, key=repr)


def test_odd_text_passes_through_a_change_log_its_history_and_outputs(lake: Lake, tmp_path: Path) -> None:
    directory = tmp_path / f"d {ODD} \\"
    source, topic = quoted(HOSTILE), Topic(HOSTILE, ROW, key=(HOSTILE, "id"))
    file = directory / "messages.jsonl"

    def ingest() -> int:
        recorded_files.append(file, topic.lines)
        topic.lines.clear()
        (report,) = lake.ingest(HOSTILE)
        assert not report.stopped
        return report.timestamp_ms

    topic.snapshot([payload(LOWEST, HOSTILE), payload("m", HOSTILE), payload(HIGHEST, "gone")])
    recorded_files.append(file, [])
    lake.sql(f"CREATE SOURCE {source} FROM FILES {literal(str(directory))} FORMAT JSON")
    lake.sql(f"CREATE TABLE {TABLE} FROM SOURCE {source} (TOPIC {literal(HOSTILE)}) {KEY} ENVELOPE DEBEZIUM UPSERT")
    first = ingest()
    before = [row(LOWEST, HOSTILE), row("m", HOSTILE), row(HIGHEST, "gone")]
    assert rows(lake, f"SELECT * FROM {TABLE}") == sorted(before, key=repr)

    # The second batch is merged between the odd keys. One of its messages is unreadable.
    topic.columns = {**ROW, "write ordered by": {"type": "string", "default": HOSTILE}}
    topic.update({}, payload(LOWEST, "new") | {"write ordered by": HOSTILE})
    topic.delete(payload(HIGHEST, "gone") | {"write ordered by": HOSTILE})
    topic.raw(json.dumps(HOSTILE).encode(), HOSTILE.encode())
    ingest()
    after = [(*row(LOWEST, "new"), HOSTILE), (*row("m", HOSTILE), None)]
    assert rows(lake, f"SELECT * FROM {TABLE}") == sorted(after, key=repr)
    ((of, broken, name),) = rows(lake, "SELECT topic, value, table_name FROM mz_catalog.mz_source_errors")
    assert (of, bytes(broken), name) == (HOSTILE, HOSTILE.encode(), f"ns {ODD}.t {ODD}")

    assert rows(lake, f"SELECT * FROM {TABLE} AS OF {first}") == sorted(before, key=repr)
    changes = lake.sql(f"SUBSCRIBE {TABLE} AS OF {first}").rows
    assert sum(change[1] for change in changes) == len(after)
    where = f"{quoted(HOSTILE)} = {literal(LOWEST)} AND s.{quoted(HOSTILE)} LIKE '%${{env:HOME}}%'"
    for select in ("id", "upper(id) AS id", "max(id) AS id"):
        counted = lake.sql(f"SUBSCRIBE (SELECT {select} FROM {TABLE} WHERE {where}) AS OF {first}").rows
        assert [(change[1], str(change[2])) for change in counted[:1]] == [(1, "1")]
    for envelope in ("UPSERT", "DEBEZIUM"):
        clauses = f"ENVELOPE {envelope} ({KEY}) AS OF {first}"
        states = {change[1:4] for change in lake.sql(f"SUBSCRIBE {TABLE} {clauses}").rows}
        assert ("delete", HIGHEST, 1) in states

    hold, subscription = quoted(ODD), f"s {HOSTILE.replace('.', '')}"
    lake.sql(f"CREATE HOLD {hold} ON {TABLE} AT {first}")
    assert rows(lake, "SELECT name FROM mz_catalog.mz_holds") == [(ODD,)]
    subscribed = f"SUBSCRIBE {TABLE} ENVELOPE UPSERT ({KEY})"
    lake.sql(f"CREATE SUBSCRIPTION {quoted(subscription)} INTO {quoted('ns ' + ODD)}.out AS {subscribed}")
    assert sum(report.rows for report in lake.publish(subscription)) == len(after)
    assert lake.check(f"ns {ODD}.t {ODD}").success
    assert [report.error for report in lake.maintain() if report.error] == []
    assert rows(lake, f"SELECT * FROM {TABLE} AS OF {first}") == sorted(before, key=repr)
    ((_, statement),) = lake.sql(f"SHOW CREATE TABLE {TABLE}").rows
    lake.sql(f"DROP SOURCE {source} CASCADE")
    lake.sql(f"CREATE SOURCE {source} FROM FILES {literal(str(directory))} FORMAT JSON; {statement}")


COLUMNS = {"k": "STRING", HOSTILE: "STRING", "s": f"STRUCT<{quoted(HOSTILE)}: STRING>"}


def test_odd_text_passes_through_bare_messages_with_declared_columns(lake: Lake, tmp_path: Path) -> None:
    value = {"k": LOWEST, HOSTILE: HOSTILE, "s": {HOSTILE: HOSTILE}}
    lines = [
        recorded_files.line("t", 0, 0, json.dumps(value).encode(), LOWEST.encode()),
        recorded_files.line(
            "t", 0, 1, json.dumps(value | {"k": HIGHEST}).encode(), json.dumps({"k": HIGHEST}).encode()
        ),
    ]
    recorded_files.append(tmp_path / "in" / "t.jsonl", lines)
    columns = ", ".join(f"{quoted(name)} {of}" for name, of in COLUMNS.items())
    lake.sql(f"CREATE SOURCE f FROM FILES '{tmp_path / 'in'}' FORMAT JSON")
    lake.sql(f"CREATE TABLE s.t ({columns}) FROM SOURCE f (TOPIC 't') KEY (k) ENVELOPE UPSERT")
    lake.ingest("f")
    assert rows(lake, "SELECT * FROM mz_catalog.mz_source_errors") == []
    assert rows(lake, "SELECT * FROM s.t") == [(LOWEST, HOSTILE, (HOSTILE,)), (HIGHEST, HOSTILE, (HOSTILE,))]
    recorded_files.append(tmp_path / "in" / "t.jsonl", [recorded_files.line("t", 0, 2, None, LOWEST.encode())])
    lake.ingest("f")
    assert rows(lake, "SELECT k FROM s.t") == [(HIGHEST,)]


def test_odd_text_passes_through_avro_with_a_registry(lake: Lake, tmp_path: Path) -> None:
    key = {"type": "record", "name": "K", "fields": [{"name": "k", "type": "string", "default": HOSTILE}]}
    text = {"type": "string", "connect.parameters": {"allowed": HOSTILE}, "connect.default": HOSTILE}
    fields = [
        {"name": "k", "type": text, "doc": HOSTILE, "default": HOSTILE},
        {"name": "m", "type": {"type": "map", "values": "string"}, "default": {HOSTILE: HOSTILE}},
        {"name": "b", "type": "bytes", "default": "${env:HOME}'\\\u00ff"},
    ]
    value = {"type": "record", "name": "V", "doc": HOSTILE, "connect.name": HOSTILE, "fields": fields}
    encoded = base64.b64encode(HOSTILE.encode()).decode()
    known = subjects({"t-key": {1: json.dumps(key)}, "t-value": {2: json.dumps(value)}})

    def line(offset: int, of: str) -> str:
        body = avro_body(value, {"k": of, "m": {HOSTILE: of}, "b": encoded})
        return recorded_files.line("t", 0, offset, framed(2, body), framed(1, avro_body(key, {"k": of})))

    with registry_server(known) as registry:
        lake.sql(f"CREATE CONNECTION r TO SCHEMA REGISTRY (URL '{registry.url}')")
        lake.sql(
            f"CREATE SOURCE f FROM FILES '{tmp_path / 'in'}' FORMAT AVRO USING SCHEMA REGISTRY CONNECTION r;"
            "CREATE TABLE s.t FROM SOURCE f (TOPIC 't') ENVELOPE UPSERT"
        )
        for offsets in ((0, 1), (2, 3)):
            recorded_files.append(tmp_path / "in" / "t.jsonl", [line(o, (LOWEST, HIGHEST)[o % 2]) for o in offsets])
            lake.ingest("f")
    assert rows(lake, "SELECT * FROM mz_catalog.mz_source_errors") == []
    expected = [(of, {HOSTILE: of}, HOSTILE.encode()) for of in (LOWEST, HIGHEST)]
    assert rows(lake, "SELECT * FROM s.t") == expected
