"""Finds which transactions of an offset range are complete. Pure.

`boundary.py` ends a batch after the lowest of the ranks found here. The numbers of rules, below, are those of
`docs/internals/transactions.md`, which has the terms, too:

    END         Debezium's record in the transaction topic that counts the transaction's events by table
    rank        the number of a transaction in the order of ENDs; 1 is the first that no earlier batch took
    run         consecutive events of one transaction in one partition
    early       of an END: so recent that events sent before it may still be in flight to Kafka
    fully read  of a partition: read to its fetched end, with no record of an open Kafka transaction beyond
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from lakehold.ingest.transactions.candidate import Candidate
from lakehold.ingest.transactions.columns import Flags, Numbers
from lakehold.ingest.transactions.ranking import Ranking
from lakehold.ingest.transactions.runs import UNREADABLE
from lakehold.model.committed_transactions import CommittedTransactions

_NEVER = np.iinfo(np.int64).max
"""A rank above all others."""


class Completeness:
    """The ranks up to which a batch may take the transactions of an offset range, one for each condition.

    A *pair*, below, is a ranked transaction with a topic that its first END counts. It *lacks* events if fewer have arrived than
    the END counts.

    Args:
        candidate: The offset range.
        committed: The transactions that earlier batches have taken.
        ranking: The ranks of the range's transactions.
    """

    def __init__(self, candidate: Candidate, committed: CommittedTransactions, ranking: Ranking) -> None:
        self._candidate = candidate
        self._committed = committed
        self._ranking = ranking
        # A pair is encoded as one number: rank * topics + topic. `_wanted` has the END's count, `_arrived` what was read.
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
        """Find the rank up to which every transaction has all events that its END counts, or lacks only excused ones."""
        suspicious = np.union1d(self._rank[self._is_incomplete & ~self._is_excused], np.flatnonzero(self._is_restarted))
        # `missing` can be empty only if a connector was restarted during the transaction. The loop ends at any other one.
        return next((rank - 1 for rank in suspicious.tolist() if self.missing(rank)), self._ranking.count)

    @cached_property
    def confirmed(self) -> int:
        """Find the rank up to which all doubtful transactions have every message that was sent before their last END.

        Counts do not show whether a doubtful transaction is complete, so each partition must show a later transaction, or be
        fully read while that END is not early. The other transactions do not matter here.
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
    def clear_of_resnapshots(self) -> int:
        """Find the rank up to which no row of a re-snapshot can be unread (rule 11).

        Only its rows show that a re-snapshot exists, and the connector sent them before the ENDs of later transactions. So each
        partition must show an event as late as the END, or be read to an end that was fetched after the ENDs. While no table is
        readable, nobody can see a part of a re-snapshot: then every rank will do.
        """
        candidate = self._candidate
        if not candidate.extent.shown:
            return self._ranking.count
        unread = [tp in candidate.extent.unread - candidate.followed_later for tp in candidate.runs.partitions]
        return int(self._ranking.furthest[np.array(unread, bool)].min(initial=self._ranking.count))

    def missing(self, rank: int) -> dict[str, tuple[int, int]]:
        """Return, for each topic that lacks events of the transaction at a rank, how many have arrived and how many must."""
        if self._is_restarted[rank]:
            counts = dict(self._last_sent(rank))
        else:
            rows = np.flatnonzero((self._rank == rank) & self._is_incomplete & ~self._is_excused)
            columns = (self._topic, self._arrived, self._wanted)
            counts = {
                topic: (arrived, wanted)
                for topic, arrived, wanted in zip(*(c[rows].tolist() for c in columns), strict=True)
            }
        return {self._candidate.topics[topic]: each for topic, each in counts.items() if each[0] < each[1]}

    def _last_sent(self, rank: int) -> Iterator[tuple[int, tuple[int, int]]]:
        """Yield how many events have arrived, and how many the last END counts, by topic, if the connector was restarted.

        After the restart a connector sends all events again, or only the rest. The last END counts what was sent after the
        restart, and these events are in the last run of each partition. If their numbers continue those from before the restart,
        the run has earlier events, too. So the run's length is at least the number that arrived after the restart.
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
            if rank > self._reaches[topic] and topic not in self._excused:
                yield topic, (arrived, wanted)

    def arrived(self, transaction: int) -> int:
        """Return how many events of a transaction (by its number) have arrived, without repeated ones."""
        runs = self._candidate.runs
        return int(runs.new[runs.transaction == transaction].sum())

    @property
    def uncounted(self) -> frozenset[str]:
        """Find the topics that have events of several transactions with an END, although no END counts events of the topic."""
        candidate, of_run = self._candidate, self._ranking.of_run
        is_ranked = (of_run > 0) & (of_run <= self._ranking.count)
        topics = candidate.topic_of[candidate.runs.partition]
        return frozenset(
            candidate.topics[topic]
            for topic in np.setdiff1d(topics[is_ranked], self._topic).tolist()
            if len(np.unique(of_run[is_ranked & (topics == topic)])) > 1
        )

    @cached_property
    def _is_incomplete(self) -> Flags:
        """Mark pairs that lack events which may still arrive."""
        found: Flags = (self._arrived < self._wanted) & (self._rank > self._reaches[self._topic])
        return found

    @cached_property
    def _is_excused(self) -> Flags:
        """Mark pairs whose topic may lack events for ever (rule 7)."""
        found: Flags = np.isin(self._topic, self._excused)
        return found

    @cached_property
    def _is_restarted(self) -> Flags:
        """Mark, by rank, transactions during which the connector was restarted: it may have numbered the rest from 1 again."""
        ranking = self._ranking
        transaction = self._candidate.boundaries.transaction[ranking.rows]
        ends_again = np.append(False, ranking.last_end[transaction] > ranking.rows)
        found = ranking.interrupted.copy()
        found[self._rank[self._is_incomplete & ends_again[self._rank]]] = True
        return found

    @cached_property
    def _is_doubtful(self) -> Flags:
        """Mark, by rank, doubtful transactions: their counts do not show whether they are complete.

        Either a connector was restarted during the transaction, or missing events may be unreadable or gone, or the transaction
        follows a BEGIN without an END. Such a BEGIN may belong to an event that commits by itself (rule 12).
        """
        found = self._is_restarted.copy()
        found[self._ranking.after_open] = True
        found[self._rank[self._is_incomplete & self._is_excused]] = True
        return found

    @cached_property
    def _excused(self) -> Numbers:
        """Find the topics that may lack events for ever: of tables that join, and topics with unreadable records.

        An unreadable record may belong to any of several transactions, so these records are not counted.
        """
        candidate, runs = self._candidate, self._candidate.runs
        joining = [number for number, topic in enumerate(candidate.topics) if topic in candidate.extent.joining]
        unreadable = candidate.topic_of[np.unique(runs.partition[runs.kind == UNREADABLE])]
        return np.union1d(unreadable, np.array(joining, np.int64))

    @cached_property
    def _reaches(self) -> Numbers:
        """Find for each topic the rank up to which no more events can arrive: all its partitions show a later transaction."""
        candidate, ranking = self._candidate, self._ranking
        reaches = np.maximum(ranking.furthest - 1, 0)
        for number, tp in enumerate(candidate.runs.partitions):
            if tp in self._committed.cut_off:
                # The beginning of this partition was deleted: transactions up to the first one that it shows may lack events
                # for ever. If the partition shows none, all of its events may have been deleted.
                shown = ranking.first_of(number)
                nothing_left = ranking.count if candidate.extent.is_all else 0
                reaches[number] = max(reaches[number], nothing_left if shown is None else shown)
        found = np.full(len(candidate.topics), _NEVER)
        np.minimum.at(found, candidate.topic_of, reaches)
        found[found == _NEVER] = 0
        return found
