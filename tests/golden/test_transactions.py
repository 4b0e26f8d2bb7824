"""The end of a batch of whole transactions, as text: a line for each partition, and a bar where the batch ends.

    A1      the first event of transaction A in this topic; transactions commit in the order of the alphabet
    A3=1    the third, numbered as the first by a connector that was restarted after the second
    A1!     an event that commits by itself; it is all of A, which has no END
    A( A)   its BEGIN, and its END with the counts of its events: `A)orders=2,items=1`
    s sB    a row of an ad-hoc snapshot; a row of a connector snapshot taken after the commit of B
    sB!     the last row of that connector snapshot
    . ? ?!  a record without a transaction; an unreadable record; an unreadable record sent after all ENDs

Lines before them describe the state before the batch:

    committed B: orders/0=B2  the last transaction that earlier batches committed, and the furthest event of each partition
    cut off orders/0          the partition is read for the first time, and its beginning was deleted
    bounded                   more records have arrived than the batch reads
    written orders/0=3        number of records including those not committed in Kafka; by default those shown
    long ago 2                number of records of the transaction topic sent so long ago that no partition lags behind them
    joining orders            the table of a topic joins, and cannot be read yet
    shown orders items=A      topics with readable tables, and the connector snapshot that each shows, if any; `A2` is the second
                              attempt at it, as a table without a key of MySQL shows it

A case ends at a blank line. `LAKEHOLD_REWRITE=1 pytest tests/golden` writes the actual ends of batches: read the diff.
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
from lakehold.ingest.transactions.waiting import Incomplete
from lakehold.model.committed_transactions import CommittedTransactions, FurthestEvent
from lakehold.model.high_water_marks import Position
from lakehold.model.log_positions import WAL
from lakehold.model.offsets import TopicPartition
from tests.golden.test_sql import check
from tests.transaction_headers import Boundary, Record, headers_of, position_of_event, records_of

FILES = sorted(Path(__file__).parent.glob("transactions/*.txt"))
FIRST_OFFSET = 5
"""Offsets begin above 0, to differ from numbers of records."""
TRANSACTIONS = TopicPartition("transaction", 0)
LONG_AGO_MS = 1_000


def lsn(transaction: str) -> int:
    """Return the LSN at which a transaction commits."""
    return 1_000 + 100 * (ord(transaction) - ord("A"))


def event(transaction: str, number: int) -> tuple[str, tuple[int, int, int, int]]:
    """Return id and position of an event, which begins in the log before the commit of the earlier transaction."""
    return f"{ord(transaction)}:{lsn(transaction) - 110 + number}", (lsn(transaction) - 100, number, number, 1)


@dataclass
class Case:
    """A case as it is written in a file."""

    lines: dict[TopicPartition, list[str]] = field(default_factory=dict)
    commit: str = ""
    furthest: dict[TopicPartition, FurthestEvent] = field(default_factory=dict)
    cut_off: set[TopicPartition] = field(default_factory=set)
    is_bounded: bool = False
    written: dict[TopicPartition, int] = field(default_factory=dict)
    long_ago: int = sys.maxsize
    shown: dict[str, Position | None] = field(default_factory=dict)
    joining: frozenset[str] = frozenset()

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
        elif line.startswith("joining "):
            self.joining = frozenset(line.split()[1:])
        elif line.startswith("shown "):
            for topic, _, transaction in (each.partition("=") for each in line.split()[1:]):
                self.shown[topic] = snapshot_position(transaction) if transaction else None
        elif found := re.match(r"committed (\w): (.*)", line):
            self.commit = found.group(1)
            for name, furthest in (each.split("=") for each in found.group(2).split()):
                id_, position = event(furthest[0], int(furthest[1:]))
                at = position_of_event(id_, position)
                assert at is not None
                self.furthest[partition(name)] = FurthestEvent(at, position)
        else:
            tp, *tokens = line.split()
            self.lines[partition(tp)] = tokens

    @property
    def committed(self) -> CommittedTransactions:
        commits = {WAL: (lsn(self.commit),)} if self.commit else {}
        return CommittedTransactions(commits, self.furthest, frozenset(self.cut_off))

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
            joining=self.joining,
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


def snapshot_position(text: str) -> Position:
    """Return the position of a snapshot taken after the commit of a transaction, or of an attempt at it."""
    transaction, attempt = text[0], text[1:]
    return (lsn(transaction), 0, int(attempt) - 1_000 if attempt else -1, 1)


def position_in(tp: TopicPartition, offset: int) -> tuple[str, int, int]:
    return tp.topic, tp.partition, offset


def described(incomplete: Incomplete) -> str:
    if not incomplete.transaction:
        return f"a re-snapshot is incomplete, {incomplete.arrived} rows have arrived"
    name = chr(int(incomplete.transaction.split(":", maxsplit=1)[0]))
    if incomplete.repeats:
        return f"{incomplete.repeats} repeats {name}, and has not reached its furthest event"
    if not incomplete.missing:
        return f"{name} has no END, {incomplete.arrived} events have arrived"
    parts = (f"{arrived} of {count} of {topic}" for topic, (arrived, count) in sorted(incomplete.missing.items()))
    return f"{name} lacks events: {', '.join(parts)} have arrived"


def outcome(text: str) -> str:
    case = Case()
    for line in text.splitlines():
        if not line.startswith("#"):
            case.read(line)
    found = find_boundary(case.candidate, case.committed)
    width = max(len(f"{tp.topic}/{tp.partition}") for tp in case.lines) + 2
    shown = []
    for tp, tokens in case.lines.items():
        length = found.stops[tp] - FIRST_OFFSET
        with_bar = [*tokens[:length], "|", *tokens[length:]]
        shown.append(f"{f'{tp.topic}/{tp.partition}':<{width}}{' '.join(with_bar)}")
    if found.incomplete is not None:
        shown.append(described(found.incomplete))
    if found.is_followed:
        shown.append("the rest may contain another batch")
    if found.over_ms is not None:
        shown.append("a re-snapshot has ended, and may be incomplete")
    if found.committed.replaced is not None:
        empty = " ".join(sorted(found.committed.replaced.without_rows))
        shown.append(f"a re-snapshot without rows of {empty}" if empty else "a re-snapshot")
    for heading, topics in (("waiting", found.waiting), ("unread snapshots", found.unread_snapshots)):
        if topics:
            shown.append(f"{heading}: {', '.join(sorted(topics))}")
    return "\n".join(shown)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_batches_end_as_their_golden_files_show(path: Path) -> None:
    check(path, outcome)


def test_golden_cases_exist() -> None:
    assert len(FILES) > 1
