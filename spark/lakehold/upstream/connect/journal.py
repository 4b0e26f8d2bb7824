"""The journal of a connector: the requests that lakehold sent it, and its reports, in its signal and notification topics.

A *signal* is a message to the connector. Some signals request the snapshot of one table. Others only record something for
lakehold itself: the connector just logs them, and lakehold reads them from the topic, which is kept for ever. A *notification* is
a report of the connector, such as that a table was scanned. Each `refresh` reads what both topics got since the last one.

Every signal carries the object id of its table, and an id of its own. A signal that arrives during a snapshot joins that
snapshot. After each table's scan the connector reports the id of the last signal: the scan answers all signals up to that one
that requested the table. The scan may have begun before the last of them arrived. So a repeated snapshot is complete only when
nothing requested is left to scan.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from fastavro import parse_schema, schemaless_reader

from lakehold.kafka.client import KafkaClient
from lakehold.model.log_positions import LogPosition
from lakehold.model.offsets import OffsetRange, TopicPartition
from lakehold.upstream.connect.signals import ALTERED, OF_ITS_OWN, RECORD, SNAPSHOT_REQUEST
from lakehold.upstream.found.server_log import FoundLog
from lakehold.upstream.found.shapes import Shape
from lakehold.upstream.found.snapshots import NO_SNAPSHOT, FoundRepeat, FoundSnapshot
from lakehold.upstream.mysql.schema_history import SchemaHistory, schema_record
from lakehold.upstream.wanted.connector_config import SideTopics

_GOOD = frozenset({"SUCCEEDED", "EMPTY"})
_ENDED = frozenset({"COMPLETED", "ABORTED"})
"""Kinds of notifications after which nothing requested is left to scan."""
_FIRST_PAUSE_MS = 30_000
_LONGEST_PAUSE_MS = 3_600_000
"""The longest pause before a failed snapshot is requested again; each pause is twice as long as the one before."""
_NO_KEY = "NO_PRIMARY_KEY"
_WIRE_FORMAT_BYTES = 5
"""The length of Confluent's prefix: a zero byte, and the schema's id in four bytes."""


@dataclass(frozen=True)
class _Request:
    """A signal that requested the snapshot of one table."""

    signal_id: str
    object_id: str
    upstream: str


class Journal:
    """The signals and notifications of one connector, read from their topics.

    Args:
        client: Reads the topics.
        topics: Names of the topics.
        schema_text: Returns the Avro schema of an id; None where the connector writes JSON.

    Attributes:
        snapshots: The snapshot of each table, as requested and reported, by object id.
        repeats: The last repeated snapshot of each table, by object id.
        members: The last recorded memberships in the publication, by the table's name upstream.
        shapes: The last recorded shapes of tables of PostgreSQL, by the table's name upstream (`recorded_shapes`).
        log: The last recorded log of PostgreSQL; None: none was recorded.
        first_snapshot_notification: Offset of the notification that the connector's first snapshot is complete; None: there is
            none.
        schema_history: The statements of MySQL or MariaDB that altered tables; empty for PostgreSQL.
    """

    def __init__(
        self, client: KafkaClient, topics: SideTopics, schema_text: Callable[[int], str | None] | None
    ) -> None:
        self._client = client
        self._topics = topics
        self._schema_text = schema_text
        self._read: dict[TopicPartition, int] = {}
        self._identities: dict[str, str] = {}
        self._requests: list[_Request] = []
        self._answered: set[_Request] = set()
        self.snapshots: dict[str, FoundSnapshot] = {}
        self.repeats: dict[str, FoundRepeat] = {}
        self.members: dict[str, str] = {}
        self.shapes: dict[str, Shape] = {}
        self.log: FoundLog | None = None
        self.first_snapshot_notification: int | None = None
        self.schema_history = SchemaHistory()

    @property
    def complete(self) -> frozenset[str]:
        """Return the tables, by object id, whose snapshot the connector has reported as complete."""
        first = self.first_snapshot_notification
        return frozenset(object_id for object_id, snapshot in self.snapshots.items() if snapshot.is_complete(first))

    def refresh(self) -> None:
        """Read what the topics got since the last call; if one was created again, read all from their beginning."""
        described = self._client.describe(
            [self._topics.signals, self._topics.notifications, self._topics.schema_history]
        )
        identities = {name: str(topic.topic_id) for name, topic in described.items()}
        if identities != self._identities:
            self._read, self.snapshots, self.first_snapshot_notification = {}, {}, None
            self._requests, self._answered = [], set()
            self.repeats, self.members, self.shapes, self.log = {}, {}, {}, None
            self.schema_history = SchemaHistory()
            self._identities = identities
        for _, _, value in self._new(self._topics.signals, identities):
            # Others may write to the topic, too. The connector ignores messages that are not signals, and so does lakehold.
            with suppress(ValueError, KeyError, TypeError):
                self._take_signal(json.loads(value))
        for offset, at_ms, value in self._new(self._topics.notifications, identities):
            # If the connector is somebody else's, its messages may be anything: `refuse_foreign` refuses it after this.
            with suppress(ValueError, KeyError, TypeError):
                self._take_notification(offset, at_ms, self._decoded(value))
        for offset, _, value in self._new(self._topics.schema_history, identities):
            with suppress(ValueError, KeyError, TypeError):
                self.schema_history.take(offset, schema_record(value))

    def _new(self, topic: str, existing: Mapping[str, str]) -> Iterator[tuple[int, int, bytes]]:
        if topic not in existing:
            return
        partition = TopicPartition(topic, 0)
        watermarks = self._client.watermarks([partition]).get(partition)
        if watermarks is None:
            return
        start = max(self._read.get(partition, 0), watermarks.earliest)
        yield from _values(self._client.records([OffsetRange(partition, start, watermarks.end_exclusive)]))
        self._read[partition] = watermarks.end_exclusive

    def _take_signal(self, signal: Mapping[str, Any]) -> None:
        object_id = signal["id"].partition(OF_ITS_OWN)[0]
        before = self.snapshots.get(object_id, NO_SNAPSHOT)
        if signal["type"] == SNAPSHOT_REQUEST:
            (collection,) = signal["data"]["data-collections"]
            self._requests.append(_Request(signal["id"], object_id, collection.replace('"', "")))
            until = max(before.altered_until, signal["data"].get(ALTERED, 0))
            self.snapshots[object_id] = replace(before, requested=before.requested + 1, altered_until=until)
            self._take_repeat(signal, self._requests[-1].upstream)
        elif signal["type"] == RECORD:
            self._take_record(object_id, before, signal["data"])

    def _take_repeat(self, signal: Mapping[str, Any], upstream: str) -> None:
        repeat = signal["data"].get("repeat", {"replaces_through": {}})
        for object_id, through in repeat["replaces_through"].items():
            self.repeats[object_id] = FoundRepeat(signal["id"], upstream, through, repeat["is_certain"])
            before = self.snapshots.get(object_id, NO_SNAPSHOT)
            until = max(before.altered_until, signal["data"].get(ALTERED, 0))
            self.snapshots[object_id] = replace(before, missed=False, altered_until=until)

    def _take_record(self, object_id: str, before: FoundSnapshot, recorded: Mapping[str, Any]) -> None:
        if "members" in recorded:
            self.members |= recorded["members"]
        elif "shapes" in recorded:
            self.shapes |= recorded["shapes"]
        elif "wal" in recorded:
            wal = recorded["wal"]
            branches = tuple((timeline, at) for timeline, at in wal["branches"])
            self.log = FoundLog(wal["system"], wal["timeline"], branches, wal["is_awaited"])
        elif "fits_from" in recorded:
            log, *at = recorded["fits_from"]
            self.snapshots[object_id] = replace(before, sync_point=LogPosition(log, tuple(at)))
        elif "missed" in recorded:
            until = recorded.get(ALTERED, before.altered_until)
            self.snapshots[object_id] = replace(before, missed=True, altered_until=until)
        else:
            notified_from = recorded.get("said_until", 0)
            self.snapshots[object_id] = replace(
                before,
                is_first=True,
                notified_from=notified_from,
                missed=False,
                failed_in_row=0,
                again_ms=0,
                altered_until=recorded.get(ALTERED, before.altered_until),
            )
            # The first snapshot brings all that was missed until now.
            self.repeats.pop(object_id, None)

    def _take_notification(self, offset: int, at_ms: int, notification: Mapping[str, Any]) -> None:
        kind, is_initial = notification["type"], notification["aggregate_type"] == "Initial Snapshot"
        if is_initial:
            self.first_snapshot_notification = offset if kind in ("COMPLETED", "SKIPPED") else None
        elif kind == "TABLE_SCAN_COMPLETED":
            status = notification["additional_data"]["status"]
            for request in self._answered_by(notification["id"], notification["additional_data"]["scanned_collection"]):
                self._answered.add(request)
                before = self.snapshots[request.object_id]
                self.snapshots[request.object_id] = (
                    replace(before, succeeded=True, failed_in_row=0, again_ms=0)
                    if status in _GOOD
                    else _failed(before, status, at_ms, is_past=before.is_first and offset < before.notified_from)
                )
            self._change_repeats(
                notification["id"], _scanned(notification["additional_data"]["scanned_collection"], status)
            )
        elif kind in _ENDED:
            self._change_repeats(notification["id"], lambda repeat: replace(repeat, is_done=True))

    def _change_repeats(self, last_id: str, change: Callable[[FoundRepeat], FoundRepeat]) -> None:
        """Change the unfinished repeated snapshots that the given signal or an earlier one requested."""
        ids = {request.signal_id for request in self._requests[: self._index_of(last_id) + 1]}
        for object_id, repeat in self.repeats.items():
            if repeat.signal_id in ids and not repeat.is_done:
                self.repeats[object_id] = change(repeat)

    def _index_of(self, signal_id: str) -> int:
        """Return the index of a signal among those that request snapshots; -1: it is not one of them."""
        return max((at for at, request in enumerate(self._requests) if request.signal_id == signal_id), default=-1)

    def _answered_by(self, last_id: str, scanned: str) -> list[_Request]:
        """Return the unanswered signals that requested a table, up to the given signal."""
        requested_before = (
            request for request in self._requests[: self._index_of(last_id) + 1] if request not in self._answered
        )
        return [request for request in requested_before if request.upstream == scanned]

    def _decoded(self, value: bytes) -> Mapping[str, Any]:
        if self._schema_text is None:
            content = json.loads(value.decode())
            if not isinstance(content, dict):
                raise ValueError("not a message of Debezium")
            found: Mapping[str, Any] = content.get("payload", content)
            return found
        if value[:1] != b"\0":
            raise ValueError("not in Confluent's wire format")
        schema = self._schema_text(int.from_bytes(value[1:_WIRE_FORMAT_BYTES], "big"))
        record = schemaless_reader(
            io.BytesIO(value[_WIRE_FORMAT_BYTES:]), parse_schema(json.loads(schema or "{}")), None
        )
        return record if isinstance(record, dict) else {}


def _failed(before: FoundSnapshot, status: str, at_ms: int, *, is_past: bool) -> FoundSnapshot:
    """Record a failure. If a first snapshot began since (`is_past`), it brings the missing rows: plan no new request."""
    after = replace(before, failures=(*before.failures, status))
    if status == _NO_KEY or is_past:
        return after
    pause_ms = min(_FIRST_PAUSE_MS * 2**before.failed_in_row, _LONGEST_PAUSE_MS)
    return replace(after, failed_in_row=before.failed_in_row + 1, again_ms=at_ms + pause_ms)


def _scanned(upstream: str, status: str) -> Callable[[FoundRepeat], FoundRepeat]:
    """Return a function that records a scan's outcome in the table's repeated snapshots; of several scans the last one counts."""
    return lambda repeat: replace(repeat, succeeded=status in _GOOD) if repeat.upstream == upstream else repeat


def _values(messages: Iterable[Any]) -> Iterator[tuple[int, int, bytes]]:
    """Yield offset, time in epoch milliseconds, and value of each message."""
    for message in messages:
        value = message.value()
        if value is not None:
            yield message.offset(), message.timestamp()[1], value
