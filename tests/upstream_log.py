"""A model of an upstream database and its connector: transactions, and the topics that kills and repetitions leave.

The database is a list of transactions in the order of their commits. The connector writes the transactions as one log.
When the connector is killed, partitions lose different parts of the messages in flight, except of events that commit by
themselves. The next run begins at an acknowledged point. It continues with the earlier numbers, or reads transactions from
their beginning, skips the events that were sent, and numbers and counts the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from lakehold.ingest.envelope.header_columns import Kind
from lakehold.ingest.transactions.candidate import Candidate, Extent, candidate_of
from lakehold.model.committed_transactions import Replaced
from lakehold.model.high_water_marks import Position
from lakehold.model.offsets import Offsets, TopicPartition
from tests.transaction_headers import Boundary, Record, headers_of, records_of

TRANSACTIONS = TopicPartition("shop.transaction", 0)
"""The only partition of the transaction topic."""
LOSES_POSITION = 0.6
"""The probability that a killed connector loses its position, where it may."""
OTHER_TABLE = "public.other"
"""A table that ENDs count and that has no topic in the source."""

Key = tuple[str, int]
State = Mapping[Key, int]
"""Values by table and key."""


@dataclass(frozen=True)
class Change:
    """A change in a transaction: the new value of a row, or None for a deleted row, and the value before."""

    table: str
    key: int
    value: int | None
    before: int | None = None


@dataclass(frozen=True)
class Message:
    """A record of a topic; `change` is its effect, `tombstone_of` the key whose deletion it repeats."""

    boundary: Boundary | None = None
    record: Record | None = None
    change: Change | None = None
    tombstone_of: int | None = None


@dataclass(frozen=True)
class _Emitted:
    """One message that the connector sends: its partition, its transaction, and the number of changes read before it."""

    partition: TopicPartition
    message: Message
    change_number: int
    transaction: int


@dataclass
class Topics:
    """The messages of all partitions, by offset.

    Args:
        messages: The messages.
        lives: End offsets at each kill. Readers see everything that a killed connector left before any message of the next one.
        order: The partition of each message, in the order of sending.
    """

    messages: dict[TopicPartition, list[Message]] = field(default_factory=dict)
    lives: list[Offsets] = field(default_factory=list)
    order: list[TopicPartition] = field(default_factory=list)

    @property
    def ends(self) -> dict[TopicPartition, int]:
        return {tp: len(messages) for tp, messages in self.messages.items()}

    def append(self, tp: TopicPartition, message: Message) -> None:
        """Write a message."""
        self.messages[tp].append(message)
        self.order.append(tp)

    def candidate(self, extent: Extent, sent: Mapping[TopicPartition, Sequence[int]]) -> Candidate:
        """Return the content of an offset range; `sent` has the time at which each message was sent."""
        records, boundaries = [], []
        for tp, messages in self.messages.items():
            for offset in range(extent.starts[tp], extent.stops[tp]):
                found = messages[offset]
                if found.record is not None:
                    records.append(found.record._replace(offset=offset, sent_ms=sent[tp][offset]))
                if found.boundary is not None:
                    boundaries.append(found.boundary._replace(offset=offset, sent_ms=sent[tp][offset]))
        topics = frozenset(tp.topic for tp in self.messages) - {TRANSACTIONS.topic}
        return candidate_of(extent, headers_of(records), records_of(boundaries), topics, TRANSACTIONS.topic)


class Upstream:
    """Random transactions over tables with a topic each.

    Args:
        random: Source of all random choices.
        tables: Number of tables.
        partitions: Number of partitions of each table's topic.
        transactions: Number of transactions.
        ids: Form of transaction ids: `postgres`, `binlog`, `gtid`, or `gtids` of several domains.
        snapshots: Some partitions begin with rows of a snapshot.
        sizes: Sizes of transactions in changes, all equally likely.
        renumbers: A connector killed inside a transaction repeats nothing, and numbers the unsent events from 1.
        begins_snapshot: A killed connector may lose its position, and begin with a snapshot of all tables.
        commits_alone: Some transactions of one change have no END, as TRUNCATE of MySQL has none.
    """

    def __init__(
        self,
        random: Random,
        *,
        tables: int,
        partitions: int,
        transactions: int,
        ids: str,
        snapshots: bool = True,
        sizes: Sequence[int] = (0, 1, 1, 2, 3, 8),
        renumbers: bool = False,
        begins_snapshot: bool = False,
        commits_alone: bool = False,
    ) -> None:
        self.begins_snapshot, self.commits_alone = begins_snapshot, commits_alone
        self._committed = 0
        self.renumbers = renumbers
        self._random = random
        self._snapshots = snapshots
        self._sizes = sizes
        self._tables = [f"public.t{number}" for number in range(tables)]
        self._partitions = partitions
        self._ids = ids
        self._domains = [random.randrange(3) for _ in range(transactions)] if ids == "gtids" else []
        self.transactions = _with_values_before([self._transaction() for _ in range(transactions)])
        self._alone = {
            number
            for number, changes in enumerate(self.transactions)
            if commits_alone
            and [c.table for c in changes] != [OTHER_TABLE]
            and len(changes) == 1
            and random.random() < 0.5
        }
        self.topics = Topics({tp: self._snapshot(tp) for tp in self._all_partitions()})

    def history(self) -> list[dict[Key, int]]:
        """Return the state of the source's tables after each commit; the first one is that of the snapshot."""
        states: list[dict[Key, int]] = [{}]
        for changes in self.transactions:
            state = dict(states[-1])
            for change in changes:
                if change.table != OTHER_TABLE:
                    _apply(state, change)
            states.append(state)
        return states

    def stream(self, kills: int) -> None:
        """Write all transactions, with a number of kills."""
        log = self._sent(0)
        for _ in range(kills):
            until = self._random.randint(0, len(log))
            acked = self._random.randint(0, until)
            self._write(log[:acked])
            self._committed = max([self._committed, *(step.transaction + 1 for step in log[:until])])
            rows = sum(step.message.record is not None and step.message.record.kind != Kind.EVENTS for step in log)
            is_amid_snapshot = acked < rows
            restarted = None
            if self.begins_snapshot and (is_amid_snapshot or self._random.random() < LOSES_POSITION):
                restarted = self._restarted_with_snapshot()
            if restarted is not None:
                self._write(log[acked:until])
                log = restarted
            elif is_amid_snapshot:
                # A restarted connector would find no rows to snapshot, so this one survives.
                log = log[acked:]
                continue
            elif self.renumbers:
                log = self._sent(log[acked].change_number) if acked < len(log) else []
            else:
                self._write_some(log[acked:until])
                log = log[self._random.randint(max(rows, acked - 12), acked) :]
            self.topics.lives.append(self.topics.ends)
        self._write(log)

    def _restarted_with_snapshot(self) -> list[_Emitted] | None:
        """Return the messages of a connector that restarts with a snapshot, or None if the snapshot would have no rows."""
        first = min(len(self.transactions), self._committed + self._random.choice([0, 0, 1, 3]))
        rows = [Change(table, key, value) for (table, key), value in sorted(self.history()[first].items())]
        if not rows:
            return None
        self._committed = first
        sizes = [len(changes) for changes in self.transactions]
        steps = [step for number in range(first, len(sizes)) for step in self._steps(number, sum(sizes[:number]), 0)]
        return [*self._snapshot_steps(first, rows), *steps]

    def _snapshot_steps(self, first: int, rows: Sequence[Change]) -> Iterator[_Emitted]:
        position = self._snapshot_position(first)
        for number, row in enumerate(rows, 1):
            tp = TopicPartition(f"shop.{row.table}", row.key % self._partitions)
            kind = Kind.SNAPSHOT_END if number == len(rows) else Kind.SNAPSHOT
            record = Record(tp.topic, tp.partition, 0, kind, position=position)
            yield _Emitted(tp, Message(record=record, change=row), 0, first - 1)

    def _snapshot_position(self, first: int) -> Position:
        """Return a position after the commit of the transaction before `first`, and before all of the transaction `first`."""
        if self._ids == "postgres":
            return (_commit_lsn(first - 1), 0, -1, 1)
        return (first // 5, (first % 5) * 100, -1, 1)

    def _sent(self, after: int) -> list[_Emitted]:
        """Return the messages of a connector that restarts at or before the change `after`, without those of earlier changes."""
        steps: list[_Emitted] = []
        number_of_first = 0
        for number, changes in enumerate(self.transactions):
            is_sent = number_of_first + len(changes) >= after - self._random.choice([0, 0, 3])
            if is_sent or steps:
                steps += self._steps(number, number_of_first, max(0, after - number_of_first))
            number_of_first += len(changes)
        return steps

    def _write(self, steps: Sequence[_Emitted]) -> None:
        for step in steps:
            self.topics.append(step.partition, step.message)

    def _write_some(self, steps: Sequence[_Emitted]) -> None:
        """Write a random first part of each partition's messages, as a killed connector leaves the messages in flight."""
        counts = Counter(step.partition for step in steps)
        left = {tp: self._random.randint(0, count) for tp, count in counts.items()}
        for step in steps:
            if left[step.partition]:
                left[step.partition] -= 1
                self.topics.append(step.partition, step.message)
            elif step.message.record is not None and step.message.record.commits:
                return  # No END counts this event, so no later message may exist without it.

    def _all_partitions(self) -> list[TopicPartition]:
        tables = [TopicPartition(f"shop.{table}", p) for table in self._tables for p in range(self._partitions)]
        return [*tables, TRANSACTIONS]

    def _snapshot(self, tp: TopicPartition) -> list[Message]:
        rows = self._random.randrange(3) if self._snapshots and tp != TRANSACTIONS else 0
        return [Message(record=Record(tp.topic, tp.partition, 0, Kind.SNAPSHOT))] * rows

    def _transaction(self) -> list[Change]:
        tables = [*self._tables, OTHER_TABLE] if self._random.random() < 0.3 else self._tables
        return [
            Change(
                self._random.choice(tables),
                self._random.randrange(4),
                self._random.choice([None, self._random.randrange(10**6)]),
            )
            for _ in range(self._random.choice(self._sizes))
        ]

    def _steps(self, number: int, number_of_first: int, left_out: int) -> list[_Emitted]:
        """Return the messages of a transaction without its first changes; `number_of_first` counts the changes before it."""
        counts, steps = Counter[str](), list[_Emitted]()
        is_alone = number in self._alone
        if is_alone and left_out:
            return []
        begin = Message(Boundary(0, self._end_id(number)))
        steps.append(_Emitted(TRANSACTIONS, begin, number_of_first + left_out, number))
        for index, change in list(enumerate(self.transactions[number]))[left_out:]:
            counts[change.table] += 1
            if change.table == OTHER_TABLE:
                continue
            tp = TopicPartition(f"shop.{change.table}", change.key % self._partitions)
            transaction_id, position = self._event(number, index + 1)
            order = index + 1 - left_out
            record = Record(
                *(tp.topic, tp.partition, 0, Kind.EVENTS, transaction_id, order, counts[change.table], position),
                commits=is_alone,
            )
            steps.append(_Emitted(tp, Message(record=record, change=change), number_of_first + index, number))
            if change.value is None:
                steps.append(_Emitted(tp, Message(tombstone_of=change.key), number_of_first + index, number))
        if is_alone:
            return steps
        events = {table: count for table, count in counts.items() if table != OTHER_TABLE}
        end = Message(Boundary(0, self._end_id(number), {**events, "public.elsewhere": 2}))
        return [*steps, _Emitted(TRANSACTIONS, end, number_of_first + len(self.transactions[number]), number)]

    def _event(self, number: int, order: int) -> tuple[str, tuple[int, int, int, int]]:
        """Return id and position of an event; PostgreSQL's transactions overlap in the log."""
        if self._ids == "postgres":
            lsn = _commit_lsn(number) - 35 + order
            return f"{700 + number}:{lsn}", (_commit_lsn(number - 1), lsn, order, 1)
        return self._end_id(number), (number // 5, (number % 5) * 100 + order, 0, 1)

    def _end_id(self, number: int) -> str:
        match self._ids:
            case "postgres":
                return f"{700 + number}:{_commit_lsn(number)}"
            case "gtid":
                return f"0e4d5dcd-a33b-11ea-80f1-02010a22a99e:{number + 1}"
            case "gtids":
                return f"{self._domains[number]}-1-{self._domains[: number + 1].count(self._domains[number])}"
            case _:
                return f"file=binlog.{number // 5:06},pos={(number % 5) * 100}"


def _with_values_before(transactions: Sequence[Sequence[Change]]) -> list[list[Change]]:
    state: dict[Key, int] = {}
    found: list[list[Change]] = []
    for changes in transactions:
        found.append([])
        for change in changes:
            found[-1].append(replace(change, before=state.get((change.table, change.key))))
            _apply(state, change)
    return found


def _commit_lsn(number: int) -> int:
    return 1_000 + 20 * number


def _apply(state: dict[Key, int], change: Change) -> None:
    if change.value is None:
        state.pop((change.table, change.key), None)
    else:
        state[change.table, change.key] = change.value


class Tables:
    """Tables that apply messages as ENVELOPE DEBEZIUM UPSERT does: the last message of a key decides."""

    def __init__(self) -> None:
        self.state: dict[Key, int] = {}

    def take(self, topics: Topics, starts: Offsets, stops: Offsets, replaced: Replaced | None) -> None:
        """Apply the messages between two positions; of a re-snapshot, only those at its position or after it."""
        if replaced is not None:
            # A table without rows in the re-snapshot was empty.
            self.state.clear()
        for tp, messages in topics.messages.items():
            for message in messages[starts[tp] : stops[tp]]:
                position = message.record.position if message.record is not None else None
                is_before = replaced is not None and (position is None or position < replaced.position)
                if message.change is not None and not is_before:
                    _apply(self.state, message.change)
