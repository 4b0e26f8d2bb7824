"""Ingesting a source: everything that was there when it was called, new and stopped tables included.

A source has a reader `main` for the tables that are read together, and one for each table that is behind: created while the
source ran, or stopped by an error. Those catch up to where `main` stands, in batches of their own, and join it at identical
offsets; a table whose cause of stopping is gone so recovers by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from lakehold.catalog import readers as decide
from lakehold.catalog.batches import BatchStore
from lakehold.catalog.definitions import Entry
from lakehold.catalog.readers import MAIN_READER, ReaderError, Readers, ReaderState, TableProgress
from lakehold.definitions import Table
from lakehold.errors import LakeholdError, LeaseLost, UpstreamUnavailable
from lakehold.ingest.batch import BatchReport, Running, complete, run_batch
from lakehold.ingest.offsets import Offsets, TopicPartition
from lakehold.ingest.read.checks import faults
from lakehold.ingest.read.lines import file_of
from lakehold.ingest.read.reader import Available, Limits, ReadPlan, Watermarks
from lakehold.times import next_timestamp, now_ms

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ingesting:
    """One source being ingested under a lease.

    Args:
        source: Its name.
        running: What its batches take.
        limits: How large they may be.
        idle_ms: A call that finds nothing to read moves the write frontier at most so often.
    """

    source: str
    running: Running
    limits: Limits
    idle_ms: int

    @property
    def _store(self) -> BatchStore:
        return self.running.store

    @property
    def _owner(self) -> str:
        return self.running.lease.owner

    def drain(self) -> Iterator[BatchReport]:
        """Run the batches that bring every table of the source to what its topics held at the call, one report each.

        A call that finds nothing to read runs one empty batch, which moves the source's write frontier, unless it moved less
        than `idle_ms` ago.
        """
        available = self.running.reader.look(sorted({e.definition.topic for e in self.running.tables.values()}))
        self._change(
            lambda readers: self._identified(with_tables(readers, self.source, self.running.tables), available)
        )
        yield from self._recover(available)
        yield from self._stop_faulty(available)
        for name in [n for n in self._readers() if n != MAIN_READER]:
            yield from self._catch_up(name, available)
        yield from self._drain_main(available)

    def _topic(self, table: str) -> str:
        return self.running.tables[table].definition.topic

    def _readers(self) -> Readers:
        return self._store.readers(self.source)

    def _change(self, apply: Callable[[Readers], Readers]) -> None:
        readers = self._readers()
        if apply(readers) != readers:
            self._store.change_readers(self.source, self._owner, apply)

    def _recover(self, available: Available) -> Iterator[BatchReport]:
        """Bring batches that a crash left open to their commit, with their own offsets and timestamps."""
        for state in self._readers().values():
            if state.intent is None:
                continue
            log.info("going on with batch %s of %s", state.intent.mz_timestamp, self.source)
            plan = self.running.reader.plan_to(available, state.position, state.intent.end)
            yield complete(self.running, state, state.intent, plan, available, now_ms())

    def _stop_faulty(self, available: Available) -> Iterator[BatchReport]:
        """Stop the tables of topics that contradict what was read of them; the others go on."""
        main = self._readers()[MAIN_READER]
        found = faults(available, main.position, main.topic_ids)
        by_file = {topic: error for topic, error in found.items() if topic not in available.topics}
        if by_file:
            raise next(iter(by_file.values()))
        stopped = {name: found[self._topic(name)] for name in main.tables if self._topic(name) in found}
        if not stopped:
            return
        self._change(lambda readers: _split(readers, stopped))
        yield self._stop_report(MAIN_READER, stopped)

    def _catch_up(self, name: str, available: Available) -> Iterator[BatchReport]:
        """Bring one table that is behind to where `main` stands, and let it join."""
        topics = {self._topic(t) for t in self._readers()[name].tables}
        try:
            main = self._readers()[MAIN_READER]
            own = clipped(available, main.position, topics)
            found = faults(own, self._readers()[name].position, self._readers()[name].topic_ids)
            if found:
                raise next(iter(found.values()))
            while True:
                state = self._readers()[name]
                plan = self.running.reader.plan(own, state.position, self.limits)
                if not plan.ranges:
                    break
                report = self._run(state, plan, own)
                yield report
                if report.stopped:
                    return
            self._join(name, own, topics)
        except (LeaseLost, UpstreamUnavailable):
            raise
        except LakeholdError as error:
            stop = ReaderError(error.code, error.message, error.detail, error.hint)
            self._change(lambda readers: {**readers, name: replace(readers[name], error=stop)})
            yield self._stop_report(name, dict.fromkeys(self._readers()[name].tables, error))

    def _join(self, name: str, own: Available, topics: set[str]) -> None:
        def joined(readers: Readers) -> Readers:
            main, joining = readers[MAIN_READER], readers[name]
            position = {**joining.position, **main.position}
            identities = {
                **joining.topic_ids,
                **{t: i for t, i in own.identities.items() if t in topics},
                **main.topic_ids,
            }
            level = {
                **readers,
                MAIN_READER: replace(main, position=position, topic_ids=identities),
                name: replace(joining, position=position, error=None),
            }
            return decide.joined(level, name)

        self._change(joined)

    def _drain_main(self, available: Available) -> Iterator[BatchReport]:
        main = self._readers()[MAIN_READER]
        if not main.tables:
            return
        # Tables that caught up have joined since.
        self._change(lambda readers: self._identified(readers, available))
        own = available.without(available.topics - {self._topic(t) for t in main.tables})
        ran = False
        while True:
            state = self._readers()[MAIN_READER]
            plan = self.running.reader.plan(own, state.position, self.limits)
            if not plan.ranges and (ran or self._moved_lately()):
                return
            report = self._run(state, plan, own)
            ran = True
            yield report
            if report.stopped:
                own = own.without({self._topic(t) for t in report.stopped} - self._topics_of_main())

    def _moved_lately(self) -> bool:
        last_ms = decide.last_timestamp(self._readers())
        return last_ms is not None and now_ms() - last_ms < self.idle_ms

    def _topics_of_main(self) -> set[str]:
        return {self._topic(t) for t in self._readers()[MAIN_READER].tables}

    def _identified(self, readers: Readers, available: Available) -> Readers:
        """Keep what tells each topic of `main` from a later one of its name."""
        main = readers[MAIN_READER]
        own = available.without(available.topics - {self._topic(t) for t in main.tables})
        return {**readers, MAIN_READER: replace(main, topic_ids={**own.identities, **main.topic_ids})}

    def _run(self, state: ReaderState, plan: ReadPlan, available: Available) -> BatchReport:
        timestamp_ms = next_timestamp(decide.last_timestamp(self._readers()))
        return run_batch(self.running, state, plan, available, timestamp_ms)

    def _stop_report(self, reader: str, stopped: Mapping[str, LakeholdError]) -> BatchReport:
        last = decide.last_timestamp(self._readers())
        return BatchReport(self.source, reader, last if last is not None else 0, 0, stopped=stopped)


def with_tables(readers: Readers, source: str, tables: Mapping[str, Entry[Table]]) -> Readers:
    """The readers with every defined table in one of them, and none that is not defined or was defined anew.

    A table of a source that stands nowhere yet joins `main` at once; a later one gets a reader of its own, which begins at its
    topic's earliest offset and stands where `main` stands for everything else.
    """
    found = dict(readers)
    for state in readers.values():
        for name, progress in state.tables.items():
            if name not in tables or progress.object_id != tables[name].object_id:
                found = dict(decide.dropped(found, name))
    found[MAIN_READER] = _pruned(found[MAIN_READER], tables)
    read = {name for state in found.values() for name in state.tables}
    for name, entry in tables.items():
        if name in read:
            continue
        main, new = found[MAIN_READER], {name: TableProgress(object_id=entry.object_id)}
        if not main.position and main.intent is None:
            found[MAIN_READER] = replace(main, tables={**main.tables, **new})
        else:
            topic = entry.definition.topic
            position = {tp: at for tp, at in main.position.items() if tp.topic != topic and file_of(tp) is None}
            found[name] = ReaderState(source, name, tables=new, position=position)
    return found


def _pruned(main: ReaderState, tables: Mapping[str, Entry[Table]]) -> ReaderState:
    """`main` without the topics that no table of it reads any more: one that comes back is read from its beginning."""
    topics = {tables[name].definition.topic for name in main.tables}
    if main.intent is not None:
        return main
    if not topics:
        return replace(main, position={}, topic_ids={})
    return replace(
        main,
        position={tp: at for tp, at in main.position.items() if tp.topic in topics or file_of(tp) is not None},
        topic_ids={t: i for t, i in main.topic_ids.items() if t in topics or file_of(TopicPartition(t, 0)) is not None},
    )


def clipped(available: Available, limit: Offsets, topics: set[str]) -> Available:
    """What a table that catches up reads: its own topics, up to where `main` stands in them."""
    own = available.without(available.topics - topics)
    return replace(
        own,
        partitions={
            tp: Watermarks(marks.earliest, min(marks.end_exclusive, limit.get(tp, marks.end_exclusive)))
            for tp, marks in own.partitions.items()
        },
    )


def _split(readers: Readers, stopped: Mapping[str, LakeholdError]) -> Readers:
    found = readers
    for name, error in stopped.items():
        found = decide.split_off(found, name, ReaderError(error.code, error.message, error.detail, error.hint))
    return found
