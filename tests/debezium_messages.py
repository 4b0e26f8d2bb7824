"""Messages as Debezium's connectors write them, in JSON with schemas, for change logs made up by tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import recorded_files

Row = Mapping[str, Any]


@dataclass
class Topic:
    """A topic being written, in one partition by default; positions increase by themselves.

    Args:
        name: The topic.
        columns: Connect's schema of each column (`{"type": "int64"}`), by name.
        key: Names of the key's columns.
        connector: Debezium's name of the connector; positions of `mysql` and `mariadb` are in a binlog file, with `lsn` as `pos`.
        committed_ms: The time of commits, and at which the connector begins to read a snapshot.
        has_keys: Messages have keys.
        has_orders: Streamed events have `transaction`, as with `provide.transaction.metadata`.
    """

    name: str
    columns: dict[str, dict[str, Any]]
    key: tuple[str, ...] = ("id",)
    connector: str = "postgresql"
    lsn: int = 1_000
    last_commit: int | None = None
    committed_ms: int | None = None
    has_keys: bool = True
    has_orders: bool = False
    offsets: dict[int, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    @property
    def is_binlog(self) -> bool:
        """Return whether positions are in a binlog file."""
        return self.connector in ("mysql", "mariadb")

    def snapshot(self, rows: Sequence[Row], *, partition: int = 0, ended: bool = True) -> None:
        """Write snapshot rows, all at the current position; the last row is marked as the last one if `ended`."""
        self._read(rows, partition, ended=ended, last_commit=None)

    def blocking_snapshot(self, rows: Sequence[Row], *, partition: int = 0) -> None:
        """Write the rows of a snapshot that was requested while the connector streams."""
        self._read(rows, partition, ended=True, last_commit=self.last_commit or self.lsn)

    def ad_hoc_snapshot(self, rows: Sequence[Row], *, partition: int = 0) -> None:
        """Write the rows of an incremental snapshot, among streamed changes."""
        for row in rows:
            self._change("r", None, row, "incremental", partition, self.last_commit)

    def create(self, *rows: Row, partition: int = 0) -> None:
        """Write the rows of one INSERT, in its own transaction: PostgreSQL may log them at one position."""
        self._commit("c", None, rows, partition)

    def update(self, before: Row | None, after: Row, *, partition: int = 0) -> None:
        """Write an updated row."""
        self._commit("u", before, [after], partition)

    def delete(self, row: Row, *, partition: int = 0, tombstone: bool = True) -> None:
        """Write a deleted row, and its tombstone."""
        self._commit("d", row, [None], partition)
        if tombstone:
            self.raw(self._key(row), None, partition=partition)

    def truncate(self, *, partition: int = 0) -> None:
        """Write a TRUNCATE of the table."""
        self._commit("t", None, [None], partition)

    def raw(self, key: bytes | None, value: bytes | None, *, partition: int = 0) -> None:
        """Write any message."""
        offset = self.offsets.get(partition, 0)
        self.offsets[partition] = offset + 1
        self.lines.append(recorded_files.line(self.name, partition, offset, value, key))

    def resend(self, lines: int) -> None:
        """Write the last `lines` messages again at new offsets, as Connect does after a crash."""
        for text in self.lines[-lines:]:
            message = json.loads(text)
            offset = self.offsets[message["partition"]]
            self.offsets[message["partition"]] = offset + 1
            self.lines.append(json.dumps({**message, "offset": offset}))

    def write(self, directory: Path) -> None:
        """Append the messages that were not written yet to the topic's file."""
        recorded_files.append(directory / f"{self.name}.jsonl", self.lines)
        self.lines.clear()

    def _read(self, rows: Sequence[Row], partition: int, *, ended: bool, last_commit: int | None) -> None:
        for index, row in enumerate(rows):
            last = ended and index == len(rows) - 1
            first = index == 0 and self.is_binlog
            self._change("r", None, row, "last" if last else "first" if first else "true", partition, last_commit)

    def _commit(self, op: str, before: Row | None, rows: Sequence[Row | None], partition: int) -> None:
        self.lsn += 10
        for order, after in enumerate(rows, 1):
            self._change(op, before, after, "false", partition, self.last_commit, order)
        self.last_commit = self.lsn + 1

    def _change(
        self,
        op: str,
        before: Row | None,
        after: Row | None,
        snapshot: str,
        partition: int,
        last_commit: int | None,
        order: int | None = None,
    ) -> None:
        row = after if after is not None else before
        value = self._value(op, before, after, snapshot, last_commit, order)
        self.raw(None if row is None else self._key(row), value, partition=partition)

    def _key(self, row: Row) -> bytes | None:
        if not self.has_keys:
            return None
        fields = [{"optional": False, **self.columns[name], "field": name} for name in self.key]
        return _message({"type": "struct", "fields": fields, "optional": False}, {n: row[n] for n in self.key})

    def _value(
        self,
        op: str,
        before: Row | None,
        after: Row | None,
        snapshot: str,
        last_commit: int | None,
        order: int | None,
    ) -> bytes:
        row = {
            "type": "struct",
            "optional": True,
            "fields": [
                {"optional": name not in self.key, **schema, "field": name} for name, schema in self.columns.items()
            ],
        }
        source = {
            "connector": "string",
            "snapshot": "string",
            "sequence": "string",
            "lsn": "int64",
            "txId": "int64",
            "ts_ms": "int64",
        }
        if self.is_binlog:
            source = {
                "connector": "string",
                "snapshot": "string",
                "ts_ms": "int64",
                "file": "string",
                "pos": "int64",
                "row": "int32",
            }
        schema: dict[str, Any] = {
            "type": "struct",
            "optional": False,
            "name": f"{self.name}.Envelope",
            "fields": [
                {**row, "field": "before"},
                {**row, "field": "after"},
                {
                    "type": "struct",
                    "optional": False,
                    "field": "source",
                    "fields": [{"type": t, "optional": True, "field": n} for n, t in source.items()],
                },
                {"type": "string", "optional": False, "field": "op"},
            ],
        }
        transaction = None
        if self.has_orders:
            fields = {"id": "string", "total_order": "int64", "data_collection_order": "int64"}
            schema["fields"].append(
                {
                    "type": "struct",
                    "optional": True,
                    "field": "transaction",
                    "fields": [{"type": t, "optional": False, "field": n} for n, t in fields.items()],
                }
            )
            if order is not None:
                transaction = {"id": str(self.lsn), "total_order": order, "data_collection_order": order}
        last = None if last_commit is None else str(last_commit)
        position = {"sequence": json.dumps([last, str(self.lsn)]), "lsn": self.lsn, "txId": self.lsn}
        if self.is_binlog:
            position = {"file": "binlog.000003", "pos": self.lsn, "row": (order or 1) - 1}
        payload = {
            "before": before,
            "after": after,
            "op": op,
            "source": {
                "connector": self.connector,
                "snapshot": snapshot,
                "ts_ms": self.committed_ms,
                **position,
            },
            **({"transaction": transaction} if self.has_orders else {}),
        }
        return _message(schema, payload)


def _message(schema: Mapping[str, Any], payload: Mapping[str, Any]) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()
