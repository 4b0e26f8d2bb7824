"""A stretch of a source as whole transactions are judged by it: runs of events, and ENDs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from lakehold.model.marks import Position
from lakehold.model.offsets import Offsets, TopicPartition
from lakehold.model.places import Place, place_of_end


class Kind(StrEnum):
    """What the records of a run are; others, such as tombstones, are in none."""

    EVENTS = "events"
    SNAPSHOT = "snapshot"
    SNAPSHOT_END = "snapshot-end"
    """The last row of a snapshot, of all tables of the connector."""
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive records of one partition: events of one transaction in their order, rows of one snapshot, or unreadable ones.

    Args:
        kind: Which.
        first: Offset of the first one.
        last: Offset of the last one.
        records: How many.
        position: Of the last one, as `lakehold.ingest.position` has it; None: unknown, and of an ad-hoc snapshot.
        sent_ms: When the last one was sent (epoch milliseconds).
        transaction: Of events: which.
        shown_id: ... as its last event names it.
        place: ... where it stands in the upstream's log; None: unknown.
        new: ... how many stand in no earlier run of the stretch.
        counted: ... how many of them the transaction's END counts (`runs.py`).
        commits: ... whether it is one that commits by itself, and so is all of its transaction: that has a BEGIN and no END.
    """

    kind: Kind
    first: int
    last: int
    records: int
    position: Position | None = None
    sent_ms: int = 0
    transaction: str = ""
    shown_id: str = ""
    place: Place | None = None
    new: int = 0
    counted: int = 0
    commits: bool = False

    @property
    def is_snapshot(self) -> bool:
        """Whether it is of a snapshot."""
        return self.kind in (Kind.SNAPSHOT, Kind.SNAPSHOT_END)

    @property
    def is_last_row(self) -> bool:
        """Whether it is the last row of a snapshot."""
        return self.kind is Kind.SNAPSHOT_END

    def is_behind(self, position: Position) -> bool:
        """Whether it is events that stand behind a position upstream."""
        return self.kind is Kind.EVENTS and self.position is not None and self.position > position


@dataclass(frozen=True, slots=True)
class End:
    """The END of a transaction, in the transaction topic.

    Args:
        offset: Its own.
        transaction: Whose.
        shown_id: As it names it.
        place: Where the transaction commits; None: unknown.
        events: By topic of the source how many events it counts.
        sent_ms: When it was sent (epoch milliseconds).
        followed_by: How many records of its partition stand behind it, as far as the stretch goes.
    """

    offset: int
    transaction: str
    shown_id: str
    place: Place | None
    events: Mapping[str, int]
    sent_ms: int
    followed_by: int


@dataclass(frozen=True, slots=True)
class Begin:
    """The BEGIN of a transaction, in the transaction topic.

    Args:
        offset: Its own.
        transaction: Whose.
        sent_ms: When it was sent (epoch milliseconds).
        followed_by: As of an END.
    """

    offset: int
    transaction: str
    sent_ms: int
    followed_by: int

    @property
    def place(self) -> Place | None:
        """Where its transaction commits, if its id alone tells that."""
        return place_of_end(self.transaction)


@dataclass(frozen=True)
class Log:
    """What a source holds between two positions.

    Args:
        starts: Where each partition was begun, the transaction topic's included.
        stops: Where each was left (exclusive).
        runs: Of the partitions that are judged, in order of offsets.
        ends: Of the partitions of the transaction topic, in order of offsets.
        begins: ... the same.
        unread: Partitions that have something behind `stops`.
        seen: Of partitions of the transaction topic, where a look ended that was done before that of `written`; of those it
            does not name all that was read was seen.
        written: ... where they ended then, with what nobody may read yet; of partitions of events the same behind the look that
            is judged, if it was asked.
        arrived_until_ms: What was sent up to then (epoch milliseconds) was in `written` when that was asked for, whatever
            partition lags; None: all that had been sent was.
        shown: The topics of readable tables, with the position of the connector's snapshot that these show; None: of none.
        followed_later: Partitions of which is known that what stands behind `stops` is later than all ENDs.
    """

    starts: Offsets
    stops: Offsets
    runs: Mapping[TopicPartition, Sequence[Run]]
    ends: Mapping[TopicPartition, Sequence[End]]
    begins: Mapping[TopicPartition, Sequence[Begin]]
    unread: frozenset[TopicPartition]
    seen: Offsets = field(default_factory=dict)
    written: Offsets = field(default_factory=dict)
    arrived_until_ms: int | None = None
    shown: Mapping[str, Position | None] = field(default_factory=dict)
    followed_later: frozenset[TopicPartition] = frozenset()

    @property
    def reaches_now(self) -> bool:
        """Whether nothing lies behind `stops` yet."""
        return not self.unread

    @property
    def may_be_ahead(self) -> tuple[End, ...]:
        """ENDs that may have been written before something that was sent before them.

        One that was written in a Kafka transaction is not among them: behind it stands a control record, at an offset that no
        record has, and what was sent before it had been written when that was.
        """
        until_ms = self.arrived_until_ms
        if until_ms is None:
            return ()
        return tuple(
            end
            for tp, ends in self.ends.items()
            for end in ends
            if end.sent_ms > until_ms and end.followed_by == self.stops[tp] - end.offset - 1
        )

    def is_read_to_its_end(self, tp: TopicPartition) -> bool:
        """Whether all of a partition of events was read that had been written behind the look, as far as that was asked."""
        return tp in self.written and self.stops[tp] >= self.written[tp]


def with_all_ends(log: Log) -> Log:
    """The stretch with an END also of each transaction that is one event which commits by itself: its BEGIN stands for it."""
    topics = {run.transaction: tp.topic for tp, runs in log.runs.items() for run in runs if run.commits}
    if not topics:
        return log
    begins = {}
    ends = {}
    for tp, begun in log.begins.items():
        lone = (begin for begin in begun if begin.transaction in topics)
        begins[tp] = [begin for begin in begun if begin.transaction not in topics]
        ends[tp] = sorted([*log.ends[tp], *(_as_end(begin, topics[begin.transaction]) for begin in lone)], key=_offset)
    return replace(log, begins=begins, ends=ends)


def _as_end(begin: Begin, topic: str) -> End:
    shown_id = begin.transaction
    return End(begin.offset, shown_id, shown_id, begin.place, {topic: 1}, begin.sent_ms, begin.followed_by)


def _offset(end: End) -> int:
    return end.offset
