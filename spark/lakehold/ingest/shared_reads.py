"""A cache that sources over the same topics share when they are ingested together (seed "Dynamic resource sharing").

They fetch end offsets together, so that they read up to the same offsets and reach the same positions. The records of a
topic that one source has read and decoded are kept while another source still needs them. A source at other positions reads
by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow.compute as pc
from pyspark.sql import DataFrame

from lakehold.definitions import Table
from lakehold.errors import LakeholdError
from lakehold.ingest.read.reader import Available, Limits, Reader
from lakehold.ingest.shared_topic import SharedTopic
from lakehold.ingest.topic import TopicDecoder
from lakehold.model.offsets import OffsetRange
from lakehold.model.readers import ReaderState


@dataclass(frozen=True)
class _Joined:
    tables: tuple[Table, ...]
    transaction_topic: str | None

    @property
    def topics(self) -> frozenset[str]:
        of_transactions = [] if self.transaction_topic is None else [self.transaction_topic]
        return frozenset([*(table.topic for table in self.tables), *of_transactions])


@dataclass(frozen=True)
class _Kept:
    ranges: Collection[OffsetRange]
    in_driver: bool
    topic: SharedTopic
    takers: set[str] = field(default_factory=set)


class SharedReads:
    """The end offsets and records that sources of one place fetch and read for each other.

    Args:
        reader: Reads.
        decoder: Turns a topic's records into typed columns.
        states: Returns the readers of all sources: they show which sources will read the same range next.
    """

    def __init__(self, reader: Reader, decoder: TopicDecoder, states: Callable[[], Iterable[ReaderState]]) -> None:
        self.reader = reader
        self.decoder = decoder
        self._states = states
        self._joined: dict[str, _Joined] = {}
        self._fetched = Available(frozenset(), {})
        self._ordered: str | None = None
        self._given: set[str] = set()
        self._fails_together = False
        self._kept: dict[str, _Kept] = {}

    def join(self, source: str, tables: Iterable[Table], transaction_topic: str | None) -> None:
        """Add a source with its tables."""
        self._joined[source] = _Joined(tuple(tables), transaction_topic)

    def leave(self, source: str) -> None:
        """Remove a source, and release what was kept for it."""
        del self._joined[source]
        self.done(source, self._kept)

    def fetch(self, source: str) -> Available:
        """Return the last fetched end offsets, or fetch new ones if `source` has been given these already."""
        own = self._joined[source]
        has_all = own.topics <= self._fetched.topics and own.transaction_topic in (None, self._ordered)
        if source in self._given or not has_all:
            self._fetched = self._fetch(own)
            self._given.clear()
        self._given.add(source)
        return self._fetched.without(self._fetched.topics - own.topics)

    def _fetch(self, own: _Joined) -> Available:
        others = [] if self._fails_together else [*self._joined.values()]
        topics = own.topics.union(*(other.topics for other in others))
        of_transactions = self._transaction_topics() if others else set()
        # With several transaction topics, no order of fetching suits all sources.
        self._ordered = own.transaction_topic or (of_transactions.pop() if len(of_transactions) == 1 else None)
        try:
            return self.reader.fetch_offsets(sorted(topics), self._ordered)
        except LakeholdError:
            if topics == own.topics and self._ordered == own.transaction_topic:
                raise
        # A topic of another source may have failed: from now on each source fetches alone.
        self._fails_together = True
        return self._fetch(own)

    def topics(
        self, source: str, ranges: Iterable[OffsetRange], tables: Sequence[Table], *, in_driver: bool
    ) -> dict[str, SharedTopic]:
        """Return the records of some ranges, by topic: kept ones, or new ones.

        New ones are read for `tables` and for other sources that will read the same ranges. Records are kept until every
        source that takes them is `done`, or other records of their topic are read.
        """
        of_topic: dict[str, list[OffsetRange]] = {}
        for r in ranges:
            if not r.topic_partition.is_internal:
                of_topic.setdefault(r.topic_partition.topic, []).append(r)
        new = {
            topic: own
            for topic, own in of_topic.items()
            if (kept := self._kept.get(topic)) is None or (kept.ranges, kept.in_driver) != (own, in_driver)
        }
        here = self.reader.in_driver([r for own in new.values() for r in own]) if in_driver and new else None
        states = [*self._states()] if new and len(self._joined) > 1 else []
        for topic, own in new.items():
            self._release(topic)
            takers = self._reading_on(topic, own, [state for state in states if state.source != source])
            of_takers = (table for taker in takers for table in self._joined[taker].tables)
            shared = SharedTopic(
                replace(self.decoder, has_heads=bool(self._transaction_topics())),
                partial(self._by_spark, own) if here is None else here.filter(pc.equal(here["topic"], topic)),
                [table for table in (*tables, *of_takers) if table.topic == topic],
            )
            self._kept[topic] = _Kept(own, in_driver, shared, takers)
        for topic in of_topic:
            self._kept[topic].takers.add(source)
        return {topic: self._kept[topic].topic for topic in of_topic}

    def done(self, source: str, topics: Iterable[str]) -> None:
        """Release the records of topics that `source` took, unless another source takes them, too."""
        for topic in [topic for topic in topics if topic in self._kept]:
            self._kept[topic].takers.discard(source)
            if not self._kept[topic].takers:
                self._release(topic)

    def _release(self, topic: str) -> None:
        if topic in self._kept:
            self._kept.pop(topic).topic.release()

    def _by_spark(self, ranges: Collection[OffsetRange]) -> DataFrame:
        return self.reader.dataframe(self.decoder.spark(), ranges)

    def _reading_on(self, topic: str, ranges: Iterable[OffsetRange], states: Iterable[ReaderState]) -> set[str]:
        """Return the sources with a reader among `states` that is at the start of `ranges` of `topic`."""
        begins = {tp: marks.earliest for tp, marks in self._fetched.partitions.items()}
        return {
            state.source
            for state in states
            if (joined := self._joined.get(state.source)) is not None
            and topic in joined.topics
            and all(state.position.get(tp := r.topic_partition, begins.get(tp)) == r.start_inclusive for r in ranges)
        }

    def _transaction_topics(self) -> set[str]:
        return {joined.transaction_topic for joined in self._joined.values() if joined.transaction_topic is not None}


@dataclass(frozen=True)
class Reading:
    """The means of reading the records of a source's batches.

    Args:
        source: Its name.
        shared: Reads and decodes, also for the sources that are ingested together with it.
        driver_limits: Batches within these limits are read in the driver.
    """

    source: str
    shared: SharedReads
    driver_limits: Limits

    @property
    def reader(self) -> Reader:
        """Return the reader of the source's records."""
        return self.shared.reader
