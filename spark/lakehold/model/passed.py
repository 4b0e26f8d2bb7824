"""Upstream transactions that earlier batches committed: kept with the reader, as `marks` are with a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lakehold.model.marks import Position
from lakehold.model.offsets import TopicPartition
from lakehold.model.places import Place


@dataclass(frozen=True)
class Mark:
    """The furthest event of a partition: the place of its transaction, and its position."""

    place: Place
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
class Passed:
    """The upstream transactions that earlier batches committed.

    Args:
        commits: For each log the commit of its last transaction, as `Place.at`; only of transactions whose place is known.
        marks: The furthest event of each partition that had events.
        cut_off: Partitions whose beginning was deleted before they were first read: their first transaction may lack events.
        replaced: The re-snapshot that the last batch contains.
    """

    commits: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    marks: Mapping[TopicPartition, Mark] = field(default_factory=dict)
    cut_off: frozenset[TopicPartition] = frozenset()
    replaced: Replaced | None = None

    def has(self, place: Place | None) -> bool:
        """Return whether the transaction at `place` was committed by an earlier batch."""
        return place is not None and place.log in self.commits and place.at <= self.commits[place.log]

    def is_ahead_of(self, other: Passed) -> bool:
        """Return whether it has committed more than `other` in some log."""
        return any(log not in other.commits or other.commits[log] < at for log, at in self.commits.items())

    def to_json(self) -> str:
        """Convert it to compact text for `mz_readers`; empty if nothing was committed."""
        if self == Passed():
            return ""
        content: dict[str, object] = {
            "commits": dict(sorted(self.commits.items())),
            "marks": [
                [tp.topic, tp.partition, *_listed(mark.place), list(mark.position)]
                for tp, mark in sorted(self.marks.items())
            ],
            "cut_off": [[tp.topic, tp.partition] for tp in sorted(self.cut_off)],
        }
        if self.replaced is not None:
            content["replaced"] = [list(self.replaced.position), sorted(self.replaced.without_rows)]
        return json.dumps(content, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Passed:
        """Read the text of `to_json`."""
        if not text:
            return cls()
        content = json.loads(text)
        position, without_rows = content.get("replaced", (None, ()))
        return cls(
            commits={log: tuple(at) for log, at in content["commits"].items()},
            marks={
                TopicPartition(topic, partition): Mark(_place(log, at), _position(*position))
                for topic, partition, log, at, position in content["marks"]
            },
            cut_off=frozenset(TopicPartition(*each) for each in content["cut_off"]),
            replaced=None if position is None else Replaced(_position(*position), frozenset(without_rows)),
        )


NOTHING_PASSED = Passed()


def joined_transactions(main: Passed, joining: Passed) -> Passed:
    """Return the committed transactions of `main` after tables that have caught up with it join."""
    return joining if main == NOTHING_PASSED else replace(main, marks={**joining.marks, **main.marks})


def _listed(place: Place) -> list[Any]:
    return [place.log, list(place.at)]


def _place(log: str, at: list[int]) -> Place:
    return Place(log, tuple(at))


def _position(a: int, b: int, c: int, d: int) -> Position:
    return (a, b, c, d)
