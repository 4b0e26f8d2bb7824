"""A lake: the one object behind the command line, the DAGs and Python programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from threading import Event
from types import TracebackType
from typing import Self

from pyspark.sql import SparkSession

from lakehold.catalog.batch_rows import PyIcebergBatches
from lakehold.catalog.data_tables import DataTables
from lakehold.catalog.definitions import Definitions
from lakehold.catalog.objects import PyIcebergDefinitions
from lakehold.catalog.opening import open_catalog
from lakehold.definitions import Source
from lakehold.errors import DefinitionError
from lakehold.ingest.apply import Writing
from lakehold.ingest.batch import BatchReport, Running
from lakehold.ingest.decode.registry import Registry, registry_of
from lakehold.ingest.error_records import ErrorRecords
from lakehold.ingest.lease import HeldLease, held
from lakehold.ingest.read.opening import open_reader
from lakehold.ingest.read.reader import Limits, Reader
from lakehold.ingest.run import Ingesting
from lakehold.ingest.topic import TopicDecoder
from lakehold.secrets import resolve
from lakehold.session import open_session, prepared
from lakehold.settings import Settings, load_settings
from lakehold.sql.engine import readable
from lakehold.sql.parse import parse_subscription
from lakehold.sql.reads import LakeReads
from lakehold.sql.result import Result
from lakehold.sql.run import Runner
from lakehold.subscribe.batches import Batch, batches
from lakehold.subscribe.on_spark import OnSpark
from lakehold.subscribe.opening import Opened, Subscribing
from lakehold.subscribe.table_diffs import DiffReading, Remembered
from lakehold.timeline.timelines import Timelines

_READ_TASKS = max(4, os.cpu_count() or 1)
"""Tasks a large read is cut into at least, so that one large partition uses all cores; each writes a file per bucket."""


class Lake:
    """An open lake. Close it, or use it in a `with` statement.

    Args:
        settings: How it is opened.
        spark: A session to use, classic or Connect; None makes one when it is first needed.
    """

    def __init__(self, settings: Settings, spark: SparkSession | None = None) -> None:
        self.settings = settings
        self._given_spark = spark
        self.catalog = open_catalog(settings)
        self.definitions = PyIcebergDefinitions(self.catalog)
        self.batches = PyIcebergBatches(self.catalog)
        self.tables = DataTables(self.catalog)

    @cached_property
    def spark(self) -> SparkSession:
        """The session; catalog `lake` is its default catalog. One made here takes seconds to start."""
        if self._given_spark is not None:
            return prepared(self._given_spark, self.settings)
        return open_session(self.settings)

    def sql(self, text: str) -> Result:
        """Run `;`-separated statements and return the result of the last; what lakehold does not know goes to Spark."""
        reads = LakeReads(self._subscribing)
        return Runner(self.definitions, self, lambda: self.spark, reads, self.settings.schemas).run(text)

    def follow(self, text: str, stop: Event | None = None) -> Iterator[Batch]:
        """What a SUBSCRIBE gives, one batch a timestamp as each is complete: endless without UP TO.

        Iterate over a batch to take its rows as they are read; `batch.rows` has all of them.

        Args:
            text: One SUBSCRIBE.
            stop: Ends it when set, between two looks at the lake.

        Raises:
            StatementError: The text is not one SUBSCRIBE.
            DefinitionError: A table or column is not there.
            NotReadable: AS OF is outside of what can be read.
        """
        opened = self.open_subscription(text)
        with readable():
            yield from batches(opened.follow(stop or Event()), opened.columns)

    def open_subscription(self, text: str) -> Opened:
        """A SUBSCRIBE on the lake as it is now, before anything of it is read. Raises as `follow` does."""
        statement = parse_subscription(text)
        with readable():
            return self._subscribing.open(statement)

    def ingest(self, source: str, on_batch: Callable[[BatchReport], None] | None = None) -> list[BatchReport]:
        """Bring all tables of `source` to what its topics hold now.

        Args:
            source: Name of the source.
            on_batch: Called with each report as its batch commits.

        Returns:
            A report for each batch; `stopped` of a report names tables that could not go on.

        Raises:
            SourceBusy: Another process ingests the source.
            UpstreamUnavailable: Broker, registry or files do not answer; what was begun is finished by the next call.
        """
        reports = []
        for report in self.batches_of(source):
            if on_batch is not None:
                on_batch(report)
            reports.append(report)
        return reports

    def batches_of(self, source: str, *, idle_ms: int = 0) -> Generator[BatchReport, None, None]:
        """`ingest`, one report at a time; the source is held until the iterator ends or is closed.

        `idle_ms` is for who calls again and again: empty batches are at least so far apart.
        """
        ingesting = self._prepared_ingest(source, idle_ms)
        with held(self.batches, source, self.settings) as lease:
            yield from ingesting(lease).drain()

    def _prepared_ingest(self, name: str, idle_ms: int) -> Callable[[HeldLease], Ingesting]:
        defined = self.definitions.definitions()
        source = defined.source(name)
        tables = {entry.definition.full_name: entry for entry in defined.tables_of(name)}
        if not tables:
            raise DefinitionError(
                f'source "{name}" has no tables',
                code="source-without-tables",
                hint=f"Add one: CREATE TABLE namespace.name FROM SOURCE {name} (TOPIC '…') ENVELOPE …",
            )
        reader = self._reader(source, defined)
        decoder = TopicDecoder(
            source.format.type, self._registry(source, defined), lambda: self.spark, self.settings.max_record_bytes
        )
        writing_spark = lambda: self.spark  # noqa: E731 - a session is made only when there is something to write

        def under(lease: HeldLease) -> Ingesting:
            writing = Writing(
                spark=writing_spark,
                catalog_name=self.settings.catalog_name,
                buckets=self.settings.buckets,
                tables=self.tables,
                confirm_lease=lease.confirm,
                errors=ErrorRecords(writing_spark, self.settings.catalog_name, self.tables),
            )
            running = Running(
                store=self.batches,
                lease=lease,
                reader=reader,
                decoder=decoder,
                writing=writing,
                tables=tables,
                driver_records=self.settings.driver_read_max_records,
                driver_bytes=self.settings.driver_read_max_bytes,
            )
            limits = Limits(
                int(str(source.options.get("max_records", self.settings.max_batch_records))),
                int(str(source.options.get("max_bytes", self.settings.max_batch_bytes))),
            )
            return Ingesting(name, running, limits, idle_ms)

        return under

    @cached_property
    def _subscribing(self) -> Subscribing:
        timelines = Timelines(self.tables, self.definitions, self.batches, self.settings.foreign_lag_ms)
        on_spark = OnSpark(lambda: self.spark, self.settings.catalog_name)
        reading = DiffReading(on_spark, self._workers, Remembered(), self.settings.driver_diff_max_rows)
        return Subscribing(timelines, reading, self.settings)

    @cached_property
    def _workers(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="lakehold-files")

    def _reader(self, source: Source, defined: Definitions) -> Reader:
        options = resolve(defined.connection(source.connection).options) if source.connection is not None else {}
        return open_reader(source, options, timeout_s=self.settings.upstream_timeout_ms / 1000, parallelism=_READ_TASKS)

    def _registry(self, source: Source, defined: Definitions) -> Registry | None:
        if source.format.registry is None:
            return None
        connection = defined.connection(source.format.registry)
        return registry_of(resolve(connection.options), timeout_s=self.settings.upstream_timeout_ms / 1000)

    def drop_iceberg_table(self, full_name: str) -> None:
        """Drop a table's data; nothing when it was never made."""
        self.tables.drop_table(full_name)

    def close(self) -> None:
        """Let go of the catalog, and of the session if it was made here."""
        if self._given_spark is None and "spark" in self.__dict__:
            self.spark.stop()
        if "_workers" in self.__dict__:
            self._workers.shutdown()
        self.catalog.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def connect(
    warehouse: str | None = None,
    *,
    spark: SparkSession | None = None,
    spark_remote: str | None = None,
    catalog_uri: str | None = None,
    **settings: object,
) -> Lake:
    """Open a lake, making it if it is not there.

    Args:
        warehouse: Directory or URI of the tables. Unset arguments come from `LAKEHOLD_*`, then from `lakehold.toml`.
        spark: A session to use, which has the jars and the extensions of `lakehold.session.session_conf`.
        spark_remote: A Spark Connect endpoint.
        catalog_uri: The Iceberg catalog; by default an SQLite file in the warehouse.
        **settings: Further fields of `lakehold.settings.Settings`.
    """
    return Lake(
        load_settings(warehouse=warehouse, spark_remote=spark_remote, catalog_uri=catalog_uri, **settings), spark
    )
