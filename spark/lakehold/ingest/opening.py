"""From a lake's definitions to what ingests its sources. Those that read the same topics of the same place share a reader."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from lakehold.definitions import Source, Table
from lakehold.errors import DefinitionError
from lakehold.iceberg.data_tables import DataTables
from lakehold.ingest.batch import BatchReport
from lakehold.ingest.planning import Planner
from lakehold.ingest.read.files import FilesReader
from lakehold.ingest.read.kafka import KafkaReader
from lakehold.ingest.read.reader import Limits, Reader
from lakehold.ingest.run import Ingesting
from lakehold.ingest.shared_reads import Reading, SharedReads
from lakehold.ingest.side_by_side import Lanes
from lakehold.ingest.together import Held, Progressed, drain_together
from lakehold.ingest.topic import TopicDecoder
from lakehold.ingest.transactions.records import Records
from lakehold.ingest.whole_transactions import WholeTransactions
from lakehold.ingest.write.apply import Applier, IcebergApplier
from lakehold.ingest.write.empty_tables import UpstreamColumns, UpstreamColumnsOf, no_columns
from lakehold.ingest.write.error_records import ErrorRecords
from lakehold.ingest.write.repeats import Snapshots
from lakehold.ingest.write.writing import HeldHistory, Writing
from lakehold.kafka.options import kafka_options
from lakehold.model.definitions import DefinitionReader, Definitions, Entry
from lakehold.model.sharing import place_of
from lakehold.secrets import resolve
from lakehold.settings import Settings
from lakehold.state.batches import BatchStore
from lakehold.state.lease import HeldLease, held

if TYPE_CHECKING:
    # Its client of the registry is a second of imports, which a source without one does not need.
    from lakehold.kafka.registry import Registry

_READ_TASKS = max(4, os.cpu_count() or 1)
"""Tasks a large read is cut into at least, so that one large partition uses all cores; each writes a file per bucket."""


class Captured(Protocol):
    """The part of lakehold that knows what is upstream of sources that capture a database."""

    def tend(self, source: str, /) -> int | None:
        """Repair what differs from the definitions, and restart what failed.

        Returns:
            See `ReaderState.seen_upstream_ms`; None: it was not looked.
        """

    def confirm_standing(self, source: str, /) -> None:
        """Raise when the source is gone, or another process changes it: what is missing of it is no fault then."""

    def snapshots(self, source: str, /) -> Snapshots:
        """Return what upstream says of the snapshots of the tables."""

    def columns_of(self, source: str, table: Table, /) -> UpstreamColumns:
        """Return the columns that the database says a table has."""


@dataclass(frozen=True)
class Opening:
    """The builder of everything that ingests a lake's sources.

    Args:
        settings: Limits and timeouts.
        definitions: What is declared.
        store: Where intents and commits go.
        tables: Reads a table's metadata.
        history: Keeps what holds need of a table's history.
        captured: Gives what is upstream.
        lanes: Give sessions, the first of which takes seconds to start.
        applier: Gives what brings changes into tables.
    """

    settings: Settings
    definitions: DefinitionReader
    store: BatchStore
    tables: DataTables
    history: HeldHistory
    captured: Callable[[], Captured]
    lanes: Lanes
    applier: Callable[[Writing], Applier] = IcebergApplier

    def held(self, source: str, idle_ms: int = 0, catch_up_s: float | None = None) -> AbstractContextManager[Ingesting]:
        """Hold one source until the context ends; see `Ingesting` for the rest.

        Raises:
            DefinitionError: There is no such source, or it has no tables.
            SourceBusy: Another process has it.
        """
        return self._holding(idle_ms, catch_up_s)(source)

    def drain_together(
        self, sources: Sequence[str], idle_ms: int = 0, catch_up_s: float | None = None
    ) -> Generator[Progressed, None, None]:
        """Bring all tables of several sources to what their topics hold now: see `lakehold.ingest.together`."""
        names = list(dict.fromkeys(sources))
        return drain_together(names, self._holding(idle_ms, catch_up_s))

    def fill(self, source: str, tables: Collection[str]) -> Generator[BatchReport, None, None]:
        """Bring some tables of a source to where the others of it are: see `Ingesting.fill`; raises as `held` does."""
        with self.held(source) as ingesting:
            yield from ingesting.fill(tables)

    def _holding(self, idle_ms: int, catch_up_s: float | None) -> Held:
        """Return what holds sources, of which those of one place share what they read."""
        defined = self.definitions.definitions()
        at_place: dict[Hashable, SharedReads] = {}

        @contextmanager
        def hold(name: str) -> Iterator[Ingesting]:
            _tables(name, defined)
            with held(self.store, name, self.settings) as lease:
                # Who had the source until now may have read for tables that were created meanwhile.
                now = self.definitions.definitions()
                source = now.source(name)
                place = place_of(source, now)
                shared = at_place[place] = at_place.get(place) or self._shared(source, now)
                ingesting = self._built(source, now, shared, lease)
                shared.join(name, [entry.definition for entry in ingesting.tables.values()], source.transaction_topic)
                try:
                    yield replace(ingesting, idle_ms=idle_ms, catch_up_s=catch_up_s)
                finally:
                    shared.leave(name)

        return hold

    def _built(self, source: Source, defined: Definitions, shared: SharedReads, lease: HeldLease) -> Ingesting:
        """Build what ingests a source: every collaborator of its batches, in the order in which they work."""
        settings, name = self.settings, source.name
        tables, snapshots, seen_upstream_ms = _tables(name, defined), Snapshots(), None
        columns_of: UpstreamColumnsOf = no_columns
        if source.capture is not None:
            seen_upstream_ms = self.captured().tend(name)
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
            confirm_standing=lambda: self.captured().confirm_standing(name),
        )

    def _captured(self, source: str, tables: Mapping[str, Entry[Table]]) -> tuple[dict[str, Entry[Table]], Snapshots]:
        """Return the tables that can be read, and what upstream says of their snapshots.

        A table that a statement is just making is left to the next ingest: an empty topic would be taken for all it has.
        """
        snapshots = self.captured().snapshots(source)
        coming = snapshots.unasked
        if coming:
            coming -= {p.object_id for state in self.store.readers(source).values() for p in state.tables.values()}
        made = {name: entry for name, entry in tables.items() if entry.object_id not in coming}
        return made, snapshots

    def _planner(
        self, source: Source, tables: Mapping[str, Entry[Table]], shared: SharedReads, driver_limits: Limits
    ) -> Planner:
        """Build what says which records the batches of `source` read."""
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
            snapshots_all=source.capture is not None,
        )

    def _shared(self, source: Source, defined: Definitions) -> SharedReads:
        """Build what reads for a source and for others of its place."""
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
    defined.source(source)
    tables = {entry.definition.full_name: entry for entry in defined.tables_of(source)}
    if not tables:
        raise DefinitionError(
            f'source "{source}" has no tables',
            code="source-without-tables",
            hint=f"Add one: CREATE TABLE namespace.name FROM SOURCE {source} (TOPIC '…') ENVELOPE …",
        )
    return tables
