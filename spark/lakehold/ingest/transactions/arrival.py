"""Which transactions of a stretch have come whole. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain

from lakehold.ingest.transactions.commit_order import OPEN, new_ends, next_behind_open
from lakehold.ingest.transactions.log import Begin, End, Kind, Log, Run
from lakehold.ingest.transactions.unreadable import Unreadable
from lakehold.model.offsets import TopicPartition
from lakehold.model.passed import Passed
from lakehold.model.places import Place


class Arrival:
    """The transactions of a stretch, ranked by their commits: 1 is the first that was not taken before.

    Args:
        log: The stretch.
        passed: What was taken before it.

    Attributes:
        ends: The END of each ranked transaction, in order: that of rank 1 is the first.
    """

    def __init__(self, log: Log, passed: Passed) -> None:
        self._log = log
        self._passed = passed
        self.ends = tuple(new_ends(log.ends, passed))
        self._ranks = {end.transaction: rank for rank, end in enumerate(self.ends, 1)}
        self._began_anew = max(
            (r.position for runs in log.runs.values() for r in runs if r.is_snapshot and r.position),
            default=None,
        )
        self._last_ends = {end.transaction: end for of_partition in log.ends.values() for end in of_partition}
        self._begun = _begun(log, passed)
        self._is_cut_off = not passed.cut_off.isdisjoint(log.ends)
        # By topic, and by transaction in it.
        self._new: _Counts = defaultdict(lambda: defaultdict(int))
        self._counted: _Counts = defaultdict(lambda: defaultdict(int))
        self._events = {tp: [run for run in runs if run.kind is Kind.EVENTS] for tp, runs in log.runs.items()}
        self._ranks_of = {tp: self._counted_and_ranked(tp) for tp in log.runs}
        self._reaches = self._reaches_of_topics()

    @property
    def unranked(self) -> int:
        """The rank of transactions whose END has not come: behind all others."""
        return len(self.ends) + 1

    def ranked(self, tp: TopicPartition) -> Iterator[tuple[int, Run]]:
        """Return the runs of events in a partition with the ranks of their transactions.

        Rank 0: an earlier batch took it, or nobody can judge it any more.
        """
        return zip(self._ranks_of.get(tp, ()), self._events.get(tp, ()), strict=True)

    @cached_property
    def without_end(self) -> Sequence[Run]:
        """Find the runs of transactions whose END has not come."""
        unranked = self.unranked
        some = (tp for tp, ranks in self._ranks_of.items() if unranked in ranks)
        return [run for tp in some for rank, run in self.ranked(tp) if rank == unranked]

    @cached_property
    def complete(self) -> int:
        """The rank up to which every transaction is complete."""
        for rank, came_at_once in enumerate(self._came_at_once, 1):
            if not came_at_once and self.lacking(rank):
                return rank - 1
        return len(self.ends)

    @cached_property
    def _came_at_once(self) -> Sequence[bool]:
        """Say by rank whether the connector sent a transaction without a break and all events that its END counts have come."""
        return [
            not self._is_interrupted(end)
            and all(self._new[topic].get(end.transaction, 0) >= count for topic, count in end.events.items())
            for end in self.ends
        ]

    @cached_property
    def certain(self) -> int:
        """The rank up to which nothing can be missing that was sent before what has come, where counts do not tell that."""
        return min(self._no_end_missing, self._no_part_missing)

    @cached_property
    def in_sight(self) -> int:
        """The rank up to which no snapshot taken anew stands unseen: nothing but its rows tells that there is one.

        They were sent before the ENDs behind it. So each partition must show a later event, or have been read to where it ended
        behind a look that saw the END. Where nothing can be read yet, nothing is torn.
        """
        if not self._log.shown:
            return len(self.ends)
        looked = (
            self._rank_of(end)
            for tp, ends in self._log.ends.items()
            for end in ends
            if end.offset < self._log.seen.get(tp, self._log.stops[tp])
        )
        seen = max(looked, default=0)
        reaches = (
            max(0 if tp in self._log.unread else seen, self._furthest[tp])
            for tp in self._log.runs.keys() - self._log.followed_later
        )
        return min(reaches, default=len(self.ends))

    @property
    def _no_end_missing(self) -> int:
        """The rank up to which no transaction can be missing whose END or BEGIN stands in another partition.

        A partition has all up to the last END that it shows: a connector writes each in the order of commits. One that was
        read to its end has as well all up to any END that was seen in another before that end was asked for, unless something
        that was sent before that END may have been under way then.
        """
        seen = max((self._rank_of(end) for tp in self._log.ends for end in self._seen_ends(tp)), default=0)
        shown = {tp: max(map(self._rank_of, ends), default=0) for tp, ends in self._log.ends.items()}
        reaches = (max(rank, seen) if self._is_read_to_its_end(tp) else rank for tp, rank in shown.items())
        return min(reaches, default=len(self.ends))

    @property
    def _no_part_missing(self) -> int:
        """The rank up to which no transaction was interrupted whose last part may not have come to some partition.

        As many as its END counts may be there without it: of the part before (`runs.py`). The same of what was begun before it
        and has no END: that may be an event that commits by itself. And what is taken for unreadable may still come.
        """
        doubtful = (rank for rank in range(1, self.unranked) if self._is_doubtful(rank))
        return next((rank for rank in doubtful if not self._has_all(rank)), self.unranked) - 1

    def _is_doubtful(self, rank: int) -> bool:
        if rank in self._behind_open:
            return True
        return not self._came_at_once[rank - 1] and (
            self._is_interrupted(self.ends[rank - 1]) or self._is_excused(rank)
        )

    def _is_excused(self, rank: int) -> bool:
        """Whether it is complete only if unreadable records are its events: one may stand for those of several transactions."""
        if rank > self.complete:
            return False
        end = self.ends[rank - 1]
        counts = (self._sent_at_once(topic, end) for topic in end.events if rank > self._reaches.get(topic, 0))
        return any(wanted > arrived for arrived, wanted in counts)

    @cached_property
    def _behind_open(self) -> frozenset[int]:
        """The ranks that come next behind transactions that have a BEGIN and no END: in their log, and as they were sent."""
        opened = [begin for begins in self._log.begins.values() for begin in begins if self.is_open(begin)]
        if not opened:
            return frozenset()
        of_logs: defaultdict[str, list[tuple[tuple[int, ...], int]]] = defaultdict(list)
        sent: list[tuple[tuple[int, ...], int]] = [((begin.sent_ms,), OPEN) for begin in opened]
        for place, rank in ((begin.place, OPEN) for begin in opened):
            if place is not None:
                of_logs[place.log].append((place.at, rank))
        for rank, end in enumerate(self.ends, 1):
            sent.append(((end.sent_ms,), rank))
            if end.place is not None:
                of_logs[end.place.log].append((end.place.at, rank))
        return frozenset(chain(next_behind_open(sent), *map(next_behind_open, of_logs.values())))

    def _has_all(self, rank: int) -> bool:
        """Whether each partition has all that was sent before the END of a transaction."""
        may_lag = self.ends[rank - 1].transaction in self._may_be_ahead
        return all(
            (not may_lag and self._log.is_read_to_its_end(tp)) or furthest > rank
            for tp, furthest in self._furthest.items()
        )

    @cached_property
    def _furthest(self) -> Mapping[TopicPartition, int]:
        """The highest rank that each partition shows."""
        return {tp: max(ranks, default=0) for tp, ranks in self._ranks_of.items()}

    def is_open(self, begin: Begin) -> bool:
        """Whether a transaction has no END as far as the stretch goes, and may be an event that commits by itself."""
        if begin.transaction in self._last_ends:
            return False
        place = begin.place
        return place is not None and not self._passed.has(place)

    def lacking(self, rank: int) -> dict[str, tuple[int, int]]:
        """By topic how many events of a transaction have come and how many its END counts, where some have not."""
        end = self.ends[rank - 1]
        # The END of one in the middle of which the connector was restarted says nothing of topics that it had sent before.
        topics, counts = sorted(end.events), self._sent_at_once
        if self._is_interrupted(end):
            topics, counts = sorted({*end.events, *(tp.topic for tp in self._log.runs)}), self._sent_in_parts
        return {topic: counts(topic, end) for topic in topics if not self._has_come(topic, rank)}

    @property
    def uncounted(self) -> frozenset[str]:
        """Topics with events of several transactions that have ended, of which no END counts any."""
        counted = {topic for end in self.ends for topic in end.events}
        others = ((topic, transactions) for topic, transactions in self._new.items() if topic not in counted)
        return frozenset(topic for topic, found in others if sum(each in self._ranks for each in found) > 1)

    def arrived(self, transaction: str) -> int:
        """How many events of a transaction have come."""
        return sum(of_topic.get(transaction, 0) for of_topic in self._new.values())

    def _counted_and_ranked(self, tp: TopicPartition) -> list[int]:
        """Count the events of a partition, and return the ranks of their transactions."""
        new, counted = self._new[tp.topic], self._counted[tp.topic]
        for run in self._events[tp]:
            new[run.transaction] += run.new
            counted[run.transaction] += run.counted
        found = ((self._ranks.get(run.transaction), run) for run in self._events[tp])
        return [self._rank_without_end(run) if rank is None else rank for rank, run in found]

    def _rank_without_end(self, run: Run) -> int:
        passes = self._passed.has(run.place) or self._precedes_topic(run) or self._is_abandoned(run)
        return 0 if passes else self.unranked

    def _rank_of(self, end: End) -> int:
        return self._ranks.get(end.transaction, 0)

    def _seen_ends(self, tp: TopicPartition) -> Iterator[End]:
        """Those of the ENDs of a partition that an earlier look saw, and that are not ahead of anything."""
        seen = self._log.seen.get(tp, self._log.stops[tp])
        return (end for end in self._log.ends[tp] if end.offset < seen and end.transaction not in self._may_be_ahead)

    @cached_property
    def _may_be_ahead(self) -> frozenset[str]:
        """Transactions with an END that may be ahead: any, as a connector that was restarted sends more before the next one."""
        return frozenset(end.transaction for end in self._log.may_be_ahead)

    def _is_read_to_its_end(self, tp: TopicPartition) -> bool:
        """Whether all of a partition of the transaction topic was read that had been written when it was looked at."""
        return tp not in self._log.unread and self._log.stops[tp] >= self._log.written.get(tp, 0)

    def _precedes_topic(self, run: Run) -> bool:
        """Whether it lies before a transaction topic whose beginning was deleted before it was first read."""
        if not (self._is_cut_off and run.place is not None):
            return False
        first = self._first_of_logs.get(run.place.log)
        return first is not None and not run.place.is_after(first)

    @cached_property
    def _first_of_logs(self) -> Mapping[str, Place]:
        """Where the first END of each log commits."""
        places = [end.place for end in reversed(self.ends) if end.place is not None]
        return {place.log: place for place in places}

    def _is_abandoned(self, run: Run) -> bool:
        """Whether the connector has begun anew behind it, by a snapshot that shows what the transaction did."""
        anew = self._began_anew
        return run.position is not None and anew is not None and run.position < anew

    def _has_come(self, topic: str, rank: int) -> bool:
        """Whether all events of a transaction have come, of one topic."""
        if rank <= self._reaches.get(topic, 0):
            return True
        end = self.ends[rank - 1]
        if not self._is_interrupted(end) and self._suffices(topic, rank, self._sent_at_once(topic, end)):
            return True
        if not self._is_interrupted(end) and self._last_ends[end.transaction] is end:
            return False
        return not self._may_show_more(topic, rank) and self._suffices(topic, rank, self._sent_in_parts(topic, end))

    def _sent_at_once(self, topic: str, end: End) -> tuple[int, int]:
        """How many events have come and how many the first END counts: all, unless the connector was restarted before it."""
        return self._new[topic].get(end.transaction, 0), end.events.get(topic, 0)

    def _sent_in_parts(self, topic: str, end: End) -> tuple[int, int]:
        """How many have come of those that the last END counts: of the last part that was sent, which may be none."""
        return self._counted[topic].get(end.transaction, 0), self._last_ends[end.transaction].events.get(topic, 0)

    def _is_interrupted(self, end: End) -> bool:
        """Whether the connector was restarted between the BEGIN of a transaction and its first END."""
        return self._begun[end.transaction] > 1

    def _suffices(self, topic: str, rank: int, arrived_and_wanted: tuple[int, int]) -> bool:
        arrived, wanted = arrived_and_wanted
        lacking = wanted - arrived
        return lacking <= 0 or lacking <= self._unreadable_near(topic, rank)

    def _may_show_more(self, topic: str, rank: int) -> bool:
        """Whether what lies behind the stretch may have events of a transaction."""
        return any(tp.topic == topic and self._furthest.get(tp, 0) <= rank for tp in self._log.unread)

    def _unreadable_near(self, topic: str, rank: int) -> int:
        """Unreadable records where events of a transaction may stand: behind earlier ones, before later ones."""
        return sum(found.near(rank) for tp, found in self._unreadable.items() if tp.topic == topic)

    @cached_property
    def _unreadable(self) -> Mapping[TopicPartition, Unreadable]:
        """Find the unreadable records of the partitions that have some."""
        found = {}
        for tp, runs in self._log.runs.items():
            unreadable = [run for run in runs if run.kind is Kind.UNREADABLE]
            if unreadable:
                found[tp] = Unreadable(unreadable, [*self.ranked(tp)], self.unranked, self._log.stops[tp])
        return found

    def _reaches_of_topics(self) -> Mapping[str, int]:
        """By topic the rank up to which nothing can come any more."""
        reaches: dict[str, int] = {}
        for tp in self._log.starts:
            if tp not in self._log.ends:
                reach = self._reach(tp)
                reaches[tp.topic] = min(reaches.get(tp.topic, reach), reach)
        return reaches

    def _reach(self, tp: TopicPartition) -> int:
        reach = max(self._furthest.get(tp, 0) - 1, 0)
        if tp in self._passed.cut_off:
            # What it shows first may lack its beginning; where it shows nothing, all may be gone.
            nothing_left = len(self.ends) if self._log.reaches_now else 0
            reach = max(reach, next((rank for rank, _ in self.ranked(tp)), nothing_left))
        return reach


_Counts = defaultdict[str, defaultdict[str, int]]


def _begun(log: Log, passed: Passed) -> Counter[str]:
    """How often each transaction was begun before its first END."""
    begun = Counter(passed.begun)
    for tp, begins in log.begins.items():
        ended: dict[str, int] = {}
        for end in log.ends[tp]:
            ended.setdefault(end.transaction, end.offset)
        begun.update(b.transaction for b in begins if b.offset < ended.get(b.transaction, b.offset + 1))
    return begun
