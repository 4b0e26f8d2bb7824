"""Upstream transactions that earlier batches committed: kept with the reader, as high-water marks are with a table.

Only sources with a transaction topic have them. They let the planner of batches recognise events that a restarted connector
sends again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lakehold.model.high_water_marks import Position
from lakehold.model.log_positions import LogPosition
from lakehold.model.offsets import TopicPartition


@dataclass(frozen=True)
class FurthestEvent:
    """The furthest event of a partition: the log position of its transaction's commit, and its own position."""

    commit: LogPosition
    position: Position


@dataclass(frozen=True)
class Replaced:
    """A re-snapshot that a batch contains completely (`lakehold.ingest.transactions.resnapshot`).

    Args:
        position: Its log position.
        without_rows: Topics of readable tables without a row in it: their earlier rows are deleted, too.
    """

    position: Position
    without_rows: frozenset[str]


@dataclass(frozen=True)
class CommittedTransactions:
    """The upstream transactions that earlier batches committed.

    Args:
        commits: For each log the commit of its last transaction, as `LogPosition.at`; only of transactions whose commit's
            position is known.
        furthest: The furthest event of each partition that had events.
        cut_off: Partitions whose beginning was deleted before they were first read: their first transaction may lack events.
        replaced: The re-snapshot that the last batch contains.
        resnapshot: The position of the last re-snapshot that any batch of `main` contains; None: there was none.
    """

    commits: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    furthest: Mapping[TopicPartition, FurthestEvent] = field(default_factory=dict)
    cut_off: frozenset[TopicPartition] = frozenset()
    replaced: Replaced | None = None
    resnapshot: Position | None = None

    def has(self, commit: LogPosition | None) -> bool:
        """Return whether the transaction that commits at `commit` was applied by an earlier batch."""
        return commit is not None and commit.log in self.commits and commit.at <= self.commits[commit.log]

    def is_ahead_of(self, other: CommittedTransactions) -> bool:
        """Return whether it has committed more than `other` in some log."""
        return any(log not in other.commits or other.commits[log] < at for log, at in self.commits.items())

    def to_json(self) -> str:
        """Convert it to compact text for `mz_readers`; empty if nothing was committed."""
        if self == CommittedTransactions():
            return ""
        content: dict[str, object] = {
            "commits": dict(sorted(self.commits.items())),
            "marks": [
                [tp.topic, tp.partition, *_listed(event.commit), list(event.position)]
                for tp, event in sorted(self.furthest.items())
            ],
            "cut_off": [[tp.topic, tp.partition] for tp in sorted(self.cut_off)],
        }
        if self.replaced is not None:
            content["replaced"] = [list(self.replaced.position), sorted(self.replaced.without_rows)]
        if self.resnapshot is not None:
            content["resnapshot"] = list(self.resnapshot)
        return json.dumps(content, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> CommittedTransactions:
        """Read the text of `to_json`."""
        if not text:
            return cls()
        content = json.loads(text)
        position, without_rows = content.get("replaced", (None, ()))
        return cls(
            commits={log: tuple(at) for log, at in content["commits"].items()},
            furthest={
                TopicPartition(topic, partition): FurthestEvent(_log_position(log, at), _position(*position))
                for topic, partition, log, at, position in content["marks"]
            },
            cut_off=frozenset(TopicPartition(*each) for each in content["cut_off"]),
            replaced=None if position is None else Replaced(_position(*position), frozenset(without_rows)),
            resnapshot=None if (resnapshot := content.get("resnapshot")) is None else _position(*resnapshot),
        )


NOTHING_COMMITTED = CommittedTransactions()


def joined_transactions(main: CommittedTransactions, joining: CommittedTransactions) -> CommittedTransactions:
    """Return the committed transactions of `main` after tables that have caught up with it join."""
    return joining if main == NOTHING_COMMITTED else replace(main, furthest={**joining.furthest, **main.furthest})


def _listed(commit: LogPosition) -> list[Any]:
    return [commit.log, list(commit.at)]


def _log_position(log: str, at: list[int]) -> LogPosition:
    return LogPosition(log, tuple(at))


def _position(a: int, b: int, c: int, d: int) -> Position:
    return (a, b, c, d)
