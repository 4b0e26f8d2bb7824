"""What the batches before have taken of an upstream's transactions: kept with the reader, as `marks` are with a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lakehold.ingest.marks import Position
from lakehold.ingest.offsets import TopicPartition
from lakehold.ingest.transactions.places import Place


@dataclass(frozen=True)
class Mark:
    """The furthest event of a partition: its transaction's place, and its position."""

    place: Place
    position: Position

    def is_reached_by(self, place: Place, position: Position) -> bool:
        """Whether an event lies here or behind; one of another log does."""
        return place.log != self.place.log or (place.at, position) >= (self.place.at, self.position)


@dataclass(frozen=True)
class Replaced:
    """A snapshot taken anew that a batch has all of (`anew.py`).

    Args:
        position: Where it stands upstream.
        without_rows: Topics of readable tables of which it has no row: what they have from before goes, too.
    """

    position: Position
    without_rows: frozenset[str]


@dataclass(frozen=True)
class Passed:
    """What was taken.

    Args:
        commit: Where the last transaction commits; None: none yet, or its place is unknown.
        marks: The furthest event of each partition that had some.
        cut_off: Partitions whose beginning was deleted before they were first read, and which may still show it: their first
            transaction may lack events.
        begun: Transactions that are not taken, with the numbers of their BEGINs: the connector was killed amid one with several.
        replaced: The snapshot taken anew that the last batch has.
    """

    commit: Place | None = None
    marks: Mapping[TopicPartition, Mark] = field(default_factory=dict)
    cut_off: frozenset[TopicPartition] = frozenset()
    begun: Mapping[str, int] = field(default_factory=dict)
    replaced: Replaced | None = None

    def has(self, place: Place | None) -> bool:
        """Whether the transaction at `place` was taken."""
        return place is not None and self.commit is not None and not place.is_after(self.commit)

    def to_json(self) -> str:
        """Compact text for `mz_readers`; empty when nothing was taken."""
        if self == Passed():
            return ""
        content: dict[str, object] = {
            "commit": None if self.commit is None else _listed(self.commit),
            "marks": [
                [tp.topic, tp.partition, *_listed(mark.place), list(mark.position)]
                for tp, mark in sorted(self.marks.items())
            ],
            "cut_off": [[tp.topic, tp.partition] for tp in sorted(self.cut_off)],
            "begun": dict(sorted(self.begun.items())),
        }
        if self.replaced is not None:
            content["replaced"] = [list(self.replaced.position), sorted(self.replaced.without_rows)]
        return json.dumps(content, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Passed:
        """The inverse of `to_json`."""
        if not text:
            return cls()
        content = json.loads(text)
        position, without_rows = content.get("replaced", (None, ()))
        return cls(
            commit=None if content["commit"] is None else _place(*content["commit"]),
            marks={
                TopicPartition(topic, partition): Mark(_place(log, at), _position(*position))
                for topic, partition, log, at, position in content["marks"]
            },
            cut_off=frozenset(TopicPartition(*each) for each in content["cut_off"]),
            begun=content["begun"],
            replaced=None if position is None else Replaced(_position(*position), frozenset(without_rows)),
        )


def has_reached(transactions: str, place: Place) -> bool:
    """Whether the last transaction that was taken, as `Passed.to_json` says it, commits at a place or behind it."""
    commit = Passed.from_json(transactions).commit
    return commit is not None and commit.has_reached(place)


def joined_transactions(main: str, joining: str) -> str:
    """What `main` has taken, as `Passed.to_json` says it, when tables join that have caught up with it."""
    if not main:
        return joining
    taken = Passed.from_json(main)
    return replace(taken, marks={**Passed.from_json(joining).marks, **taken.marks}).to_json()


def _listed(place: Place) -> list[Any]:
    return [place.log, list(place.at)]


def _place(log: str, at: list[int]) -> Place:
    return Place(log, tuple(at))


def _position(a: int, b: int, c: int, d: int) -> Position:
    return (a, b, c, d)
