"""Finds where a batch must end so that it contains whole transactions only. Pure.

`whole_transactions.py` passes the offset range that fits the batch's limits, as a `Candidate`, and cuts the range at the boundary
found here. A batch *takes* a transaction if it contains all of it. The numbers of rules, below, are those of
`docs/internals/transactions.md`, which has the terms, too:

    BEGIN, END  Debezium's records in the transaction topic; an END counts the transaction's events by table
    rank        the number of a transaction in the order of ENDs; 1 is the first that no earlier batch took
    run         consecutive events of one transaction in one partition
    early       of an END: so recent that events sent before it may still be in flight to Kafka
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from lakehold.ingest.transactions.candidate import Candidate
from lakehold.ingest.transactions.columns import Numbers, last_highest
from lakehold.ingest.transactions.completeness import Completeness
from lakehold.ingest.transactions.ids import UNKNOWN
from lakehold.ingest.transactions.ranking import COMMITTED, Ranking
from lakehold.ingest.transactions.resnapshot import Resnapshot, resnapshot_of
from lakehold.ingest.transactions.runs import EVENTS, SNAPSHOT, SNAPSHOT_END, UNREADABLE
from lakehold.ingest.transactions.waiting import Incomplete
from lakehold.model.committed_transactions import CommittedTransactions, FurthestEvent, Replaced
from lakehold.model.log_positions import position_in
from lakehold.model.offsets import Offsets, TopicPartition


@dataclass(frozen=True)
class Boundary:
    """The end of a batch, and what is known about the records after it.

    Args:
        stops: The end offset of each partition (exclusive), including that of the transaction topic.
        committed: The upstream transactions that this batch and earlier ones have taken.
        incomplete: The first transaction, or the re-snapshot, that the batch does not take, and what it lacks; None: nothing
            has to wait.
        is_uncertain: The first transaction after the batch is complete by its counts, but messages that were sent before its END
            may not be read or written yet.
        waiting: Topics with events after the batch.
        unread_snapshots: Topics that may have rows of a connector snapshot after the batch.
        uncounted: Topics whose events no END counts: their names are not those that Debezium gives.
        is_followed: Whether the rest of the range may be another batch: this one ends before a re-snapshot.
        over_ms: When the first message was sent that shows that the re-snapshot after the batch is over (epoch milliseconds);
            None: no message shows it.
    """

    stops: Offsets
    committed: CommittedTransactions
    incomplete: Incomplete | None
    is_uncertain: bool
    waiting: frozenset[str]
    unread_snapshots: frozenset[str]
    uncounted: frozenset[str]
    is_followed: bool = False
    over_ms: int | None = None


def find_boundary(candidate: Candidate, committed: CommittedTransactions) -> Boundary:
    """Find the end of the batch that begins at the start of an offset range.

    Args:
        candidate: The range.
        committed: The transactions that earlier batches have taken.
    """
    resnapshot = resnapshot_of(candidate)
    if resnapshot is None:
        return _Search(candidate, committed).boundary
    return _around(resnapshot, candidate, committed)


def _around(resnapshot: Resnapshot, candidate: Candidate, committed: CommittedTransactions) -> Boundary:
    """Find the boundary in a range that contains a re-snapshot: either before its first row or after its last one.

    The batch takes what lies before the re-snapshot. Otherwise it takes the whole re-snapshot, or waits for the rest of it.
    """
    before = _Search(resnapshot.before(), committed).boundary
    if any(before.stops[tp] > candidate.extent.starts[tp] for tp in candidate.runs.partitions):
        return replace(before, incomplete=None, is_uncertain=False, is_followed=True)
    if resnapshot.is_whole:
        found = _Search(resnapshot.after(), committed).boundary
        replaced = Replaced(resnapshot.position, resnapshot.without_rows)
        unread_snapshots = found.unread_snapshots.difference(candidate.topics)
        committed = replace(found.committed, replaced=replaced, resnapshot=resnapshot.position)
        return replace(found, committed=committed, unread_snapshots=unread_snapshots)
    is_over = resnapshot.over_ms is not None
    return replace(
        before,
        incomplete=None if is_over else Incomplete("", resnapshot.records),
        is_uncertain=is_over,
        waiting=frozenset(tp.topic for tp in resnapshot.begins),
        over_ms=resnapshot.over_ms,
    )


@dataclass(frozen=True)
class _Stop:
    """The end of a batch in one partition.

    Args:
        offset: The end offset (exclusive).
        furthest_event: The event of the partition that is furthest in the upstream's log, among those that this batch and earlier
            ones take; None: there is none.
        repeated: The first run after that event, as a row: the connector sends events again, and has not come as far as before.
            None: it repeats nothing.
    """

    offset: int
    furthest_event: FurthestEvent | None
    repeated: int | None


class _Search:
    """A search for the end of a batch, by ranks: the batch takes all transactions up to a last rank.

    It may take the rows of snapshots in parts: `_around` keeps re-snapshots whole.

    Args:
        candidate: The range.
        committed: The transactions that earlier batches committed.
    """

    def __init__(self, candidate: Candidate, committed: CommittedTransactions) -> None:
        self._candidate = candidate
        self._committed = committed
        self._ranking = Ranking(candidate, committed)
        self._found = Completeness(candidate, committed, self._ranking)
        self._last = min(
            self._found.complete, self._found.confirmed, self._found.clear_of_resnapshots, self._ranking.before_unended
        )
        partitions = candidate.runs.partitions
        self._stop_of: Mapping[TopicPartition, _Stop] = {tp: self._stop(n, tp) for n, tp in enumerate(partitions)}

    @property
    def boundary(self) -> Boundary:
        """Return the boundary that the search found."""
        candidate, found = self._candidate, self._found
        stops = {**candidate.extent.stops, **{tp: stop.offset for tp, stop in self._stop_of.items()}}
        if candidate.transaction_topic in stops:
            stops[candidate.transaction_topic] = self._stop_of_transactions()
        is_uncertain = self._last == min(found.confirmed, found.clear_of_resnapshots) < found.complete
        return Boundary(
            stops=stops,
            committed=self._committed_with_batch(),
            incomplete=self._incomplete(is_uncertain=is_uncertain),
            is_uncertain=is_uncertain,
            waiting=self._topics_after(stops, EVENTS),
            unread_snapshots=self._topics_after(stops, SNAPSHOT, SNAPSHOT_END)
            if candidate.extent.is_all
            else frozenset(tp.topic for tp in candidate.runs.partitions),
            uncounted=found.uncounted,
        )

    def _stop(self, number: int, tp: TopicPartition) -> _Stop:
        """Find where the batch ends in a partition: before the first run that it does not apply, and never inside a repetition.

        After a restart a connector sends some events again. A batch that ended among these could set a table back (rule 5).
        """
        candidate, runs, furthest_event = self._candidate, self._candidate.runs, self._committed.furthest.get(tp)
        rows = np.arange(len(runs.first))[runs.of(number)]
        rank = self._ranking.of_run[rows]
        left = rows[rank > self._last]
        stop = int(runs.first[left[0]]) if len(left) else candidate.extent.stops[tp]
        known = (rank >= 0) & (runs.log[rows] != UNKNOWN) & runs.has_position[rows] & ~self._ranking.is_abandoned[rows]
        known_rows = rows[known & (rows < left[0])] if len(left) else rows[known]
        repeated: int | None = None
        if len(known_rows):
            furthest = self._furthest(known_rows, furthest_event)
            after = known_rows[furthest + 1 :]
            if len(after):
                repeated = int(after[0])
                stop = int(runs.first[repeated])
            if furthest >= 0:
                row = int(known_rows[furthest])
                furthest_event = FurthestEvent(
                    position_in(candidate.logs[runs.log[row]], runs.at[:, row].tolist()), runs.position_of(row)
                )
        return _Stop(self._before_unreadable(number, stop), furthest_event, repeated)

    def _furthest(self, rows: Numbers, furthest_event: FurthestEvent | None) -> int:
        """Find the run that is furthest in the upstream's log, the last one of several, as an index into `rows`.

        Returns -1 if earlier batches were further: `furthest_event` is their furthest event.
        """
        runs, logs = self._candidate.runs, {name: number for number, name in enumerate(self._candidate.logs)}
        columns = [self._ranking.of_run[rows], *runs.at[:, rows], *runs.position[:, rows]]
        before = (
            []
            if furthest_event is None
            else [COMMITTED, *(*furthest_event.commit.at, 0, 0)[: len(runs.at)], *furthest_event.position]
        )
        logs_committed = runs.log[rows][columns[0] == COMMITTED].tolist()
        if furthest_event is not None:
            logs_committed.append(logs.get(furthest_event.commit.log, UNKNOWN))
        if len({*logs_committed}) > 1:
            # Commits in two logs cannot be compared by their log positions: compare the positions of the events alone.
            columns, before = [columns[0], *columns[-4:]], [*before[:1], *before[-4:]]
        if furthest_event is not None:
            columns = [np.append(number, column) for number, column in zip(before, columns, strict=True)]
        return last_highest(columns) - (furthest_event is not None)

    def _before_unreadable(self, number: int, stop: int) -> int:
        """Move the end `stop` of a partition before unreadable records that may belong to a later transaction.

        If this batch took them, that transaction would lack them for ever. Records that were sent before the last END that is
        applied cannot belong to a later transaction.
        """
        ranking, candidate, last = self._ranking, self._candidate, self._last
        if last == ranking.count and not len(ranking.unended):
            return stop
        runs, rows = candidate.runs, candidate.runs.of(number)
        first, rank = runs.first[rows], ranking.of_run[rows]
        last_applied = runs.last[rows][(rank >= 0) & (rank <= last) & (runs.last[rows] < stop)].max(initial=-1)
        until_ms = candidate.boundaries.sent_ms[ranking.rows[last - 1]] if last else -1
        is_left = (
            (runs.kind[rows] == UNREADABLE) & (first > last_applied) & (first < stop) & (runs.sent_ms[rows] >= until_ms)
        )
        return int(first[is_left].min(initial=stop))

    def _stop_of_transactions(self) -> int:
        """Find the end in the transaction topic: before the first BEGIN or END of a transaction that the batch does not apply.

        The next batch reads these BEGINs again. Several BEGINs of one transaction show that the connector was restarted, and a
        BEGIN may stand for a missing END (rule 12). A transaction that began before the last END that is applied, and has no END,
        never ends: its BEGIN is skipped.
        """
        ranking, candidate = self._ranking, self._candidate
        boundaries = candidate.boundaries
        is_left = ranking.of_transaction[boundaries.transaction] > self._last
        is_left[ranking.open_begins] = True
        if self._last:
            is_left[: ranking.rows[self._last - 1]] = False
        return int(boundaries.offset[is_left].min(initial=candidate.extent.stops[candidate.transaction_topic]))

    def _committed_with_batch(self) -> CommittedTransactions:
        """Return the transactions that this batch and earlier ones commit."""
        candidate = self._candidate
        boundaries, applied = candidate.boundaries, self._ranking.rows[: self._last]
        commits = dict(self._committed.commits)
        for number, log in enumerate(candidate.logs):
            in_log = applied[boundaries.log[applied] == number]
            if len(in_log):
                commits[log] = position_in(log, boundaries.at[:, in_log[-1]].tolist()).at
        furthest_events = {
            tp: stop.furthest_event for tp, stop in self._stop_of.items() if stop.furthest_event is not None
        }
        cut_off = frozenset(filter(self._still_shows_its_beginning, self._committed.cut_off))
        furthest = {**self._committed.furthest, **furthest_events}
        return CommittedTransactions(commits, furthest, cut_off, resnapshot=self._committed.resnapshot)

    def _still_shows_its_beginning(self, tp: TopicPartition) -> bool:
        """Return whether a partition stays cut off: the batch does not apply the first transaction that it shows."""
        candidate, ranking, last = self._candidate, self._ranking, self._last
        if tp == candidate.transaction_topic:
            return last == 0
        shown = ranking.first_of(candidate.runs.partitions.index(tp)) if tp in self._stop_of else None
        return not (candidate.extent.is_all and last == ranking.count) if shown is None else shown > last

    def _topics_after(self, stops: Offsets, *kinds: int) -> frozenset[str]:
        """Return the topics that have runs of the given kinds after `stops`."""
        runs = self._candidate.runs
        ends = np.array([stops[tp] for tp in runs.partitions], np.int64)
        after = runs.partition[(runs.last >= ends[runs.partition]) & np.isin(runs.kind, kinds)]
        return frozenset(runs.partitions[number].topic for number in np.unique(after).tolist())

    def _incomplete(self, *, is_uncertain: bool) -> Incomplete | None:
        """Return the first incomplete transaction, for which the source waits, and what it lacks; None: there is none."""
        found, candidate, ranking, last = self._found, self._candidate, self._ranking, self._last
        if last == found.complete and last < ranking.count:
            row = int(ranking.rows[last])
            arrived = found.arrived(int(candidate.boundaries.transaction[row]))
            return Incomplete(candidate.boundaries.id[row].as_py(), arrived, found.missing(last + 1))
        runs, unended = candidate.runs, ranking.unended
        if candidate.extent.is_all:
            # The END of an event that was sent after the end offsets were fetched is not overdue: ignore the event.
            unended = unended[runs.sent_ms[unended] <= candidate.extent.fetched_ms]
        if len(unended):
            # Choose the first one in the upstream's log, so that the report names the same transaction after each fetch.
            return self._incomplete_at(int(unended[last_highest([-column for column in runs.position[:, unended]])]))
        repeated = [(tp, stop.repeated) for tp, stop in sorted(self._stop_of.items()) if stop.repeated is not None]
        if is_uncertain or not repeated:
            return None
        tp, row = repeated[0]
        return self._incomplete_at(row, tp.topic)

    def _incomplete_at(self, row: int, repeats: str = "") -> Incomplete:
        """Return the transaction of a run as the one that waits; `repeats` is the topic in which the connector repeats events."""
        runs, boundaries = self._candidate.runs, self._candidate.boundaries
        transaction = int(runs.transaction[row])
        is_of_it = boundaries.transaction == transaction
        is_followed = bool((np.logical_or.accumulate(is_of_it) & ~is_of_it).any())
        unreadable, begin = self._candidate.unreadable, next(iter(boundaries.offset[is_of_it].tolist()), -1)
        return Incomplete(
            runs.id[row].as_py(),
            self._found.arrived(transaction),
            repeats=repeats,
            is_followed=is_followed,
            unreadable=unreadable[unreadable > begin].tolist(),
        )
