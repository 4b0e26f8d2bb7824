"""Finds which transactions of an offset range are complete (`docs/internals/transactions.md`). Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from lakehold.ingest.transactions.candidate import Candidate
from lakehold.ingest.transactions.columns import Flags, Numbers
from lakehold.ingest.transactions.ranking import Ranking
from lakehold.ingest.transactions.runs import UNREADABLE
from lakehold.model.passed import Passed

_NEVER = np.iinfo(np.int64).max
"""A rank above all others."""


class Completeness:
    """The ranks up to which transactions may be taken.

    Args:
        candidate: The offset range.
        passed: The transactions that earlier batches committed.
        ranking: The ranks of the range's transactions.
    """

    def __init__(self, candidate: Candidate, passed: Passed, ranking: Ranking) -> None:
        self._candidate = candidate
        self._passed = passed
        self._ranking = ranking
        # Each pair of a transaction and a topic that its first END counts is encoded as one number.
        runs, boundaries, self._topics = candidate.runs, candidate.boundaries, max(len(candidate.topics), 1)
        rank_of_row = np.zeros(len(boundaries.offset), np.int64)
        rank_of_row[ranking.rows] = np.arange(1, ranking.count + 1)
        rank = rank_of_row[boundaries.counting]
        self._pairs, of_counts = np.unique((rank * self._topics + boundaries.topic)[rank > 0], return_inverse=True)
        self._rank, self._topic = np.divmod(self._pairs, self._topics)
        self._wanted, self._arrived = np.zeros((2, len(self._pairs)), np.int64)
        np.add.at(self._wanted, of_counts, boundaries.events[rank > 0])
        pairs = ranking.of_run * self._topics + candidate.topic_of[runs.partition]
        found = np.searchsorted(self._pairs, pairs)
        is_counted = np.append(self._pairs, -_NEVER)[found] == pairs
        np.add.at(self._arrived, found[is_counted], runs.new[is_counted])

    @cached_property
    def complete(self) -> int:
        """Find the rank up to which every transaction has all events that its END counts."""
        suspicious = np.union1d(self._rank[self._lacks & ~self._is_excused], np.flatnonzero(self._is_restarted))
        # This loop passes only transactions in which a connector was restarted: the first other one lacks something.
        return next((rank - 1 for rank in suspicious.tolist() if self.lacking(rank)), self._ranking.count)

    @cached_property
    def certain(self) -> int:
        """Find the rank up to which all messages sent before the ENDs have arrived.

        Only transactions whose counts do not show that they are complete matter for it.
        """
        ranks = np.flatnonzero(self._is_doubtful)
        boundaries, ranking, extent = self._candidate.boundaries, self._ranking, self._candidate.extent
        last_ends = ranking.last_end[boundaries.transaction[ranking.rows[ranks - 1]]]
        partitions, furthest = self._candidate.runs.partitions, ranking.furthest
        are_fully_read = np.array([extent.is_fully_read(tp) for tp in partitions], bool)
        has_all = ranks < furthest.min(initial=_NEVER)
        has_all |= ~extent.is_early(boundaries.sent_ms[last_ends]) & (
            ranks < furthest[~are_fully_read].min(initial=_NEVER)
        )
        return int(ranks[~has_all].min(initial=ranking.count + 1)) - 1

    @cached_property
    def in_sight(self) -> int:
        """Find the rank up to which no row of a re-snapshot can be unread: only its rows show that it exists.

        Its rows were sent before the ENDs after them. So each partition must show a later event, or be read to its end as of
        after the ENDs were seen. If no table is readable yet, no read can see a part of a re-snapshot.
        """
        candidate = self._candidate
        if not candidate.extent.shown:
            return self._ranking.count
        unread = [tp in candidate.extent.unread - candidate.followed_later for tp in candidate.runs.partitions]
        return int(self._ranking.furthest[np.array(unread, bool)].min(initial=self._ranking.count))

    def lacking(self, rank: int) -> dict[str, tuple[int, int]]:
        """Return for each topic that lacks events of a transaction how many have arrived, and how many its END counts."""
        if self._is_restarted[rank]:
            counts = dict(self._last_sent(rank))
        else:
            rows = np.flatnonzero((self._rank == rank) & self._lacks & ~self._is_excused)
            columns = (self._topic, self._arrived, self._wanted)
            counts = {
                topic: (arrived, wanted)
                for topic, arrived, wanted in zip(*(c[rows].tolist() for c in columns), strict=True)
            }
        return {self._candidate.topics[topic]: each for topic, each in counts.items() if each[0] < each[1]}

    def _last_sent(self, rank: int) -> Iterator[tuple[int, tuple[int, int]]]:
        """Yield what `lacking` returns for a transaction during which the connector was restarted, by its last END.

        The last END counts all events if the connector sent them again, otherwise those it had not sent before. These are in
        the last run of each partition. Where that run is not in order it contains some that were sent before, but no fewer
        have arrived.
        """
        runs, boundaries, ranking = self._candidate.runs, self._candidate.boundaries, self._ranking
        transaction = boundaries.transaction[ranking.rows[rank - 1]]
        rows = np.flatnonzero(runs.transaction == transaction)
        partition, last = np.unique(runs.partition[rows][::-1], return_index=True)
        of_end = boundaries.counting == ranking.last_end[transaction]
        for topic, wanted in zip(boundaries.topic[of_end].tolist(), boundaries.events[of_end].tolist(), strict=True):
            arrived = sum(
                max(int(runs.new[rows][runs.partition[rows] == number].sum()), int(runs.records[rows[-1 - row]]))
                for number, row in zip(partition, last, strict=True)
                if self._candidate.topic_of[number] == topic
            )
            if rank > self._reaches[topic] and topic not in self._unreadable:
                yield topic, (arrived, wanted)

    def arrived(self, transaction: int) -> int:
        """Return how many events of a transaction have arrived."""
        runs = self._candidate.runs
        return int(runs.new[runs.transaction == transaction].sum())

    @property
    def uncounted(self) -> frozenset[str]:
        """Find the topics with events of several ended transactions, none of which an END counts."""
        candidate, of_run = self._candidate, self._ranking.of_run
        is_ranked = (of_run > 0) & (of_run <= self._ranking.count)
        topics = candidate.topic_of[candidate.runs.partition]
        return frozenset(
            candidate.topics[topic]
            for topic in np.setdiff1d(topics[is_ranked], self._topic).tolist()
            if len(np.unique(of_run[is_ranked & (topics == topic)])) > 1
        )

    @cached_property
    def _lacks(self) -> Flags:
        """Mark pairs with missing events that may still arrive."""
        found: Flags = (self._arrived < self._wanted) & (self._rank > self._reaches[self._topic])
        return found

    @cached_property
    def _is_excused(self) -> Flags:
        """Mark pairs that may lack unreadable events: one unreadable record may stand for events of several transactions."""
        found: Flags = np.isin(self._topic, self._unreadable)
        return found

    @cached_property
    def _is_restarted(self) -> Flags:
        """Mark, by rank, transactions during which the connector was restarted and may have numbered the rest from 1."""
        ranking = self._ranking
        transaction = self._candidate.boundaries.transaction[ranking.rows]
        ends_again = np.append(False, ranking.last_end[transaction] > ranking.rows)
        found = ranking.interrupted.copy()
        found[self._rank[self._lacks & ends_again[self._rank]]] = True
        return found

    @cached_property
    def _is_doubtful(self) -> Flags:
        """Mark, by rank, transactions whose counts do not show whether they are complete.

        A connector was restarted during the transaction; or it lacks events that may be unreadable; or it comes after a
        BEGIN without an END, which may belong to an event that commits by itself.
        """
        found = self._is_restarted.copy()
        found[self._ranking.after_open] = True
        found[self._rank[self._lacks & self._is_excused]] = True
        return found

    @property
    def _unreadable(self) -> Numbers:
        """Find the topics with unreadable records."""
        runs = self._candidate.runs
        found: Numbers = self._candidate.topic_of[np.unique(runs.partition[runs.kind == UNREADABLE])]
        return found

    @cached_property
    def _reaches(self) -> Numbers:
        """Find for each topic the rank up to which nothing more can arrive: each partition shows a later transaction."""
        candidate, ranking = self._candidate, self._ranking
        reaches = np.maximum(ranking.furthest - 1, 0)
        for number, tp in enumerate(candidate.runs.partitions):
            if tp in self._passed.cut_off:
                # The first transaction that it shows may lack its beginning; if it shows none, all of its events may be deleted.
                shown = ranking.first_of(number)
                nothing_left = ranking.count if candidate.extent.is_all else 0
                reaches[number] = max(reaches[number], nothing_left if shown is None else shown)
        found = np.full(len(candidate.topics), _NEVER)
        np.minimum.at(found, candidate.topic_of, reaches)
        found[found == _NEVER] = 0
        return found
