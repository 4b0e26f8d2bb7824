"""Where a batch of whole transactions ends, as text: a line for each partition, and a bar where the batch ends.

    A1      the first event of transaction A in this topic; transactions commit in the order of the alphabet
    A3=1    the third, numbered as the first by a connector that was restarted after the second
    A1!     an event that commits by itself, and so is all of A, which has no END
    A( A)   its BEGIN, and its END with the counts of its events: `A)orders=2,items=1`
    s sB    a row of an ad-hoc snapshot; one of a snapshot with which the connector began, after the commit of B
    sB!     ... the last of all its rows
    . ? ?!  a record without a transaction; one that cannot be read, ... and was sent behind all ENDs

Lines before them say what was before: `passed B: orders/0=B2` is what earlier batches took, up to the commit of B, and the
furthest event of each partition; `cut off orders/0` that a partition is first read and its beginning was deleted; `bounded` that
more has come than the batch reads;
`written orders/0=3` how many records there were with those that were not committed in Kafka; as many as are shown, if it is not
said; `long ago 2` how many records of the transaction topic had been sent when the connector had longer to write what came
before them than a partition lags; `shown orders items=A` that these topics have readable tables, which show no snapshot of a
connector's beginning, or the one after the commit of A.

A case ends at a blank line. `LAKEHOLD_REWRITE=1 pytest tests/golden` writes where batches end now: read the diff.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lakehold.ingest.envelope.header_columns import Kind
from lakehold.ingest.transactions.boundary import find_boundary
from lakehold.ingest.transactions.candidate import Candidate, Extent, candidate_of
from lakehold.ingest.transactions.waiting import Blocked
from lakehold.model.committed_transactions import CommittedTransactions, FurthestEvent
from lakehold.model.high_water_marks import Position
from lakehold.model.log_positions import WAL
from lakehold.model.offsets import TopicPartition
from tests.golden.test_sql import check
from tests.transaction_headers import Boundary, Record, headers_of, position_of_event, records_of

FILES = sorted(Path(__file__).parent.glob("transactions/*.txt"))
FIRST_OFFSET = 5
"""Offsets begin above 0, to be told from numbers of records."""
TRANSACTIONS = TopicPartition("transaction", 0)
LONG_AGO_MS = 1_000


def lsn(transaction: str) -> int:
    """Where a transaction commits, in PostgreSQL's log."""
    return 1_000 + 100 * (ord(transaction) - ord("A"))


def event(transaction: str, number: int) -> tuple[str, tuple[int, int, int, int]]:
    """Id and position of an event, which begins in the log before the commit of the one before."""
    return f"{ord(transaction)}:{lsn(transaction) - 110 + number}", (lsn(transaction) - 100, number, number, 1)


@dataclass
class Case:
    """What a case says."""

    lines: dict[TopicPartition, list[str]] = field(default_factory=dict)
    commit: str = ""
    marks: dict[TopicPartition, FurthestEvent] = field(default_factory=dict)
    cut_off: set[TopicPartition] = field(default_factory=set)
    is_bounded: bool = False
    written: dict[TopicPartition, int] = field(default_factory=dict)
    long_ago: int = sys.maxsize
    shown: dict[str, Position | None] = field(default_factory=dict)

    def read(self, line: str) -> None:
        if line == "bounded":
            self.is_bounded = True
        elif line.startswith("cut off "):
            self.cut_off.add(partition(line.removeprefix("cut off ")))
        elif line.startswith("written "):
            ends = (each.split("=") for each in line.removeprefix("written ").split())
            self.written = {partition(tp): FIRST_OFFSET + int(count) for tp, count in ends}
        elif line.startswith("long ago "):
            self.long_ago = FIRST_OFFSET + int(line.removeprefix("long ago "))
        elif line.startswith("shown "):
            for topic, _, transaction in (each.partition("=") for each in line.split()[1:]):
                self.shown[topic] = snapshot_position(transaction) if transaction else None
        elif found := re.match(r"passed (\w): (.*)", line):
            self.commit = found.group(1)
            for place, furthest in (each.split("=") for each in found.group(2).split()):
                id_, position = event(furthest[0], int(furthest[1:]))
                at = position_of_event(id_, position)
                assert at is not None
                self.marks[partition(place)] = FurthestEvent(at, position)
        else:
            tp, *tokens = line.split()
            self.lines[partition(tp)] = tokens

    @property
    def passed(self) -> CommittedTransactions:
        commits = {WAL: (lsn(self.commit),)} if self.commit else {}
        return CommittedTransactions(commits, self.marks, frozenset(self.cut_off))

    @property
    def candidate(self) -> Candidate:
        stops = {tp: FIRST_OFFSET + len(tokens) for tp, tokens in self.lines.items()}
        extent = Extent(
            starts=dict.fromkeys(self.lines, FIRST_OFFSET),
            stops=stops,
            unread=frozenset(self.lines if self.is_bounded else ()),
            written=self.written,
            fetched_ms=LONG_AGO_MS,
            shown=self.shown,
        )
        records = [
            record
            for tp, tokens in self.lines.items()
            for offset, token in enumerate(tokens, FIRST_OFFSET)
            if (record := record_of(tp, offset, token)) is not None
        ]
        topics = frozenset(tp.topic for tp in self.lines) - {TRANSACTIONS.topic}
        return candidate_of(extent, headers_of(records), records_of(self.boundaries()), topics, TRANSACTIONS.topic)

    def boundaries(self) -> Iterator[Boundary]:
        for offset, token in enumerate(self.lines[TRANSACTIONS], FIRST_OFFSET):
            sent_ms = LONG_AGO_MS if offset < self.long_ago else LONG_AGO_MS + 1
            if found := re.fullmatch(r"([A-Z])([()])(.*)", token):
                transaction, kind, counts = found.groups()
                id_ = f"{ord(transaction)}:{lsn(transaction)}"
                pairs = (each.split("=") for each in counts.split(",") if each)
                events = None if kind == "(" else {collection: int(count) for collection, count in pairs}
                yield Boundary(offset, id_, events, sent_ms)


def partition(text: str) -> TopicPartition:
    topic, _, number = text.partition("/")
    return TopicPartition(topic, int(number))


def record_of(tp: TopicPartition, offset: int, token: str) -> Record | None:
    match token:
        case "s":
            return Record(*position_in(tp, offset), Kind.SNAPSHOT)
        case _ if found := re.fullmatch(r"s([A-Z])(!?)", token):
            kind = Kind.SNAPSHOT_END if found.group(2) else Kind.SNAPSHOT
            return Record(*position_in(tp, offset), kind, position=snapshot_position(found.group(1)))
        case "?" | "?!":
            return Record(*position_in(tp, offset), Kind.UNREADABLE, sent_ms=0 if token == "?" else LONG_AGO_MS + 2)
        case _ if found := re.fullmatch(r"([A-Z])(\d+)(?:=(\d+))?(!?)", token):
            number = int(found.group(3) or found.group(2))
            id_, position = event(found.group(1), int(found.group(2)))
            commits = bool(found.group(4))
            return Record(*position_in(tp, offset), Kind.EVENTS, id_, number, number, position, commits=commits)
        case _:
            return None


def snapshot_position(transaction: str) -> Position:
    """Where a snapshot stands that shows what was after the commit of a transaction."""
    return (lsn(transaction), 0, -1, 1)


def position_in(tp: TopicPartition, offset: int) -> tuple[str, int, int]:
    return tp.topic, tp.partition, offset


def said(blocked: Blocked) -> str:
    if not blocked.transaction:
        return f"a re-snapshot is not over, {blocked.arrived} rows have come"
    name = chr(int(blocked.transaction.split(":", maxsplit=1)[0]))
    if blocked.repeats:
        return f"{blocked.repeats} repeats {name}, and has not come as far as it was"
    if not blocked.lacking:
        return f"{name} has no END, {blocked.arrived} events have come"
    parts = (f"{arrived} of {count} of {topic}" for topic, (arrived, count) in sorted(blocked.lacking.items()))
    return f"{name} lacks events: {', '.join(parts)} have come"


def outcome(text: str) -> str:
    case = Case()
    for line in text.splitlines():
        if not line.startswith("#"):
            case.read(line)
    found = find_boundary(case.candidate, case.passed)
    width = max(len(f"{tp.topic}/{tp.partition}") for tp in case.lines) + 2
    shown = []
    for tp, tokens in case.lines.items():
        taken = found.stops[tp] - FIRST_OFFSET
        marked = [*tokens[:taken], "|", *tokens[taken:]]
        shown.append(f"{f'{tp.topic}/{tp.partition}':<{width}}{' '.join(marked)}")
    if found.blocked is not None:
        shown.append(said(found.blocked))
    if found.is_followed:
        shown.append("followed by more of the same")
    if found.over_ms is not None:
        shown.append("a re-snapshot is over, and may not have come whole")
    if found.passed.replaced is not None:
        shown.append(" ".join(["a re-snapshot; not of", *sorted(found.passed.replaced.without_rows)]))
    for what, topics in (("waiting", found.waiting), ("unread snapshots", found.unread_snapshots)):
        if topics:
            shown.append(f"{what}: {', '.join(sorted(topics))}")
    return "\n".join(shown)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_batches_end_as_written_down(path: Path) -> None:
    check(path, outcome)


def test_there_are_cases() -> None:
    assert len(FILES) > 1
