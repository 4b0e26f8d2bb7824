"""A source over topics in memory that is ingested without Spark: tables get offsets, but no rows."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

from lakehold.definitions import Envelope, FormatType, Table
from lakehold.ingest.arriving_records import TableArrival
from lakehold.ingest.batch_report import BatchReport
from lakehold.ingest.deduplicate.snapshots import SnapshotReadEnds
from lakehold.ingest.planning import Planner
from lakehold.ingest.read.kafka import KafkaReader
from lakehold.ingest.read.reader import FetchedOffsets, Limits
from lakehold.ingest.shared_reads import Reading, SharedReads
from lakehold.ingest.side_by_side import Lanes
from lakehold.ingest.source_ingest import Ingesting
from lakehold.ingest.topic import TopicDecoder
from lakehold.ingest.write.apply import TableBatch
from lakehold.ingest.write.batch_effects import BatchIdentity, TableReport
from lakehold.ingest.write.repeats import Snapshots
from lakehold.model.lake_definitions import Entry
from lakehold.model.offsets import OffsetRange, TopicPartition, Watermarks
from lakehold.model.readers import MAIN_READER, Intent, Readers, ReaderState, TableProgress, last_timestamp
from lakehold.state.batch_protocol import BatchStore
from lakehold.state.store import MemoryState
from lakehold.times import now_ms

HOLDER = "me"


class Topics(KafkaReader):
    """Topics of one partition each, in memory.

    Attributes:
        watermarks_of: The existing offsets of each topic, by name.
        ids: Identities that distinguish topics from others of their name.
    """

    def __init__(self, **ends: int) -> None:
        self.watermarks_of = {name: Watermarks(0, end) for name, end in ends.items()}
        self.ids: dict[str, str] = {}

    def fetch_offsets(self, topics: Collection[str], ordered: str | None = None) -> FetchedOffsets:  # noqa: ARG002
        return FetchedOffsets(
            frozenset(topics),
            {TopicPartition(name, 0): watermarks for name, watermarks in self.watermarks_of.items() if name in topics},
            {name: self.ids.get(name, name) for name in self.watermarks_of if name in topics},
            tuple(sorted({*topics} - self.watermarks_of.keys())),
        )

    def record_bytes(self, ranges: Collection[OffsetRange]) -> float:  # noqa: ARG002
        return 1


def table(name: str, topic: str, envelope: Envelope = Envelope.UPSERT) -> Entry[Table]:
    """Return a table of the schema `s`."""
    return Entry(f"id of {name}", Table("s", name, "shop", topic, envelope), "", 0)


@dataclass
class MemorySource:
    """The source `shop` over topics in memory.

    Attributes:
        topics: Its topics.
        tables: The topics of its tables in the schema `s`, by name.
        transaction_topic: Its transaction topic; the model does not read the ENDs in it.
        batch_records: The most messages in a batch.
        idle_ms: The least interval of empty batches.
        turn_s: Time budget of a call.
        store: The store of its readers.
        snapshots: The connector snapshots of its tables, as the connector reports them.
        envelope: The envelope of its tables.
        removed: The repeated snapshots that deleted rows.
        confirm_defined: Raises while a statement drops or changes the source.
    """

    topics: Topics
    tables: dict[str, str]
    transaction_topic: str | None = None
    batch_records: int = 1_000
    idle_ms: int = 0
    turn_s: float | None = None
    store: BatchStore = field(default_factory=lambda: BatchStore(MemoryState()))
    snapshots: Snapshots = field(default_factory=Snapshots)
    envelope: Envelope = Envelope.UPSERT
    removed: list[str | None] = field(default_factory=list)
    confirm_defined: Callable[[], None] = lambda: None

    def ingesting(self) -> Ingesting:
        """Acquire the lease of the source for this process, and return the open source."""
        self.store.acquire("shop", HOLDER, now_ms() + 600_000)
        entries = {f"s.{name}": table(name, topic, self.envelope) for name, topic in self.tables.items()}
        nothing: Any = None
        reads = SharedReads(self.topics, TopicDecoder(FormatType.JSON, None, nothing, 0), self.store.all_readers)
        reads.join("shop", [entry.definition for entry in entries.values()], self.transaction_topic)
        writing = SimpleNamespace(
            errors=SimpleNamespace(forget=lambda *_, **__: None),
            held=SimpleNamespace(begin=lambda _: None),
            tables=_NoTables(),
            remove_stale=lambda *effect: self.removed.append(effect[3].repeated),
        )
        return Ingesting(
            source="shop",
            store=self.store,
            lease=cast("Any", SimpleNamespace(holder=HOLDER)),
            tables=entries,
            transaction_topic=self.transaction_topic,
            planner=Planner(self.topics, Limits(self.batch_records, self.batch_records, record_bytes=1)),
            reading=Reading("shop", reads, Limits(0, 0)),
            applier=OnlyOffsets(),
            writing=cast("Any", writing),
            lanes=Lanes(nothing, nothing, 1),
            object_ids=lambda: {table(name, topic).object_id for name, topic in self.tables.items()},
            snapshots=self.snapshots,
            idle_ms=self.idle_ms,
            turn_s=self.turn_s,
            transaction_timeout_ms=600_000,
            confirm_defined=self.confirm_defined,
            pause=lambda _: None,
        )

    def drain(self) -> list[BatchReport]:
        """Ingest everything that exists, in batches."""
        return list(self.ingesting().drain())

    def abandon_batch(self, reader: str, **ends: int) -> None:
        """Begin a batch that ends at the given offsets of topics, and abandon it."""
        readers = self.readers()
        state = readers[reader]
        end = {**state.position, **{TopicPartition(name, 0): at for name, at in ends.items()}}
        at_ms = max(now_ms(), (last_timestamp(readers) or 0) + 1)
        self.store.begin(Intent("shop", reader, at_ms, end, frozenset(state.tables)), HOLDER)

    def ranges(self, name: str) -> list[tuple[int, int]]:
        """Return the offset ranges that a table was given, batch by batch."""
        tp = TopicPartition(self.tables[name], 0)
        return [(b.start.get(tp, 0), b.end[tp]) for b in self.store.history("shop") if f"s.{name}" in b.tables]

    def readers(self) -> Readers:
        """Return the readers."""
        return self.store.readers("shop")

    def main(self) -> ReaderState:
        """Return the reader `main`."""
        return self.readers()[MAIN_READER]


class _NoTables:
    def table_state(self, _: str) -> None:
        return None


class OnlyOffsets:
    """An `Applier` that gives tables only offsets, and no rows."""

    def prepare(self, arrival: TableArrival, progress: TableProgress) -> None:
        """See `Applier`."""

    def apply(self, batch: TableBatch) -> tuple[TableReport, TableProgress]:
        """See `Applier`."""
        since_ms = batch.progress.since_ms or batch.identity.timestamp_ms
        return TableReport(batch.table.full_name), replace(batch.progress, since_ms=since_ms)

    def finish_snapshot(
        self,
        identity: BatchIdentity,
        table: Table,  # noqa: ARG002
        progress: TableProgress,
        read_ends: SnapshotReadEnds,  # noqa: ARG002
    ) -> TableProgress:
        """See `Applier`."""
        return replace(progress, since_ms=progress.since_ms or identity.timestamp_ms)
