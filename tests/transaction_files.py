"""Transactions as a FILES source reads them: Debezium's messages about a shop's tables `(id, v)`, and its transaction topic.

`Connector` writes transactions that a test names. `record` writes what a model of a killed connector left in its topics.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lakehold.ingest.envelope.header_columns import Kind
from lakehold.lake import Lake
from lakehold.model.log_positions import POSTGRES_ID
from lakehold.model.offsets import Offsets, TopicPartition
from tests import recorded_files
from tests.transaction_headers import Record
from tests.upstream_log import TRANSACTIONS, Change, Key, Message, Topics

TRANSACTION_TOPIC = TRANSACTIONS.topic


def define(lake: Lake, directory: Path, tables: Mapping[str, str], options: str = "") -> None:
    """The source `shop` of a directory, with tables `shop.<name>` of these envelopes."""
    directory.mkdir(exist_ok=True)
    lake.sql(
        f"CREATE SOURCE shop FROM FILES '{directory}' FORMAT JSON TRANSACTION METADATA TOPIC '{TRANSACTION_TOPIC}' {options}"
    )
    for table, envelope in tables.items():
        define_table(lake, table, envelope)


def define_table(lake: Lake, table: str, envelope: str) -> None:
    """One more table of it."""
    lake.sql(
        f"CREATE TABLE shop.{table} (id BIGINT, v BIGINT) FROM SOURCE shop (TOPIC 'shop.public.{table}') ENVELOPE {envelope}"
    )


def states(lake: Lake, tables: Iterable[str]) -> Iterator[dict[Key, int]]:
    """What the tables hold at each timestamp of the source from which on all are readable, by table and key."""
    names = tuple(tables)
    since_ms = {name: line.since_ms for name, line in lake.timelines.of([f"shop.{t}" for t in names]).items()}
    for batch in lake.batches.history("shop"):
        if batch.mz_timestamp >= max(since_ms.values()):
            yield {
                (f"public.{table}", key): v
                for table in names
                for key, v in lake.sql(f"SELECT id, v FROM shop.{table} AS OF {batch.mz_timestamp}").rows
            }


def record(directory: Path, topics: Topics, written: Offsets, until: Offsets) -> None:
    """Append what a model's partitions hold between two positions, each in a file of its own."""
    for tp, messages in topics.messages.items():
        lines = [line(tp, at, messages[at]) for at in range(written[tp], until[tp])]
        recorded_files.append(directory / f"{tp.topic}-{tp.partition}.jsonl", lines)


def line(tp: TopicPartition, offset: int, message: Message) -> str:
    """A message of the model."""
    key: object = message.tombstone_of
    if message.change is not None:
        key = message.change.key
    elif message.boundary is not None:
        key = message.boundary.id
    return recorded_files.line(tp.topic, tp.partition, offset, _json(_value(message)), _json({"id": key}))


def _value(message: Message) -> object:
    if message.boundary is not None:
        events = message.boundary.events
        return _metadata("BEGIN" if events is None else "END", message.boundary.id, events or {})
    if message.record is not None and message.change is not None:
        return _event(message.record, message.change)
    return None


def _event(record: Record, change: Change) -> dict[str, Any]:
    row = None if change.value is None else {"id": change.key, "v": change.value}
    before = {"id": change.key, "v": change.before} if change.before is not None else None
    op = "d" if row is None else "c" if before is None else "u"
    return {
        "before": before or (None if row is not None else {"id": change.key, "v": 0}),
        "after": row,
        "op": op,
        "source": source_of(record),
        "transaction": {
            "id": record.transaction_id,
            "total_order": record.total_order,
            "data_collection_order": record.collection_order,
        },
    }


def source_of(record: Record) -> dict[str, Any]:
    """`source` of an event: PostgreSQL's or MySQL's, by the form of its transaction's id."""
    assert record.position is not None
    a, b, c, _ = record.position
    if re.match(POSTGRES_ID, record.transaction_id or ""):
        return {"connector": "postgresql", "snapshot": "false", "sequence": json.dumps([str(a), str(b)]), "lsn": b}
    return {"connector": "mysql", "snapshot": "false", "file": f"binlog.{a:06}", "pos": b, "row": c}


def _metadata(status: str, transaction_id: str, counts: Mapping[str, int]) -> dict[str, Any]:
    return {
        "status": status,
        "id": transaction_id,
        "event_count": sum(counts.values()) or None,
        "data_collections": [{"data_collection": name, "event_count": count} for name, count in counts.items()] or None,
    }


def _json(content: object) -> bytes | None:
    return None if content is None else json.dumps(content).encode()


class Connector:
    """Writes transactions, as PostgreSQL's connector does.

    Args:
        directory: Of the source.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._offsets: Counter[str] = Counter()
        self._number = 700
        self._lsn = 1_000
        self._last_commit = 1_000

    def transaction(self, *changes: tuple[str, int, int | None], end: bool = True) -> str:
        """The changes `(table, id, v)` of one transaction, v None where the row goes; returns its id."""
        self._number += 1
        counts: Counter[str] = Counter()
        self.begin()
        for order, (table, key, v) in enumerate(changes, 1):
            counts[f"public.{table}"] += 1
            self.event(table, key, v, order, counts[f"public.{table}"])
        if end:
            self.end(counts)
        return str(self._number)

    @property
    def shown_id(self) -> str:
        """What Debezium calls the transaction at this place in the log."""
        return f"{self._number}:{self._lsn}"

    def begin(self) -> None:
        """Its BEGIN, again where the connector was restarted in it."""
        self._write(TRANSACTION_TOPIC, {"id": self.shown_id}, _metadata("BEGIN", self.shown_id, {}))

    def event(self, table: str, key: int, v: int | None, order: int, collection_order: int) -> None:
        """One event of the transaction."""
        self._lsn += 1
        record = Record(
            "", 0, 0, Kind.EVENTS, self.shown_id, order, collection_order, (self._last_commit, self._lsn, order, 1)
        )
        self._write(f"shop.public.{table}", {"id": key}, _event(record, Change(table, key, v)))

    def end(self, counts: Mapping[str, int]) -> None:
        """Its END."""
        self._lsn += 10
        self._write(TRANSACTION_TOPIC, {"id": self.shown_id}, _metadata("END", self.shown_id, counts))
        self._last_commit = self._lsn

    def commits_at(self, position: int) -> None:
        """Have the next transaction, of one change, commit there unless the log is further already."""
        self._lsn = max(self._lsn, position - 11)

    def begin_anew(self, unseen: int = 0) -> None:
        """What it does without its position: what is committed meanwhile, so many transactions, is in no message."""
        self._number += unseen
        self._lsn += 1 + 100 * unseen
        self._last_commit = self._lsn

    def snapshot(self, table: str, rows: Sequence[tuple[int, int]], *, is_last: bool = True) -> None:
        """The rows of a table as the connector finds them when it begins; `is_last`: of those that it captures."""
        for number, (key, v) in enumerate(rows, 1):
            end = "last" if is_last else "last_in_data_collection"
            source = {
                "connector": "postgresql",
                "snapshot": end if number == len(rows) else "true",
                "sequence": json.dumps([None, str(self._lsn)]),
                "lsn": self._lsn,
            }
            value = {"before": None, "after": {"id": key, "v": v}, "op": "r", "source": source, "transaction": None}
            self._write(f"shop.public.{table}", {"id": key}, value)

    def raw(self, topic: str, key: object, value: object) -> None:
        """Any message."""
        self._write(topic, key, value)

    def _write(self, topic: str, key: object, value: object) -> None:
        text = recorded_files.line(topic, 0, self._offsets[topic], _json(value), _json(key))
        self._offsets[topic] += 1
        recorded_files.append(self._directory / f"{topic}.jsonl", [text])
