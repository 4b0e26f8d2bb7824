"""Finds which transactions of an offset range have come whole: rules 1 to 5 of `docs/internals/transactions.md`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from lakehold.ingest.transactions.candidate import Candidate
from lakehold.ingest.transactions.columns import Flags, Numbers
from lakehold.ingest.transactions.ranking import Ranking
from lakehold.ingest.transactions.runs import UNREADABLE
from lakehold.model.passed import Passed

_NEVER = np.iinfo(np.int64).max
"""A rank above all."""


class Completeness:
    """Ranks up to which transactions may be taken.

    Args:
        candidate: The offset range.
        passed: What earlier batches took.
        ranking: The ranks of its transactions.
    """

    def __init__(self, candidate: Candidate, passed: Passed, ranking: Ranking) -> None:
        self._candidate = candidate
        self._passed = passed
        self._ranking = ranking
        self._counts = _Counts(candidate, ranking)

    @cached_property
    def complete(self) -> int:
        """Find the rank up to which every transaction is complete."""
        suspicious = np.union1d(self._counts.rank[~self._have_come], np.flatnonzero(self._ranking.interrupted))
        # Only those in which a connector was restarted are gone through: the first other one lacks something.
        return next((rank - 1 for rank in suspicious.tolist() if self._missing(rank)), self._ranking.count)

    @cached_property
    def certain(self) -> int:
        """Find the rank up to which all events were sent that counts do not tell of.

        As many as an END counts may be there without the last part of an interrupted transaction. What an unreadable record is
        taken for may still come, and so may an event without an END of its own.
        """
        excused = self._counts.rank[(self._lacking > 0) & ~self._is_over]
        ranks = np.unique(
            np.concatenate([excused, np.flatnonzero(self._ranking.interrupted), self._ranking.after_open])
        )
        boundaries = self._candidate.boundaries
        sent_ms = np.zeros(self._candidate.transactions + 1, np.int64)
        np.maximum.at(sent_ms, boundaries.transaction, np.where(boundaries.is_end, boundaries.sent_ms, 0))
        is_early = self._candidate.extent.is_early(sent_ms[boundaries.transaction[self._ranking.rows[ranks - 1]]])
        furthest = self._ranking.furthest
        has_all = ranks < furthest.min(initial=_NEVER)
        has_all |= ~is_early & (ranks < furthest[~self._are_fully_read].min(initial=_NEVER))
        return next((rank - 1 for rank in ranks[~has_all].tolist()), self._ranking.count)

    @cached_property
    def in_sight(self) -> int:
        """Find the rank up to which no row of a re-snapshot stands unread: nothing but its rows tells that there is one.

        Its rows were sent before the ENDs after them. So each partition must show a later event, or have been read to where it
        ended after the ENDs were seen. Where nothing can be read yet, nothing is torn.
        """
        candidate = self._candidate
        if not candidate.extent.shown:
            return self._ranking.count
        unread = [tp in candidate.extent.unread - candidate.followed_later for tp in candidate.runs.partitions]
        return int(self._ranking.furthest[np.array(unread, bool)].min(initial=self._ranking.count))

    def lacking(self, rank: int) -> dict[str, tuple[int, int]]:
        """Return by topic how many events of a transaction have come and how many its END counts, where some have not."""
        missing = self._missing(rank)
        if self._ranking.interrupted[rank]:
            counts = [self._sent_in_parts(rank, topic) for topic in missing]
        else:
            counts = [self._counts.at_once(rank, topic) for topic in missing]
        return {self._candidate.topics[topic]: each for topic, each in zip(missing, counts, strict=True)}

    def arrived(self, transaction: int) -> int:
        """Return how many events of a transaction have come."""
        runs = self._candidate.runs
        return int(runs.new[runs.transaction == transaction].sum())

    @property
    def uncounted(self) -> frozenset[str]:
        """Find the topics with events of several transactions that have ended, of which no END counts any."""
        candidate, of_run = self._candidate, self._ranking.of_run
        is_ranked = (of_run > 0) & (of_run <= self._ranking.count)
        topics = candidate.topic_of[candidate.runs.partition]
        return frozenset(
            candidate.topics[topic]
            for topic in np.setdiff1d(topics[is_ranked], self._counts.topic).tolist()
            if len(np.unique(of_run[is_ranked & (topics == topic)])) > 1
        )

    @cached_property
    def _lacking(self) -> Numbers:
        """Count what has not come, where a transaction was sent at once."""
        return self._counts.wanted - self._counts.arrived

    @cached_property
    def _is_over(self) -> Flags:
        """Mark counts of which nothing can come any more."""
        return self._counts.rank <= self._reaches[self._counts.topic]

    @cached_property
    def _have_come(self) -> Flags:
        """Mark counts of which all have come, if the transaction was sent at once."""
        come = self._is_over | (self._lacking <= 0)
        rows = np.flatnonzero(~come)
        come[rows] = self._lacking[rows] <= self._unreadable_near(self._counts.topic[rows], self._counts.rank[rows])
        return come

    def _missing(self, rank: int) -> list[int]:
        """Return the topics of which not all events of a transaction have come."""
        is_of_rank = self._counts.rank == rank
        missing: list[int] = self._counts.topic[is_of_rank & ~self._have_come].tolist()
        row, transaction = self._row_and_transaction(rank)
        if self._ranking.interrupted[rank]:
            # Its END says nothing of topics that had been sent before.
            missing = [*range(len(self._candidate.topics))]
        elif self._ranking.last_end[transaction] == row:
            return missing
        return [topic for topic in missing if rank > self._reaches[topic] and not self._has_last_part(rank, topic)]

    def _has_last_part(self, rank: int, topic: int) -> bool:
        if self._may_show_more_of[topic] <= rank:
            return False
        arrived, wanted = self._sent_in_parts(rank, topic)
        return wanted - arrived <= int(self._unreadable_near(np.array([topic]), np.array([rank]))[0])

    def _sent_in_parts(self, rank: int, topic: int) -> tuple[int, int]:
        """Return how many have come of those that the last END counts: of the last part that was sent, which may be none."""
        candidate = self._candidate
        runs, boundaries = candidate.runs, candidate.boundaries
        _, transaction = self._row_and_transaction(rank)
        of_it = (runs.transaction == transaction) & (candidate.topic_of[runs.partition] == topic)
        of_end = (boundaries.counting == self._ranking.last_end[transaction]) & (boundaries.topic == topic)
        return int(runs.counted[of_it].sum()), int(boundaries.events[of_end].sum())

    def _row_and_transaction(self, rank: int) -> tuple[int, int]:
        row = int(self._ranking.rows[rank - 1])
        return row, int(self._candidate.boundaries.transaction[row])

    @cached_property
    def _are_fully_read(self) -> Flags:
        extent = self._candidate.extent
        return np.array([extent.is_fully_read(tp) for tp in self._candidate.runs.partitions], bool)

    @cached_property
    def _reaches(self) -> Numbers:
        """Find by topic the rank up to which nothing can come any more: each partition shows a later transaction."""
        candidate, furthest = self._candidate, self._ranking.furthest
        reaches = np.maximum(furthest - 1, 0)
        for number, tp in enumerate(candidate.runs.partitions):
            if tp in self._passed.cut_off:
                # What it shows first may lack its beginning; where it shows nothing, all may be gone.
                shown = self._ranking.of_run[candidate.runs.of(number)]
                events = shown[shown >= 0]
                nothing_left = self._ranking.count if candidate.extent.is_all else 0
                reaches[number] = max(reaches[number], events[0] if len(events) else nothing_left)
        return self._lowest_of_topics(reaches, np.ones(len(reaches), bool), 0)

    @cached_property
    def _may_show_more_of(self) -> Numbers:
        """Find by topic the rank from which what was not read may have events."""
        candidate = self._candidate
        is_unread = np.array([tp in candidate.extent.unread for tp in candidate.runs.partitions], bool)
        return self._lowest_of_topics(self._ranking.furthest, is_unread, _NEVER)

    def _lowest_of_topics(self, ranks: Numbers, which: Flags, default: int) -> Numbers:
        """Find by topic the lowest rank of some of its partitions."""
        found = np.full(len(self._candidate.topics), _NEVER)
        np.minimum.at(found, self._candidate.topic_of[which], ranks[which])
        found[found == _NEVER] = default
        return found

    def _unreadable_near(self, topics: Numbers, ranks: Numbers) -> Numbers:
        """Count the unreadable records where events of transactions may stand: after earlier ones, before later ones."""
        found = np.zeros(len(ranks), np.int64)
        for number, unreadable in self._unreadable.items():
            found += np.where(topics == self._candidate.topic_of[number], unreadable.near(ranks), 0)
        return found

    @cached_property
    def _unreadable(self) -> Mapping[int, Unreadable]:
        """Find the unreadable records of the partitions that have some, by their number."""
        runs, ranks = self._candidate.runs, self._ranking.of_run
        found = {}
        for number in np.unique(runs.partition[runs.kind == UNREADABLE]).tolist():
            rows = np.arange(len(ranks))[runs.of(number)]
            unreadable, events = rows[runs.kind[rows] == UNREADABLE], rows[ranks[rows] >= 0]
            found[number] = Unreadable(
                (runs.first[unreadable], runs.records[unreadable]),
                (ranks[events], runs.first[events], runs.last[events]),
                self._ranking.count + 1,
                self._candidate.extent.stops[runs.partitions[number]],
            )
        return found


class _Counts:
    """Pairs of a transaction and a topic that its first END counts, as columns in their order.

    Attributes:
        rank: The rank of the transaction.
        topic: The number of the topic.
        wanted: How many events the END counts.
        arrived: How many have come.
    """

    def __init__(self, candidate: Candidate, ranking: Ranking) -> None:
        runs, boundaries, topics = candidate.runs, candidate.boundaries, max(len(candidate.topics), 1)
        rank_of_row = np.zeros(len(boundaries.offset), np.int64)
        rank_of_row[ranking.rows] = np.arange(1, ranking.count + 1)
        rank = rank_of_row[boundaries.counting]
        self._topics = topics
        self._keys, of_counts = np.unique((rank * topics + boundaries.topic)[rank > 0], return_inverse=True)
        self.rank, self.topic = np.divmod(self._keys, topics)
        self.wanted, self.arrived = np.zeros((2, len(self._keys)), np.int64)
        np.add.at(self.wanted, of_counts, boundaries.events[rank > 0])
        keys = ranking.of_run * topics + candidate.topic_of[runs.partition]
        rows = np.searchsorted(self._keys, keys)
        is_counted = np.append(self._keys, -_NEVER)[rows] == keys
        np.add.at(self.arrived, rows[is_counted], runs.new[is_counted])

    def at_once(self, rank: int, topic: int) -> tuple[int, int]:
        """Return how many events have come and how many the END counts: all, unless the connector was restarted before it."""
        row = int(np.searchsorted(self._keys, rank * self._topics + topic))
        return int(self.arrived[row]), int(self.wanted[row])


class Unreadable:
    """Unreadable records of a partition, among its runs of events. All columns are in the order of offsets.

    Args:
        unreadable: The first offset and the number of records of each of their runs.
        events: The rank, the first and the last offset of each run of events.
        highest: The highest rank that there may be.
        stop: Where the partition was left (exclusive).
    """

    def __init__(
        self, unreadable: tuple[Numbers, Numbers], events: tuple[Numbers, Numbers, Numbers], highest: int, stop: int
    ) -> None:
        rank, first, last = events
        self._first, records = unreadable
        self._records = np.append(0, np.cumsum(records))
        # The last offset of transactions up to each rank, and the first one from each rank on. Rank 0 was taken before.
        until, from_ = np.full(highest + 2, -1), np.full(highest + 2, stop)
        np.maximum.at(until, rank, last)
        until[0] = -1
        np.minimum.at(from_, rank, first)
        self._last_until, self._first_from = np.maximum.accumulate(until), np.minimum.accumulate(from_[::-1])[::-1]

    def near(self, ranks: Numbers) -> Numbers:
        """Count what stands after the events of earlier transactions, and before those of later ones."""
        low = np.searchsorted(self._first, self._last_until[ranks - 1], side="right")
        high = np.searchsorted(self._first, self._first_from[ranks + 1], side="left")
        found: Numbers = self._records[np.maximum(low, high)] - self._records[low]
        return found
