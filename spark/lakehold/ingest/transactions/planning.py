"""Plans of batches that hold whole transactions only: a plan within the bounds, cut; made larger until something is whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from lakehold.errors import UpstreamError
from lakehold.garbage import uncollected
from lakehold.ingest.arriving import Arriving
from lakehold.ingest.planning import Planned, Planner, ends_of
from lakehold.ingest.read.edges import EDGE_RECORDS, edges, tails
from lakehold.ingest.read.reader import Available, Limits, ReadPlan
from lakehold.ingest.transactions.anew import shown_by
from lakehold.ingest.transactions.cut import Blocked, Cut, cut
from lakehold.ingest.transactions.ends import RECORDS, boundaries_of
from lakehold.ingest.transactions.headers import HEADERS
from lakehold.ingest.transactions.log import Kind, Log, with_all_ends
from lakehold.ingest.transactions.records import Found, Records
from lakehold.ingest.transactions.runs import Runs, runs_of
from lakehold.model.marks import Position
from lakehold.model.offsets import OffsetRange, Offsets, TopicPartition, starts
from lakehold.model.passed import Passed
from lakehold.model.places import transaction_of
from lakehold.model.readers import ReaderState
from lakehold.times import now_ms


@dataclass(frozen=True)
class WholeTransactions(Planner):
    """Plans batches of a source with a transaction topic.

    Args:
        records: Looks at records.
        topics_of: By table with a Debezium envelope its topic, of which events are counted.
        driver_limits: Plans within them are looked at in the driver.
        lag_ms: How far a partition may lag behind others that the connector writes.
        snapshots_all: A snapshot that the connector takes anew is of all tables.
    """

    records: Records
    topics_of: Mapping[str, str]
    driver_limits: Limits
    lag_ms: int
    snapshots_all: bool

    @property
    def topics(self) -> frozenset[str]:
        """Those whose events are counted."""
        return frozenset(self.topics_of.values())

    def plan(self, state: ReaderState, available: Available, arriving: Arriving) -> Planned:
        """See `Planner.plan`. A transaction that is larger than a batch makes its batch larger."""
        passed, limits = _passed(state), self.limits
        first_read = {
            tp for tp, marks in available.partitions.items() if tp not in state.position and marks.earliest > 0
        }
        passed = replace(passed, cut_off=passed.cut_off | first_read)
        while True:
            plan = self.reader.plan(available, state.position, limits)
            log = self._log(plan, _begins(plan), available, self._look(plan, available, arriving))
            log = replace(log, shown=self._shown(state, available))
            with uncollected():
                found = cut(log, passed)
            if found.is_uncertain:
                # What was sent before the ENDs that were seen is written by now.
                log = replace(log, written={**self.reader.written_ends(log.runs.keys()), **log.written})
                found = cut(log, passed)
            if found.uncounted:
                raise self._uncounted(sorted(found.uncounted)[0])
            planned = replace(
                self._planned(plan, found, state, available),
                is_last=log.reaches_now and not found.is_followed,
                look_again_ms=self._look_again_ms(found, log),
            )
            if planned.has_news or not _may_grow(found, log, available, self.records.transaction_topic):
                return replace(planned, blocked=self._with_what_came(found.blocked, log, available))
            limits = _doubled(limits)

    def _with_what_came(self, blocked: Blocked | None, log: Log, available: Available) -> Blocked | None:
        """What keeps the source waiting, as far as it has come where not all there is was looked at."""
        if blocked is None or not blocked.transaction:
            return blocked if blocked is None else replace(blocked, came=blocked.arrived)
        ends = {tp: at for tp, at in ends_of(available).items() if tp in log.runs}
        if blocked.repeats:
            return replace(blocked, came=sum(at for tp, at in ends.items() if tp.topic == blocked.repeats))
        if blocked.lacking:
            # Of these topics all was looked at.
            return replace(blocked, came=sum(arrived for arrived, _ in blocked.lacking.values()))
        if log.reaches_now:
            return replace(blocked, came=blocked.arrived)
        # A connector sends nothing else before its END: while more of it comes, it stands at the end of a partition.
        rest = [OffsetRange(tp, log.starts[tp], at) for tp, at in ends.items() if at > log.starts[tp]]
        last = self.records.look(tails(self.reader, rest), self.topics & available.topics)
        transaction = transaction_of(blocked.transaction)
        return replace(
            blocked, came=sum(ends[tp] for tp, runs in last.runs.items() if runs[-1].transaction == transaction)
        )

    def plan_again(self, state: ReaderState, ends: Offsets, transactions: Passed, available: Available) -> Planned:
        """See `Planner.plan_again`."""
        planned = super().plan_again(state, ends, transactions, available)
        return self._replacing(planned, transactions)

    def plan_behind(
        self, state: ReaderState, main: ReaderState, available: Available, limits: Limits, arriving: Arriving
    ) -> Planned:
        """See `Planner.plan_behind`: also of partitions that are new to `main` no more than it would have taken."""
        if not main.position:
            return self.plan(state, available, arriving)
        passed = replace(_passed(state), commits=_passed(main).commits)
        while True:
            plan, own = self._behind(state, main, available, limits)
            runs = self._look(plan, available, arriving).runs
            # Where the place of a transaction is unknown, nobody can tell whether `main` has taken it.
            placed = {tp: [run for run in of_tp if run.place is not None] for tp, of_tp in runs.items()}
            log = self._log(plan, _begins(plan), own, Found(placed))
            found = cut(log, passed)
            planned = self._planned(plan, found, state, own)
            amid_repetition = found.blocked is not None and found.blocked.repeats
            if planned.has_news or log.reaches_now or not amid_repetition:
                return planned
            limits = _doubled(limits)

    def is_ahead(self, state: ReaderState, main: ReaderState) -> bool:
        """See `Planner.is_ahead`: `main` has begun again at an earlier commit, as it does when all of its tables left it."""
        return bool(main.position) and _passed(state).is_ahead_of(_passed(main))

    def _look(self, plan: ReadPlan, available: Available, arriving: Arriving) -> Found:
        """Find what is needed of the records of `plan`; counts are of the topics that are read now."""
        topics = self.topics & available.topics
        if not plan.ranges:
            return Found()
        arriving.read(plan)
        snapshots = {} if arriving.are_few else self._snapshots(plan, topics)
        wanted = sorted({r.topic_partition.topic for r in plan.ranges if r.topic_partition not in snapshots})
        work = {topic: partial(arriving.headers, topic) for topic in wanted if topic in topics}
        if self.records.transaction_topic in wanted:
            work[self.records.transaction_topic] = partial(self._of_transactions, arriving)
        found = arriving.side_by_side(work)
        transactions = found.pop(self.records.transaction_topic, RECORDS.empty_table())
        decoded = [headers for headers in found.values() if headers is not None]
        if rest := frozenset(topic for topic, headers in found.items() if headers is None):
            decoded.append(self.records.headers(arriving.raw(rest), rest)[0])
        with uncollected():
            runs = runs_of(pa.concat_tables([HEADERS.empty_table(), *decoded]))
            boundaries = boundaries_of(transactions, topics, self.records.transaction_topic)
        return Found({**runs, **snapshots}, boundaries)

    def _of_transactions(self, arriving: Arriving) -> pa.Table:
        """Fetch `RECORDS` of the transaction topic."""
        return self.records.headers(arriving.raw([self.records.transaction_topic]), frozenset())[1]

    def _snapshots(self, plan: ReadPlan, topics: frozenset[str]) -> Runs:
        """The partitions of which many rows of one snapshot are read, each as one run, as far as their ends tell.

        While the connector reads a snapshot it writes nothing else, so that nothing else stands in between.
        """
        ranges = {r.topic_partition: r for r in plan.ranges if r.topic_partition.topic in topics}
        sample = edges(self.reader, list(ranges.values()))
        sampled = Counter(zip(sample["topic"].to_pylist(), sample["partition"].to_pylist(), strict=True))
        found: Runs = {}
        for tp, (run, *others) in self.records.look(sample, topics).runs.items():
            last_row = [other for other in others if other.is_last_row and other.position == run.position]
            only = others == last_row and run.records + len(last_row) == sampled[tp.topic, tp.partition]
            start, stop = ranges[tp].start_inclusive, ranges[tp].end_exclusive - len(last_row)
            # Of a range that begins with a gap nothing was sampled there.
            only = only and run.first < start + EDGE_RECORDS
            if only and run.kind is Kind.SNAPSHOT and run.position is not None:
                found[tp] = [replace(run, first=start, last=stop - 1, records=stop - start), *last_row]
        return found

    def _log(self, plan: ReadPlan, begins: Offsets, available: Available, found: Found) -> Log:
        partitions = [tp for tp in plan.position if tp.topic in available.topics]
        of_transactions = [tp for tp in partitions if tp.topic == self.records.transaction_topic]
        log = Log(
            starts={tp: begins[tp] for tp in partitions},
            stops={tp: plan.position[tp] for tp in partitions},
            runs={tp: found.runs.get(tp, ()) for tp in partitions if tp.topic in self.topics},
            begins={tp: found.boundaries.begins.get(tp, ()) for tp in of_transactions},
            ends={tp: found.boundaries.ends.get(tp, ()) for tp in of_transactions},
            unread=_unread(plan, partitions, available),
            seen=available.seen,
            written=available.written,
            # Where no partition ever lags no clock matters.
            arrived_until_ms=available.looked_ms - self.lag_ms if self.lag_ms else None,
        )
        return with_all_ends(log)

    def _shown(self, state: ReaderState, available: Available) -> Mapping[str, Position | None]:
        """See `Log`."""
        readable = (
            (topic, progress.marks.snapshot)
            for name, progress in state.tables.items()
            if progress.since_ms is not None and (topic := self.topics_of.get(name)) in available.topics
        )
        return shown_by((topic, None if shown is None else shown.position) for topic, shown in readable)

    def _replacing(self, planned: Planned, passed: Passed) -> Planned:
        """The batch with what the snapshot taken anew says that it has whole."""
        if passed.replaced is None:
            return planned
        replaced = passed.replaced if self.snapshots_all else replace(passed.replaced, without_rows=frozenset())
        return replace(planned, settled=planned.settled | self.topics, replaced=replaced)

    def _look_again_ms(self, found: Cut, log: Log) -> int | None:
        """See `Planned`; nothing was sent later than now, whatever its sender's clock says."""
        if not found.is_uncertain:
            return None
        sent_ms = [end.sent_ms for end in log.may_be_ahead]
        if found.over_ms is not None and log.arrived_until_ms is not None:
            sent_ms.append(found.over_ms)
        return min(max(sent_ms), now_ms()) + self.lag_ms if sent_ms else None

    def _planned(self, plan: ReadPlan, found: Cut, state: ReaderState, available: Available) -> Planned:
        ends = {**plan.position, **found.stops}
        if any(at < plan.position[tp] for tp, at in ends.items()):
            whole = self.reader.plan_to(available, state.position, ends)
        else:
            whole = plan
        batch = Planned.of(whole, available)
        if plan.remaining == 0:
            # What is left after it are events of transactions, unless it is known to be rows of a snapshot.
            past = {tp: at for tp, at in plan.position.items() if tp.topic not in found.unsettled}
            batch = replace(
                batch, settled=available.topics - found.unsettled, past_snapshots={**whole.position, **past}
            )
        batch = replace(
            batch,
            transactions=found.passed,
            has_news=any(r.topic_partition.topic != self.records.transaction_topic for r in whole.ranges),
            blocked=found.blocked,
            waiting=found.waiting,
        )
        return self._replacing(batch, found.passed)

    def _uncounted(self, topic: str) -> UpstreamError:
        return UpstreamError(
            f'transactions with changes in topic "{topic}" cannot be judged',
            code="transaction-counts",
            detail=f'The transaction topic "{self.records.transaction_topic}" counts changes by table, and no table that it '
            "counts has the name of this topic.",
            hint="Let the connector name topics as it does by itself, prefix.schema.table, and write this topic; or create the "
            "source without TRANSACTION METADATA TOPIC.",
        )


def _passed(state: ReaderState) -> Passed:
    """What a reader has taken, of the partitions that it still has: a topic that comes back is read from its beginning."""
    passed = state.transactions
    return replace(passed, marks={tp: mark for tp, mark in passed.marks.items() if tp in state.position})


def _begins(plan: ReadPlan) -> Offsets:
    """Where each partition of a plan is begun."""
    return {**plan.position, **starts(plan.ranges)}


def _unread(plan: ReadPlan, partitions: Iterable[TopicPartition], available: Available) -> frozenset[TopicPartition]:
    """Partitions with something behind the plan."""
    ends = ends_of(available)
    return frozenset(tp for tp in partitions if ends.get(tp, 0) > plan.position[tp])


def _may_grow(found: Cut, log: Log, available: Available, transaction_topic: str) -> bool:
    """Whether more of what there is may have what the batch lacks."""
    if (found.blocked is None and not found.is_uncertain) or log.reaches_now:
        return False
    wanted = {tp.topic for tp in log.starts} if found.lacks_rows else {transaction_topic}
    if found.blocked is not None:
        wanted |= {*found.blocked.lacking, found.blocked.repeats}
    ends = ends_of(available)
    return any(ends.get(tp, 0) > log.stops[tp] for tp in log.starts if tp.topic in wanted)


def _doubled(limits: Limits) -> Limits:
    return replace(limits, max_records=2 * limits.max_records, max_bytes=2 * limits.max_bytes)
