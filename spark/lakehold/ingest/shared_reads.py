"""Reads and decodes each topic once for all sources that are ingested together and read it.

These sources fetch end offsets together, so that they read the same ranges and reach the same positions. Records that one source
has read and decoded are cached until every source that reads the same range next has used them. A source at another position
reads for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow.compute as pc
from pyspark.sql import DataFrame

from lakehold.definitions import Table
from lakehold.errors import LakeholdError
from lakehold.ingest.read.reader import FetchedOffsets, Limits, Reader
from lakehold.ingest.shared_topic import SharedTopic
from lakehold.ingest.topic import TopicDecoder
from lakehold.model.offsets import OffsetRange
from lakehold.model.readers import ReaderState


@dataclass(frozen=True)
class _Joined:
    """A source that shares reads: its tables, and its transaction topic if it has one."""

    tables: tuple[Table, ...]
    transaction_topic: str | None

    @property
    def topics(self) -> frozenset[str]:
        of_transactions = [] if self.transaction_topic is None else [self.transaction_topic]
        return frozenset([*(table.topic for table in self.tables), *of_transactions])


@dataclass(frozen=True)
class _Kept:
    """Cached records of one topic.

    Args:
        ranges: The offset ranges that were read.
        in_driver: Whether they were read in the driver, without Spark.
        topic: The records, with the results of decoding them.
        takers: The sources that still need the records.
    """

    ranges: Collection[OffsetRange]
    in_driver: bool
    topic: SharedTopic
    takers: set[str] = field(default_factory=set)


class SharedReads:
    """The end offsets and records that sources of one broker or one directory share.

    Args:
        reader: Fetches end offsets and reads records.
        decoder: Turns a topic's records into typed columns.
        states: Returns the readers of all sources: their positions show which sources will read the same range next.
    """

    def __init__(self, reader: Reader, decoder: TopicDecoder, states: Callable[[], Iterable[ReaderState]]) -> None:
        self.reader = reader
        self.decoder = decoder
        self._states = states
        self._joined: dict[str, _Joined] = {}
        self._fetched = FetchedOffsets(frozenset(), {})
        # The transaction topic whose end was fetched before all others, and the sources that have got the present offsets.
        self._ordered: str | None = None
        self._given: set[str] = set()
        self._fails_together = False
        self._kept: dict[str, _Kept] = {}

    def join(self, source: str, tables: Iterable[Table], transaction_topic: str | None) -> None:
        """Add a source with its tables."""
        self._joined[source] = _Joined(tuple(tables), transaction_topic)

    def leave(self, source: str) -> None:
        """Remove a source, and release records that no other source still needs."""
        del self._joined[source]
        self.done(source, self._kept)

    def fetch(self, source: str) -> FetchedOffsets:
        """Return end offsets of a source's topics.

        The first source that asks fetches them for all sources. Each other source gets the same ones, once; after that,
        asking fetches again.
        """
        own = self._joined[source]
        has_all = own.topics <= self._fetched.topics and own.transaction_topic in (None, self._ordered)
        if source in self._given or not has_all:
            self._fetched = self._fetch(own)
            self._given.clear()
        self._given.add(source)
        return self._fetched.without(self._fetched.topics - own.topics)

    def _fetch(self, own: _Joined) -> FetchedOffsets:
        others = [] if self._fails_together else [*self._joined.values()]
        topics = own.topics.union(*(other.topics for other in others))
        of_transactions = self._transaction_topics() if others else set()
        # The end of a transaction topic must be fetched before all other ends. Only one topic can be first: that of `own`.
        self._ordered = own.transaction_topic or (of_transactions.pop() if len(of_transactions) == 1 else None)
        try:
            return self.reader.fetch_offsets(sorted(topics), self._ordered)
        except LakeholdError:
            if topics == own.topics and self._ordered == own.transaction_topic:
                raise
        # The error may be about a topic of another source: from now on each source fetches only its own topics.
        self._fails_together = True
        return self._fetch(own)

    def topics(
        self, source: str, ranges: Iterable[OffsetRange], tables: Sequence[Table], *, in_driver: bool
    ) -> dict[str, SharedTopic]:
        """Return the records of offset ranges, by topic: from the cache, or read now.

        Records that are read now serve `tables`, and the tables of other sources that will read the same ranges next. The cache
        keeps a topic's records until all these sources have called `done`, or until other ranges of the topic are read.
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
        """Release the records of topics that `source` has used, unless another source still needs them."""
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
        """Return the sources that will read `ranges` of `topic` next: one of their readers in `states` is at the start."""
        begins = {tp: watermarks.earliest for tp, watermarks in self._fetched.partitions.items()}
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
    """A source's access to the shared reads.

    Args:
        source: The source's name.
        shared: Reads and decodes, for this source and for those that are ingested together with it.
        driver_limits: Batches within these limits are read in the driver, without Spark.
    """

    source: str
    shared: SharedReads
    driver_limits: Limits

    @property
    def reader(self) -> Reader:
        """Return the reader of the source's records."""
        return self.shared.reader
