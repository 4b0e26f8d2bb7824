"""Many small sources in one lake, beside one with a backlog of many batches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lakehold.lake import Lake
from lakehold.model.offsets import TopicPartition
from lakehold.state.batch_protocol import Batch
from lakehold.times import now_ms
from tests import recorded_files

LONG = "long"
"""The source with a backlog."""

_KEYS = 1_000_000


@dataclass(frozen=True)
class Lag:
    """The lag of one message.

    Attributes:
        readable_ms: Milliseconds from the message's arrival until its row is readable.
        batch_ms: Milliseconds that its batch took.
    """

    readable_ms: int
    batch_ms: int


@dataclass
class ManySources:
    """Sources of one table `(k BIGINT, v STRING)` each: short ones, and `long`.

    Args:
        lake: The lake.
        directory: Folder of the recorded messages.
        count: Number of short sources.
        batch_records: Most messages of one batch of `long`.
    """

    lake: Lake
    directory: Path
    count: int
    batch_records: int
    _offsets: dict[str, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for name in self.short:
            self._declare(name, "")
        self._declare(LONG, f"WITH (MAX RECORDS = {self.batch_records})")

    @property
    def short(self) -> Sequence[str]:
        """Return the names of the short sources."""
        return [f"short{number}" for number in range(self.count)]

    def send(self, source: str) -> tuple[str, int, int]:
        """Add a message to a source. Returns the source, the message's offset, and when it was there (epoch milliseconds)."""
        self._append(source, 1)
        return source, self._offsets[source] - 1, now_ms()

    def fill(self, batches: int) -> None:
        """Give `long` a backlog of so many batches."""
        self._append(LONG, batches * self.batch_records)

    def has_backlog(self) -> bool:
        """Return whether `long` has messages that no batch has read."""
        return self._read(LONG) < self._offsets[LONG]

    def is_readable(self, sent: Iterable[tuple[str, int, int]]) -> bool:
        """Return whether the rows of all these messages are readable."""
        return all(self._read(source) > offset for source, offset, _ in sent)

    def lags(self, sent: Iterable[tuple[str, int, int]]) -> list[Lag]:
        """Return the lag of each of these messages, whose rows are readable."""
        batches = self.lake.batches.history()
        found = []
        for source, offset, at_ms in sent:
            batch = next(b for b in batches if b.source == source and _end(b.end, source) > offset)
            found.append(Lag(batch.committed_at_ms - at_ms, _took_ms(batch)))
        return found

    def _read(self, source: str) -> int:
        return max((_end(state.position, source) for state in self.lake.batches.readers(source).values()), default=0)

    def _declare(self, name: str, options: str) -> None:
        self._offsets[name] = 0
        self._append(name, 1)
        self.lake.sql(
            f"CREATE SOURCE {name} FROM FILES '{self.directory / name}' FORMAT JSON {options}; "
            f"CREATE TABLE many.{name} (k BIGINT, v STRING) FROM SOURCE {name} (TOPIC '{name}') KEY (k) ENVELOPE UPSERT"
        )

    def _append(self, source: str, count: int) -> None:
        begin = self._offsets[source]
        recorded_files.append(
            self.directory / source / "changes.jsonl",
            (_line(source, offset) for offset in range(begin, begin + count)),
        )
        self._offsets[source] = begin + count


def _line(topic: str, offset: int) -> str:
    key = {"k": offset % _KEYS}
    row = json.dumps({**key, "v": f"at {offset}"}).encode()
    return recorded_files.line(topic, 0, offset, row, json.dumps(key).encode())


def _end(position: Mapping[TopicPartition, int], topic: str) -> int:
    return position.get(TopicPartition(topic, 0), 0)


def _took_ms(batch: Batch) -> int:
    return batch.committed_at_ms - batch.started_at_ms
