"""Opens sources for ingesting, from a lake's definitions.

Sources that read the same topics of the same broker or directory share reads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from lakehold.definitions import Source, Table
from lakehold.errors import DefinitionError, LakeholdError
from lakehold.iceberg.data_tables import DataTables
from lakehold.ingest.batch_report import BatchReport
from lakehold.ingest.envelope.upstream_columns import UpstreamColumns, UpstreamColumnsOf, no_columns
from lakehold.ingest.pending import pending_messages, unread_offsets
from lakehold.ingest.planning import Planner
from lakehold.ingest.read.files import FilesReader
from lakehold.ingest.read.kafka import KafkaReader
from lakehold.ingest.read.offset_checks import topic_refused
from lakehold.ingest.read.reader import Limits, Reader
from lakehold.ingest.several_sources import Leased, Progressed, drain_together
from lakehold.ingest.shared_reads import Reading, SharedReads
from lakehold.ingest.side_by_side import Lanes
from lakehold.ingest.source_ingest import Ingesting
from lakehold.ingest.topic import TopicDecoder
from lakehold.ingest.transactions.header_reader import Records
from lakehold.ingest.whole_transactions import WholeTransactions
from lakehold.ingest.write.apply import Applier, IcebergApplier
from lakehold.ingest.write.error_records import ErrorRecords
from lakehold.ingest.write.repeats import Snapshots
from lakehold.ingest.write.writing import HeldHistory, Writing
from lakehold.kafka.connection_options import kafka_options
from lakehold.model.lake_definitions import DefinitionReader, Definitions, Entry
from lakehold.model.readers import MAIN_READER, ReaderState
from lakehold.model.shared_sources import place_of, topics_of
from lakehold.secrets import resolve
from lakehold.settings import Settings
from lakehold.state.batch_protocol import BatchStore
from lakehold.state.lease import HeldLease, leased
from lakehold.times import now_ms

if TYPE_CHECKING:
    # The registry's client takes a second to import, which sources without a registry do not need.
    from lakehold.kafka.registry import Registry

_READ_TASKS = max(4, os.cpu_count() or 1)
"""Least number of tasks of a large read, so that one large partition uses all cores; each writes a file per bucket."""


class Captured(Protocol):
    """The interface to the upstream objects of sources that capture a database."""

    def reconcile(self, source: str, /) -> int | None:
        """Reconcile the upstream objects with the definitions, and restart failed connectors.

        Returns:
            See `ReaderState.seen_upstream_ms`; None: the database was not inspected.
        """

    def confirm_defined(self, source: str, /) -> None:
        """Raise if the source was dropped, or another process changes it: missing upstream objects are no fault then."""

    def snapshots(self, source: str, /) -> Snapshots:
        """Return the state of the tables' connector snapshots as upstream reports it."""

    def columns_of(self, source: str, table: Table, /) -> UpstreamColumns:
        """Return the columns of a table in the database."""

    def snapshot_again(self, source: str, table: Table, /) -> None:
        """Have the connector snapshot one table again: its rows have values that no message shows."""


@dataclass(frozen=True)
class Opening:
    """The builder of everything that ingests a lake's sources.

    Args:
        settings: Limits and timeouts.
        definitions: The definitions.
        store: The store of intents and commits.
        tables: Reads a table's metadata.
        history: Keeps the history that holds need.
        captured: Returns the upstream objects.
        lanes: Provide sessions, the first of which takes seconds to start.
        applier: Makes the applier of changes.
    """

    settings: Settings
    definitions: DefinitionReader
    store: BatchStore
    tables: DataTables
    history: HeldHistory
    captured: Callable[[], Captured]
    lanes: Lanes
    applier: Callable[[Writing], Applier] = IcebergApplier

    def leased(self, source: str, idle_ms: int = 0, turn_s: float | None = None) -> AbstractContextManager[Ingesting]:
        """Hold the lease of one source until the context ends.

        Args:
            source: Its name.
            idle_ms: See `Ingesting`.
            turn_s: See `Ingesting`.

        Raises:
            DefinitionError: The source does not exist, or it has no tables.
            SourceBusy: Another process has it.
        """
        return self._holding(idle_ms, turn_s)(source)

    def drain_together(
        self, sources: Sequence[str], *, idle_ms: int = 0, turn_s: float | None = None
    ) -> Generator[Progressed, None, None]:
        """Ingest several sources: see `lakehold.ingest.several_sources`.

        Callers with `idle_ms` poll: for them, sources with nothing to do are left out.
        """
        names = [name for name in dict.fromkeys(sources) if not idle_ms or not self._is_idle(name, idle_ms)]
        return drain_together(names, self._holding(idle_ms, turn_s))

    def pending(self, source: str) -> int:
        """Return about how many messages an ingest of a source will read; 0: it does no more than move the write frontier.

        Raises:
            DefinitionError: The source does not exist.
            UpstreamError: Its broker or directory, or one of its topics, cannot be read.
        """
        defined = self.definitions.definitions()
        of, tables = defined.source(source), defined.tables_of(source)
        of_transactions = [] if of.transaction_topic is None else [of.transaction_topic]
        fetched = self._reader(of, defined).fetch_offsets(sorted({*topics_of(source, defined), *of_transactions}))
        for topic in sorted(fetched.refused):
            raise topic_refused(topic, fetched)
        return pending_messages(self.store.readers(source), tables, fetched)

    def unread(self, source: str, defined: Definitions, readers: Iterable[ReaderState]) -> dict[str, int]:
        """Return for each table of a source how many offsets of its topic it has not read.

        Args:
            source: The source.
            defined: The definitions of the lake.
            readers: The readers of all sources.

        Raises:
            UpstreamError: The broker or directory of the source cannot be read.
        """
        fetched = self._reader(defined.source(source), defined).fetch_offsets(sorted(topics_of(source, defined)))
        of_source = (reader for reader in readers if reader.source == source)
        return unread_offsets(of_source, defined.tables_of(source), fetched)

    def _is_idle(self, source: str, idle_ms: int) -> bool:
        """Return whether an ingest of a source would find nothing to do: this costs no lease, and so no commit."""
        main = self.store.readers(source).get(MAIN_READER)
        if main is None or main.upper_ms is None or now_ms() >= main.upper_ms - 1 + idle_ms:
            return False
        try:
            return not self.pending(source)
        except LakeholdError:
            # The ingest itself reports it.
            return False

    def fill(self, source: str, tables: Collection[str]) -> Generator[BatchReport, None, None]:
        """Bring some tables of a source in sync with the others: see `Ingesting.fill`; raises as `leased` does."""
        with self.leased(source) as ingesting:
            yield from ingesting.fill(tables)

    def _holding(self, idle_ms: int, turn_s: float | None) -> Leased:
        """Return a function that holds sources; it lets sources of one broker or directory share reads."""
        defined = self.definitions.definitions()
        at_place: dict[Hashable, SharedReads] = {}

        @contextmanager
        def hold(name: str) -> Iterator[Ingesting]:
            _tables(name, defined)
            with leased(self.store, name, self.settings) as lease:
                # The former lease holder may have read for tables that were created meanwhile: read the definitions again.
                now = self.definitions.definitions()
                source = now.source(name)
                place = place_of(source, now)
                shared = at_place[place] = at_place.get(place) or self._shared(source, now)
                ingesting = self._built(source, now, shared, lease)
                shared.join(name, [entry.definition for entry in ingesting.tables.values()], source.transaction_topic)
                try:
                    yield replace(ingesting, idle_ms=idle_ms, turn_s=turn_s)
                finally:
                    shared.leave(name)

        return hold

    def _built(self, source: Source, defined: Definitions, shared: SharedReads, lease: HeldLease) -> Ingesting:
        """Build everything that ingests a source: the collaborators of its batches, in the order in which they work."""
        settings, name = self.settings, source.name
        tables, snapshots, seen_upstream_ms = _tables(name, defined), Snapshots(), None
        columns_of: UpstreamColumnsOf = no_columns
        if source.capture is not None:
            seen_upstream_ms = self.captured().reconcile(name)
            tables, snapshots = self._captured(name, tables)
            columns_of = partial(self.captured().columns_of, name)
        driver_limits = Limits(settings.driver_read_max_records, settings.driver_read_max_bytes)
        writing = Writing(
            spark=self.lanes.spark,
            catalog_name=settings.catalog_name,
            buckets=settings.buckets,
            tables=self.tables,
            confirm_lease=lease.confirm,
            held=self.history,
            errors=ErrorRecords(self.lanes.spark, settings.catalog_name, self.tables),
            snapshot_again=lambda table: self.captured().snapshot_again(name, table),
        )
        return Ingesting(
            source=name,
            store=self.store,
            lease=lease,
            tables=tables,
            transaction_topic=source.transaction_topic,
            planner=self._planner(source, tables, shared, driver_limits),
            reading=Reading(name, shared, driver_limits),
            applier=self.applier(writing),
            writing=writing,
            lanes=self.lanes,
            object_ids=lambda: {entry.object_id for entry in self.definitions.definitions().tables_of(name)},
            snapshots=snapshots,
            seen_upstream_ms=seen_upstream_ms,
            columns_of=columns_of,
            transaction_timeout_ms=settings.transaction_timeout_ms,
            confirm_defined=lambda: self.captured().confirm_defined(name),
        )

    def _captured(self, source: str, tables: Mapping[str, Entry[Table]]) -> tuple[dict[str, Entry[Table]], Snapshots]:
        """Return the tables that can be read, and the state of their connector snapshots.

        A table that a statement is just creating waits for the next ingest: its topic is still empty, which would count as
        complete.
        """
        snapshots = self.captured().snapshots(source)
        coming = snapshots.unrequested
        if coming:
            coming -= {p.object_id for state in self.store.readers(source).values() for p in state.tables.values()}
        made = {name: entry for name, entry in tables.items() if entry.object_id not in coming}
        return made, snapshots

    def _planner(
        self, source: Source, tables: Mapping[str, Entry[Table]], shared: SharedReads, driver_limits: Limits
    ) -> Planner:
        """Build the planner for batches of `source`."""
        settings, options = self.settings, source.options
        limits = Limits(
            int(str(options.get("max_records", settings.max_batch_records))),
            int(str(options.get("max_bytes", settings.max_batch_bytes))),
        )
        if source.transaction_topic is None:
            return Planner(shared.reader, limits)
        registry, max_bytes = shared.decoder.registry, settings.max_record_bytes
        records = Records(source.transaction_topic, source.format.type, registry, self.lanes.spark, max_bytes)
        definitions = (entry.definition for entry in tables.values())
        return WholeTransactions(
            shared.reader,
            limits,
            records,
            {table.full_name: table.topic for table in definitions if table.envelope.has_positions},
            driver_limits,
            settings.transaction_lag_ms,
            is_captured=source.capture is not None,
        )

    def _shared(self, source: Source, defined: Definitions) -> SharedReads:
        """Build the reads that a source shares with others of its place."""
        registry = self._registry(source, defined)
        decoder = TopicDecoder(source.format.type, registry, self.lanes.spark, self.settings.max_record_bytes)
        return SharedReads(self._reader(source, defined), decoder, self.store.all_readers)

    def _reader(self, source: Source, defined: Definitions) -> Reader:
        if source.path is not None:
            return FilesReader(source.path, parallelism=_READ_TASKS)
        options = resolve(defined.connection(source.connection).options) if source.connection is not None else {}
        timeout_s = self.settings.upstream_timeout_ms / 1000
        return KafkaReader(kafka_options(options), timeout_s=timeout_s, parallelism=_READ_TASKS)

    def _registry(self, source: Source, defined: Definitions) -> Registry | None:
        if source.format.registry is None:
            return None
        from lakehold.kafka.registry import registry_of  # noqa: PLC0415 - see above

        connection = defined.connection(source.format.registry)
        return registry_of(resolve(connection.options), timeout_s=self.settings.upstream_timeout_ms / 1000)


def _tables(source: str, defined: Definitions) -> dict[str, Entry[Table]]:
    reads = "TOPIC" if defined.source(source).capture is None else "TABLE"
    tables = {entry.definition.full_name: entry for entry in defined.tables_of(source)}
    if not tables:
        raise DefinitionError(
            f'source "{source}" has no tables',
            code="source-without-tables",
            hint=f"Add one: CREATE TABLE namespace.name FROM SOURCE {source} ({reads} '…') ENVELOPE …",
        )
    return tables
