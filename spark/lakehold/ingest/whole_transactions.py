"""Plans batches of whole transactions: a plan within the limits is cut back, or enlarged until a transaction is complete.

Debezium can write a *transaction topic*, which has a BEGIN and an END for each upstream transaction; the END counts the
transaction's events by table. So the planner reads `RECORDS` of that topic, and `HEADERS` of the others: the transaction, the
order and the log position of each event. `transactions/boundary.py` finds in them where the last whole transaction ends; the
rules are in `docs/internals/transactions.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa

from lakehold.errors import UpstreamError
from lakehold.ingest.arriving_records import ArrivingRecords
from lakehold.ingest.envelope.header_columns import Kind
from lakehold.ingest.planning import Planned, Planner, ends_of
from lakehold.ingest.read.edge_records import EDGE_RECORDS, edges
from lakehold.ingest.read.reader import FetchedOffsets, Limits, ReadPlan
from lakehold.ingest.transactions.boundary import Boundary, find_boundary
from lakehold.ingest.transactions.candidate import Candidate, Extent, candidate_of
from lakehold.ingest.transactions.header_reader import Records
from lakehold.ingest.transactions.metadata import RECORDS
from lakehold.ingest.transactions.record_headers import HEADERS, POSITION
from lakehold.ingest.transactions.resnapshot import Resnapshot, shown_by
from lakehold.ingest.transactions.waiting import Incomplete
from lakehold.model.committed_transactions import CommittedTransactions, Replaced
from lakehold.model.high_water_marks import Position
from lakehold.model.offsets import Offsets, TopicPartition, starts
from lakehold.model.readers import ReaderState, TableProgress
from lakehold.times import now_ms


@dataclass(frozen=True)
class WholeTransactions(Planner):
    """The planner of batches for a source with a transaction topic.

    Args:
        records: Reads the transaction topic, and `HEADERS` from raw records.
        topics_of: The topic of each table with a Debezium envelope, whose events are counted.
        driver_limits: Plans within these limits are read in the driver.
        lag_ms: How long a message may be in flight (milliseconds): others that were sent after it may be written so much earlier.
        is_captured: Whether the source captures a database: a re-snapshot contains all tables, and DROP TABLE deletes a topic.
    """

    records: Records
    topics_of: Mapping[str, str]
    driver_limits: Limits
    lag_ms: int
    is_captured: bool

    @property
    def topics(self) -> frozenset[str]:
        """Return the topics whose events are counted."""
        return frozenset(self.topics_of.values())

    def plan(self, state: ReaderState, fetched: FetchedOffsets, arriving: ArrivingRecords) -> Planned:
        """Plan the next batch of `main`, see `Planner.plan`. A transaction larger than the limits enlarges its batch."""
        self._refuse_partitions(fetched)
        committed, limits = _committed(state), self.limits
        first_read = {
            tp for tp, watermarks in fetched.partitions.items() if tp not in state.position and watermarks.earliest > 0
        }
        committed = replace(committed, cut_off=committed.cut_off | first_read)
        while True:
            plan = self.reader.plan(fetched, state.position, limits)
            candidate = self._candidate(plan, fetched, arriving, state, self._shown(state, fetched))
            found = find_boundary(candidate, committed)
            if found.uncounted:
                raise self._uncounted(min(found.uncounted))
            planned = replace(
                self._plan_batch(plan, found, state, fetched),
                is_last=candidate.extent.is_all and not found.is_followed,
                fetch_again_ms=self._fetch_again_ms(found, candidate),
            )
            if planned.has_news or not _may_grow(found, candidate, fetched):
                incomplete = found.incomplete
                came = None if incomplete is None else replace(incomplete, came=_came(incomplete, candidate, fetched))
                return replace(planned, incomplete=came)
            limits = _doubled(limits)

    def plan_again(
        self, state: ReaderState, ends: Offsets, transactions: CommittedTransactions, fetched: FetchedOffsets
    ) -> Planned:
        """Plan a batch again that was begun before, see `Planner.plan_again`."""
        planned = super().plan_again(state, ends, transactions, fetched)
        return self._replacing(planned, transactions)

    def plan_catching_up(
        self, state: ReaderState, main: ReaderState, fetched: FetchedOffsets, limits: Limits, arriving: ArrivingRecords
    ) -> Planned:
        """Plan the next batch of tables that catch up, see `Planner.plan_catching_up`.

        Of partitions that are new to `main`, it takes no more than `main` would have taken.
        """
        if not main.position:
            return self.plan(state, fetched, arriving)
        committed = replace(_committed(state), commits=_committed(main).commits)
        while True:
            plan, own = self._range_of_catching_up(state, main, fetched, limits)
            candidate = self._candidate(plan, own, arriving, state, {})
            # If the position of a transaction is unknown, it is also unknown whether `main` has committed it.
            found = find_boundary(replace(candidate, runs=candidate.runs.with_known_commit), committed)
            planned = self._plan_batch(plan, found, state, own)
            amid_repetition = found.incomplete is not None and found.incomplete.repeats
            if planned.has_news or candidate.extent.is_all or not amid_repetition:
                shown = self._shown(state, own)
                return self._past_resnapshot(
                    planned, replace(candidate, extent=replace(candidate.extent, shown=shown)), state, main
                )
            limits = _doubled(limits)

    def is_ahead(self, state: ReaderState, main: ReaderState) -> bool:
        """Return whether tables that catch up must wait for `main`, see `Planner.is_ahead`.

        They must if `main` has begun again at an earlier commit, as it does after all of its tables left it.
        """
        return bool(main.position) and _committed(state).is_ahead_of(_committed(main))

    def _past_resnapshot(
        self, planned: Planned, candidate: Candidate, state: ReaderState, main: ReaderState
    ) -> Planned:
        """Return the batch with the re-snapshot that `main` took while the tables of `state` were behind it.

        A table was empty then if its topic has come past the re-snapshot without a row of it.
        """
        position = main.transactions.resnapshot
        if not self.is_captured or position is None or position == state.transactions.resnapshot:
            return planned
        resnapshot = Resnapshot(candidate, position, position)
        without_rows = resnapshot.without_rows & (resnapshot.passed | planned.fully_read)
        if not without_rows and not any(_shows(progress, position) for progress in state.tables.values()):
            return planned
        committed = replace(planned.transactions, replaced=Replaced(position, without_rows))
        return self._replacing(replace(planned, transactions=committed), committed)

    def _candidate(
        self,
        plan: ReadPlan,
        fetched: FetchedOffsets,
        arriving: ArrivingRecords,
        state: ReaderState,
        shown: Mapping[str, Position | None],
    ) -> Candidate:
        """Read the records of `plan` as a candidate; a re-snapshot would replace the tables that are `shown`."""
        partitions, ends = [tp for tp in plan.position if tp.topic in fetched.topics], ends_of(fetched)
        begins = {**plan.position, **starts(plan.ranges)}
        topics = self.topics & fetched.topics
        extent = Extent(
            starts={tp: begins[tp] for tp in partitions},
            stops={tp: plan.position[tp] for tp in partitions},
            unread=frozenset(tp for tp in partitions if ends.get(tp, 0) > plan.position[tp]),
            written=fetched.written,
            fetched_ms=fetched.fetched_ms,
            lag_ms=self.lag_ms,
            shown=shown,
            joining=topics - shown.keys() if shown and self.is_captured else frozenset(),
        )
        headers, records = self._read(plan, fetched, arriving, self._loading(state))
        return candidate_of(extent, headers, records, topics, self.records.transaction_topic)

    def _read(
        self, plan: ReadPlan, fetched: FetchedOffsets, arriving: ArrivingRecords, loading: frozenset[str]
    ) -> tuple[pa.Table, pa.Table]:
        """Read `HEADERS` and `RECORDS` of a plan; events are counted in the topics that are read now."""
        if not plan.ranges:
            return HEADERS.empty_table(), RECORDS.empty_table()
        topics, transaction_topic = self.topics & fetched.topics, self.records.transaction_topic
        arriving.read(plan)
        # Of topics that only go on, the sample would be read for nothing.
        snapshots = {} if arriving.are_few else self._snapshots(plan, topics & loading)
        wanted = sorted({r.topic_partition.topic for r in plan.ranges if r.topic_partition not in snapshots})
        work = {topic: partial(arriving.headers, topic) for topic in wanted if topic in topics}
        if transaction_topic in wanted:
            work[transaction_topic] = partial(self._of_transactions, arriving)
        found = arriving.side_by_side(work)
        transactions = found.pop(transaction_topic, None)
        decoded = [*snapshots.values(), *(headers for headers in found.values() if headers is not None)]
        if rest := frozenset(topic for topic, headers in found.items() if headers is None):
            decoded.append(self.records.headers(arriving.raw(rest), rest)[0])
        return (
            pa.concat_tables([HEADERS.empty_table(), *decoded]),
            RECORDS.empty_table() if transactions is None else transactions,
        )

    def _of_transactions(self, arriving: ArrivingRecords) -> pa.Table:
        """Fetch `RECORDS` of the transaction topic."""
        return self.records.headers(arriving.raw([self.records.transaction_topic]), frozenset())[1]

    def _snapshots(self, plan: ReadPlan, topics: frozenset[str]) -> dict[TopicPartition, pa.Table]:
        """Return the partitions that contain many rows of one snapshot, as samples of their ends show, with these `HEADERS`.

        While the connector reads a snapshot it writes nothing else, so that only its rows are between the samples.
        """
        ranges = {r.topic_partition: r for r in plan.ranges if r.topic_partition.topic in topics}
        if not ranges:
            return {}
        raw = edges(self.reader, list(ranges.values()))
        sampled = Counter(zip(raw["topic"].to_pylist(), raw["partition"].to_pylist(), strict=True))
        headers, _ = self.records.headers(raw, topics)
        named = zip(*(headers[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True)
        rows = sorted((TopicPartition(topic, partition), at, row) for row, (topic, partition, at) in enumerate(named))
        found = {}
        for tp, of_partition in groupby(rows, key=itemgetter(0)):
            _, offsets, numbers = zip(*of_partition, strict=True)
            own = headers.take(pa.array(numbers))
            # If a range begins with a gap, there is no sample of its beginning.
            is_whole = (
                offsets[0] < ranges[tp].start_inclusive + EDGE_RECORDS
                and len(offsets) == sampled[tp.topic, tp.partition]
            )
            if is_whole and _are_of_one_snapshot(own):
                found[tp] = own
        return found

    def _loading(self, state: ReaderState) -> frozenset[str]:
        """Return the topics of tables that do not have a complete connector snapshot: in them its rows may follow each other."""
        return frozenset(
            self.topics_of[name]
            for name, progress in state.tables.items()
            if name in self.topics_of and (progress.since_ms is None or not progress.high_water_marks.is_whole)
        )

    def _shown(self, state: ReaderState, fetched: FetchedOffsets) -> Mapping[str, Position | None]:
        """Return the connector snapshots that readable tables show, see `Extent`."""
        readable = (
            (topic, progress.high_water_marks.snapshot)
            for name, progress in state.tables.items()
            if progress.since_ms is not None and (topic := self.topics_of.get(name)) in fetched.topics
        )
        return shown_by((topic, None if shown is None else shown.position) for topic, shown in readable)

    def _replacing(self, planned: Planned, committed: CommittedTransactions) -> Planned:
        """Return the batch with the re-snapshot that it contains completely."""
        if committed.replaced is None:
            return planned
        replaced = committed.replaced if self.is_captured else replace(committed.replaced, without_rows=frozenset())
        return replace(planned, fully_read=planned.fully_read | self.topics, replaced=replaced)

    def _fetch_again_ms(self, found: Boundary, candidate: Candidate) -> int | None:
        """Return when to fetch offsets again, see `Planned`; senders' clocks that are ahead do not count."""
        sent_ms = candidate.boundaries.sent_ms[candidate.boundaries.is_end]
        if found.over_ms is not None:
            sent_ms = np.append(sent_ms, found.over_ms)
        early = sent_ms[candidate.extent.is_early(sent_ms)]
        return min(int(early.max()), now_ms()) + self.lag_ms if found.is_uncertain and len(early) else None

    def _plan_batch(self, plan: ReadPlan, found: Boundary, state: ReaderState, fetched: FetchedOffsets) -> Planned:
        ends = {**plan.position, **found.stops}
        if any(at < plan.position[tp] for tp, at in ends.items()):
            whole = self.reader.plan_to(fetched, state.position, ends)
        else:
            whole = plan
        batch = Planned.of(whole, fetched)
        if plan.remaining == 0:
            # Records after the batch are events of transactions, except in topics that are known to have rows of a snapshot.
            past = {tp: at for tp, at in plan.position.items() if tp.topic not in found.unread_snapshots}
            batch = replace(
                batch, fully_read=fetched.topics - found.unread_snapshots, past_snapshots={**whole.position, **past}
            )
        batch = replace(
            batch,
            transactions=found.committed,
            has_news=any(r.topic_partition.topic != self.records.transaction_topic for r in whole.ranges),
            incomplete=found.incomplete,
            waiting=found.waiting,
        )
        return self._replacing(batch, found.committed)

    def _refuse_partitions(self, fetched: FetchedOffsets) -> None:
        """Raise if the transaction topic has several partitions: BEGINs and ENDs are in order only within one."""
        topic = self.records.transaction_topic
        partitions = sum(tp.topic == topic for tp in fetched.partitions)
        if partitions > 1:
            raise UpstreamError(
                f'transaction topic "{topic}" has several partitions',
                code="transaction-partitions",
                detail=f"Expected 1 partition, found {partitions}: BEGIN and END of transactions are in order only within one.",
                hint="Let the connector write its transactions to a new topic, created with one partition (property "
                "topic.transaction of the connector, kafka-topics --create --partitions 1), and create the source with that; "
                "or create the source without TRANSACTION METADATA TOPIC.",
            )

    def _uncounted(self, topic: str) -> UpstreamError:
        return UpstreamError(
            f'transactions with changes in topic "{topic}" cannot be checked',
            code="transaction-counts",
            detail=f'The transaction topic "{self.records.transaction_topic}" counts changes by table, and no table that it '
            "counts has the name of this topic.",
            hint="Let the connector name topics as it does by itself, prefix.schema.table, and write this topic; or create the "
            "source without TRANSACTION METADATA TOPIC.",
        )


def _committed(state: ReaderState) -> CommittedTransactions:
    """Return the committed transactions of a reader, for its present partitions.

    A topic that returns is read from its beginning.
    """
    committed = state.transactions
    return replace(committed, furthest={tp: event for tp, event in committed.furthest.items() if tp in state.position})


def _shows(progress: TableProgress, resnapshot: Position) -> bool:
    """Return whether a table shows a re-snapshot completely."""
    shown = progress.high_water_marks.snapshot
    return shown is not None and shown.complete and shown.position[:2] == resnapshot[:2]


def _are_of_one_snapshot(headers: pa.Table) -> bool:
    """Return whether records are rows of one snapshot with a known position, perhaps with the last row."""
    first, *others = headers["kind"].to_pylist()
    positions = {*zip(*(headers[name].to_pylist() for name in POSITION), strict=True)}
    is_one = first == Kind.SNAPSHOT and {*others[:-1]} <= {Kind.SNAPSHOT}
    return (
        is_one
        and {*others[-1:]} <= {Kind.SNAPSHOT, Kind.SNAPSHOT_END}
        and len(positions) == 1
        and None not in positions.pop()
    )


def _may_grow(found: Boundary, candidate: Candidate, fetched: FetchedOffsets) -> bool:
    """Return whether records that were not read yet may contain what the batch lacks."""
    extent = candidate.extent
    if (found.incomplete is None and not found.is_uncertain) or extent.is_all:
        return False
    if found.incomplete is None or not found.incomplete.transaction:
        # Events may be missing in any partition.
        return True
    wanted = {candidate.transaction_topic.topic, *found.incomplete.missing, found.incomplete.repeats}
    ends = ends_of(fetched)
    return any(ends.get(tp, 0) > extent.stops[tp] for tp in extent.starts if tp.topic in wanted)


def _came(incomplete: Incomplete, candidate: Candidate, fetched: FetchedOffsets) -> int:
    """Return a number that grows while more of an incomplete transaction arrives, even if not all records were read."""
    ends = {tp: at for tp, at in ends_of(fetched).items() if tp in candidate.runs.partitions}
    if incomplete.repeats:
        return sum(at for tp, at in ends.items() if tp.topic == incomplete.repeats)
    if incomplete.missing:
        # These topics were read completely.
        return sum(arrived for arrived, _ in incomplete.missing.values())
    if not incomplete.transaction or candidate.extent.is_all:
        return incomplete.arrived
    # Before the END, a connector sends only events of this transaction: all new records are its own until another begins.
    return 0 if incomplete.is_followed else sum(ends.values())


def _doubled(limits: Limits) -> Limits:
    return replace(limits, max_records=2 * limits.max_records, max_bytes=2 * limits.max_bytes)
