"""Damaged messages in every format and envelope: each is a row, a delete or an error, and none takes a good one along."""

from __future__ import annotations

import json
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

from pyspark.sql import SparkSession

from lakehold.ingest.batch_report import BatchReport
from lakehold.lake import Lake, connect
from tests import recorded_files
from tests.connect_converters import avro_body, avro_schema, envelope, framed, json_record, struct
from tests.fuzz.faults import Fault, Tried
from tests.fuzz.mutations import damaged, other_json
from tests.registry_server import registry_server

_MESSAGES = 1_000
_DAMAGED_SHARE = 0.3
_UNEXPECTED = {"table-failed", "ingest-failed", "error"}
"""Codes of stops that say no more than that something failed."""

_TEXT, _INT = {"type": "string", "optional": True}, {"type": "int64"}
_DECIMAL = {
    "type": "bytes",
    "name": "org.apache.kafka.connect.data.Decimal",
    "parameters": {"scale": "2", "connect.decimal.precision": "9"},
    "optional": True,
}
_DAY = {"type": "int32", "name": "org.apache.kafka.connect.data.Date", "optional": True}
_TAGS = {"type": "array", "items": _TEXT, "optional": True}
_KEY = struct("Key", {"id": _INT})
_ROW = struct("Row", {"id": _INT, "v": _TEXT, "price": _DECIMAL, "day": _DAY, "tags": _TAGS})
_SOURCE = struct("Source", {name: _TEXT for name in ("connector", "snapshot", "db", "table")} | {"lsn": _INT})
_EVENT = envelope(_ROW, _SOURCE)
_SCHEMAS = {1: avro_schema(_KEY), 2: avro_schema(_ROW), 3: avro_schema(_EVENT)}
_DECLARED = "(id BIGINT, v STRING, price DECIMAL(9, 2), day INT, tags ARRAY<STRING>)"


def _row(number: int) -> dict[str, object]:
    return {"id": number, "v": f"v{number}", "price": "AfQ=", "day": 20_000, "tags": ["a", None, "é"]}


def _event(number: int) -> dict[str, object]:
    source = {"connector": "postgresql", "snapshot": "false", "db": "shop", "table": "t", "lsn": number}
    return {"before": None, "after": _row(number), "source": source, "transaction": None, "op": "c", "ts_ms": 1_000}


def _bare(content: object) -> bytes:
    return json.dumps(content).encode()


@dataclass(frozen=True)
class _Feed:
    """A topic of one kind, with the table that reads it.

    Attributes:
        is_avro: The messages are Avro, else JSON.
        clauses: What the table's statement says after the topic.
        columns: The declared columns; empty: as in the messages.
        key: Encodes the key of a row.
        value: Encodes the value of a row.
    """

    is_avro: bool
    clauses: str
    columns: str
    key: Callable[[int], bytes]
    value: Callable[[int], bytes]

    @property
    def keeps_each(self) -> bool:
        """Return whether each message that is no error is a row of its own."""
        return "NONE" in self.clauses

    @property
    def may_lack_keys(self) -> bool:
        """Return whether a message without a key is an error of that message; an event says that its table has none any more."""
        return "DEBEZIUM" not in self.clauses


def _avro_key(number: int) -> bytes:
    return framed(1, avro_body(_SCHEMAS[1], {"id": number}))


def _json_key(number: int) -> bytes:
    return json_record(_KEY, {"id": number})


def _bare_key(number: int) -> bytes:
    return _bare({"id": number})


_FEEDS = {
    "json_upsert": _Feed(False, "INCLUDE OFFSET AS at ENVELOPE UPSERT", "", _json_key, lambda n: json_record(_ROW, _row(n))),
    "json_none": _Feed(False, "INCLUDE OFFSET AS at ENVELOPE NONE", "", _json_key, lambda n: json_record(_ROW, _row(n))),
    "json_events": _Feed(
        False, "INCLUDE OFFSET AS at ENVELOPE DEBEZIUM UPSERT", "", _json_key, lambda n: json_record(_EVENT, _event(n))
    ),
    "bare_upsert": _Feed(
        False, "INCLUDE OFFSET AS at ENVELOPE UPSERT", _DECLARED, _bare_key, lambda n: _bare(_row(n) | {"price": 5})
    ),
    "bare_none": _Feed(
        False, "INCLUDE OFFSET AS at ENVELOPE NONE", _DECLARED, _bare_key, lambda n: _bare(_row(n) | {"price": 5})
    ),
    "avro_upsert": _Feed(
        True, "INCLUDE OFFSET AS at ENVELOPE UPSERT", "", _avro_key, lambda n: framed(2, avro_body(_SCHEMAS[2], _row(n)))
    ),
    "avro_none": _Feed(
        True, "INCLUDE OFFSET AS at ENVELOPE NONE", "", _avro_key, lambda n: framed(2, avro_body(_SCHEMAS[2], _row(n)))
    ),
    "avro_events": _Feed(
        True,
        "INCLUDE OFFSET AS at ENVELOPE DEBEZIUM UPSERT",
        "",
        _avro_key,
        lambda n: framed(3, avro_body(_SCHEMAS[3], _event(n))),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class _Written:
    """The messages of a topic by offset, and the numbers of the rows of those that are whole."""

    messages: tuple[tuple[bytes | None, bytes | None], ...]
    whole: Mapping[int, int]


def _written(feed: _Feed, chance: Random) -> _Written:
    numbers = chance.sample(range(10**11, 10**12), _MESSAGES)
    keys, values = [feed.key(number) for number in numbers], [feed.value(number) for number in numbers]
    messages: list[tuple[bytes | None, bytes | None]] = []
    whole = {}
    for offset, (key, value) in enumerate(zip(keys, values, strict=True)):
        # The first messages are whole, so that the table gets its columns.
        if offset < 10 or chance.random() >= _DAMAGED_SHARE:
            messages.append((key, value))
            whole[offset] = numbers[offset]
        elif chance.random() < 0.2:
            bad = _bad(key, keys, [key], chance)
            messages.append((chance.choice([None, bad]) if feed.may_lack_keys else bad, value))
        else:
            messages.append((key, None if chance.random() < 0.05 else _bad(value, values, values, chance)))
    return _Written(tuple(messages), whole)


def _common(one: bytes, other: bytes) -> int:
    """Return how many bytes are the same at the start of both."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))


def _bad(content: bytes, alike: Sequence[bytes], others: Sequence[bytes], chance: Random) -> bytes:
    """Damage a message, but rarely what all have in common: another schema may rightly stop the table."""
    head = 0 if chance.random() < 0.001 else min(_common(content, each) for each in alike[:9] if each != content)
    body = content[head:]
    try:
        json.loads(content)
    except ValueError:
        return content[:head] + damaged(body, [other[head:] for other in others[:20]], chance)
    if chance.random() < 0.5:
        return content[:head] + damaged(body, [other[head:] for other in others[:20]], chance)
    if b'"payload":' not in content:
        return other_json(content, chance)
    before, _, payload = content.rpartition(b'"payload":')
    return before + b'"payload":' + other_json(payload[:-1], chance) + b"}"


def tried(chance: Random, spark: SparkSession | None = None) -> Iterator[Tried]:
    """Ingest damaged messages into new lakes for ever, 1,000 to each topic."""
    with ExitStack() as opened:
        subjects = {f"/schemas/ids/{n}": (200, {"schema": json.dumps(schema)}) for n, schema in _SCHEMAS.items()}
        registry = opened.enter_context(registry_server(subjects))
        while True:
            with tempfile.TemporaryDirectory() as directory, ExitStack() as of_lake:
                # A limit of 0 lets Spark's executors decode, where else the driver does.
                limit = chance.choice([0, 100_000])
                name = f"fuzz{chance.randrange(10**9)}"
                lake = connect(f"{directory}/lake", spark=spark, driver_read_max_records=limit, catalog_name=name)
                # The first lake keeps the session that it started for all later ones.
                (of_lake if spark else opened).callback(lake.close)
                spark = spark or lake.spark
                topics = {name: _written(feed, chance) for name, feed in _FEEDS.items()}
                faults, counts = _ingested(lake, Path(directory), topics, registry.url)
            yield Tried(len(topics) * _MESSAGES, faults, counts)


def _ingested(
    lake: Lake, directory: Path, topics: Mapping[str, _Written], registry: str
) -> tuple[tuple[Fault, ...], Mapping[str, int]]:
    """Run a batch for each format, and compare its tables and errors with what was written."""
    lake.sql(f"CREATE CONNECTION registry TO SCHEMA REGISTRY (URL '{registry}')")
    faults: list[Fault] = []
    counts: Counter[str] = Counter()
    for source, written in (("jsons", "JSON"), ("avros", "AVRO USING SCHEMA REGISTRY CONNECTION registry")):
        names = [name for name in topics if _FEEDS[name].is_avro == (source == "avros")]
        lake.sql(f"CREATE SOURCE {source} FROM FILES '{directory / source}' FORMAT {written}")
        for name in names:
            feed = _FEEDS[name]
            lake.sql(f"CREATE TABLE s.{name} {feed.columns} FROM SOURCE {source} (TOPIC '{name}') {feed.clauses}")
            lines = [
                recorded_files.line(name, 0, n, value, key) for n, (key, value) in enumerate(topics[name].messages)
            ]
            recorded_files.append(directory / source / f"{name}.jsonl", lines)
        try:
            (report,) = lake.ingest(source)
        except BaseException:  # noqa: BLE001 - whatever is raised is what is looked for
            faults.append(Fault(f"the batch of {source}", traceback.format_exc()))
            continue
        for name in names:
            found = _differences(lake, report, name, topics[name], counts)
            faults.extend(Fault(f"table {name}", difference) for difference in found)
    return tuple(faults), counts


def _differences(lake: Lake, report: BatchReport, name: str, written: _Written, counts: Counter[str]) -> list[str]:
    feed, table = _FEEDS[name], f"s.{name}"
    stop = report.stopped.get(table)
    if stop is not None:
        counts[f"stopped: {stop.code}"] += len(written.messages)
        return [f"stopped by {stop.code}: {stop.message}: {stop.detail}"] if stop.code in _UNEXPECTED else []
    errors = lake.sql(
        f"SELECT `offset`, reason, value FROM mz_catalog.mz_source_errors WHERE table_name = '{table}'"
    ).rows
    reasons = {offset: reason for offset, reason, _ in errors}
    found = lake.sql(f"SELECT at, id, is_valid_utf8(v) FROM {lake.settings.catalog_name}.{table}").rows
    rows = {offset: number for offset, number, _ in found}
    counts["rows"] += len(rows)
    counts.update(f"error: {reason}" for reason in reasons.values())
    # A row of a message with an undamaged key is replaced by no other message; a damaged key may be another row's.
    lost = {offset: number for offset, number in written.whole.items() if rows.get(offset) != number}
    either = rows.keys() | reasons.keys()
    missing = {*range(len(written.messages))} - either
    checks = {
        "whole messages without their rows": lost,
        "offsets that are rows and errors": rows.keys() & reasons.keys(),
        "rows with a text that is not UTF-8": [offset for offset, _, is_text in found if is_text is False],
        "errors without a reason": [offset for offset, reason in reasons.items() if not reason],
        "errors without the message": [o for o, _, value in errors if _bytes(value) != written.messages[o][1]],
        "messages that are neither row nor error": missing if feed.keeps_each else set(),
    }
    return [f"{what}: {_shown(offsets, written)}" for what, offsets in checks.items() if offsets]


def _bytes(value: object) -> bytes | None:
    return None if value is None else bytes(value)  # type: ignore[call-overload]


def _shown(offsets: object, written: _Written) -> str:
    some = sorted(offsets)[:3]  # type: ignore[call-overload]
    return f"{len(offsets)}: " + "; ".join(f"{o}: {written.messages[o]!r}" for o in some)  # type: ignore[arg-type]
