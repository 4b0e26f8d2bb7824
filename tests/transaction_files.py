"""Transactions as a FILES source reads them: Debezium's messages about a shop's tables `(id, v)`, and its transaction topic.

`Connector` writes transactions that a test names. `record` writes the topics that a model of a killed connector left.
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
    """Create the source `shop` over a directory, with tables `shop.<name>` of the given envelopes."""
    directory.mkdir(exist_ok=True)
    lake.sql(
        f"CREATE SOURCE shop FROM FILES '{directory}' FORMAT JSON TRANSACTION METADATA TOPIC '{TRANSACTION_TOPIC}' {options}"
    )
    for table, envelope in tables.items():
        define_table(lake, table, envelope)


def define_table(lake: Lake, table: str, envelope: str) -> None:
    """Create one more table of the source."""
    lake.sql(
        f"CREATE TABLE shop.{table} (id BIGINT, v BIGINT) FROM SOURCE shop (TOPIC 'shop.public.{table}') ENVELOPE {envelope}"
    )


def states(lake: Lake, tables: Iterable[str]) -> Iterator[dict[Key, int]]:
    """Yield the rows of the tables at each timestamp of the source from which all are readable, by table and key.

    One SUBSCRIBE a table has them all. The last rows are also compared with those that SELECT shows.
    """
    names = tuple(tables)
    since_ms = max(line.since_ms for line in lake.timelines.of([f"shop.{t}" for t in names]).values())
    changes = sorted(
        (at_ms, diff, (f"public.{table}", key), v)
        for table in names
        for at_ms, diff, key, v in lake.sql(f"SUBSCRIBE (SELECT id, v FROM shop.{table}) AS OF {since_ms}").rows
    )
    state: dict[Key, int] = {}
    for batch in lake.batches.history("shop"):
        while changes and changes[0][0] <= batch.mz_timestamp:
            _, diff, key, v = changes.pop(0)
            if diff > 0:
                state[key] = v
            else:
                del state[key]
        if batch.mz_timestamp >= since_ms:
            yield dict(state)
    shown = {(f"public.{t}", key): v for t in names for key, v in lake.sql(f"SELECT id, v FROM shop.{t}").rows}
    assert shown == state


def record(directory: Path, topics: Topics, written: Offsets, until: Offsets) -> None:
    """Append the messages of a model's partitions between two positions, each partition in its own file."""
    for tp, messages in topics.messages.items():
        lines = [line(tp, at, messages[at]) for at in range(written[tp], until[tp])]
        recorded_files.append(directory / f"{tp.topic}-{tp.partition}.jsonl", lines)


def line(tp: TopicPartition, offset: int, message: Message) -> str:
    """Encode a message of the model."""
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
    """Return `source` of an event: PostgreSQL's or MySQL's, by the form of its transaction's id."""
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
    """A connector that writes transactions, as PostgreSQL's does.

    Args:
        directory: Folder of the source.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._offsets: Counter[str] = Counter()
        self._number = 700
        self._lsn = 1_000
        self._last_commit = 1_000

    def transaction(self, *changes: tuple[str, int, int | None], end: bool = True) -> str:
        """Write the changes `(table, id, v)` of one transaction, v None for a deleted row; returns its id."""
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
        """Return Debezium's name of the transaction at this log position."""
        return f"{self._number}:{self._lsn}"

    def begin(self) -> None:
        """Write the BEGIN, which is written again when the connector restarts inside the transaction."""
        self._write(TRANSACTION_TOPIC, {"id": self.shown_id}, _metadata("BEGIN", self.shown_id, {}))

    def event(self, table: str, key: int, v: int | None, order: int, collection_order: int) -> None:
        """Write one event of the transaction."""
        self._lsn += 1
        record = Record(
            "", 0, 0, Kind.EVENTS, self.shown_id, order, collection_order, (self._last_commit, self._lsn, order, 1)
        )
        self._write(f"shop.public.{table}", {"id": key}, _event(record, Change(table, key, v)))

    def end(self, counts: Mapping[str, int]) -> None:
        """Write the END."""
        self._lsn += 10
        self._write(TRANSACTION_TOPIC, {"id": self.shown_id}, _metadata("END", self.shown_id, counts))
        self._last_commit = self._lsn

    def commits_at(self, position: int) -> None:
        """Make the next transaction, of one change, commit at this log position, unless the log is already further."""
        self._lsn = max(self._lsn, position - 11)

    def lose_position(self, unseen: int = 0) -> None:
        """Restart the connector without its position: no message has the `unseen` transactions committed meanwhile."""
        self._number += unseen
        self._lsn += 1 + 100 * unseen
        self._last_commit = self._lsn

    def snapshot(self, table: str, rows: Sequence[tuple[int, int]], *, is_last: bool = True) -> None:
        """Write a connector snapshot of a table; `is_last` marks the snapshot's last table."""
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
        """Write any message."""
        self._write(topic, key, value)

    def _write(self, topic: str, key: object, value: object) -> None:
        text = recorded_files.line(topic, 0, self._offsets[topic], _json(value), _json(key))
        self._offsets[topic] += 1
        recorded_files.append(self._directory / f"{topic}.jsonl", [text])
