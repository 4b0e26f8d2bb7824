"""A lake: the one object behind the command line, the DAGs and Python programs.

Methods import what only they need, so that a short process loads only what it uses.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Self

from lakehold.definitions import OnLapse
from lakehold.lake_changes import LakeChanges
from lakehold.lake_parts import LakeParts
from lakehold.lake_session import LakeSession, LentSession, settings_of_lake
from lakehold.progress import NoProgress, Progress
from lakehold.settings import Settings, load_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakehold.holds.commands import HoldCommands
    from lakehold.holds.roles import RoleCommands
    from lakehold.ingest.backfill import BackfillReport
    from lakehold.ingest.batch_report import BatchReport
    from lakehold.ingest.several_sources import Progressed
    from lakehold.ingest.side_by_side import Lanes
    from lakehold.maintenance.maintain import MaintenanceReport
    from lakehold.model.lake_definitions import Definitions
    from lakehold.model.readers import ReaderState
    from lakehold.publish.durable import DurableClient
    from lakehold.publish.publisher import PublishReport
    from lakehold.publish.subscriptions import Subscriptions
    from lakehold.quality import Checks, Verdict
    from lakehold.sql.result import Result
    from lakehold.state.hold_checks import HoldCheck
    from lakehold.state.store import Log
    from lakehold.timeline.timelines import Timelines
    from lakehold.upstream.sources import CapturedSources
    from lakehold.verify.comparison import Comparison


class Lake(LakeChanges):
    """An open lake. Close it, or use it in a `with` statement.

    Args:
        settings: How it is opened.
        spark: A session to use, classic or Connect, or a function that returns that of another lake; None makes one at the
            first use.
        must_exist: Whether opening creates and changes nothing.

    Attributes:
        catalog, tables: The Iceberg catalog, and its tables.
        definitions: Reads and changes the definitions of sources, tables and other objects.
        batches: Reads how far the sources' tables are, and records batches.
    """

    def __init__(
        self,
        settings: Settings,
        spark: SparkSession | Callable[[], SparkSession] | None = None,
        *,
        must_exist: bool = False,
    ) -> None:
        self.settings = settings = settings_of_lake(settings, spark)
        self._session = LentSession(spark) if callable(spark) else LakeSession(settings, spark)
        self._parts = LakeParts(settings, self._session.get, must_exist=must_exist)
        self.catalog = self._parts.catalog
        self.definitions = self._parts.definitions
        self.batches = self._parts.batches
        self.tables = self._parts.tables

    @property
    def spark(self) -> SparkSession:
        """Return the session, whose default catalog is `lake`; a session made here takes seconds to start."""
        return self._session.get()

    @property
    def _restored(self) -> LakeParts:
        """Return the parts for work whose outcome must not follow the settings of its session, which are restored first."""
        self._session.restore_settings()
        return self._parts

    @property
    def timelines(self) -> Timelines:
        """Return the timelines: the readable window of each table, and its snapshot at each time."""
        return self._parts.timelines

    @property
    def holds(self) -> HoldCommands:
        """Return the object that creates, moves, renames and drops holds, as the SQL statements do."""
        return self._parts.holds

    @property
    def roles(self) -> RoleCommands:
        """Return the object that creates and drops roles and grants privileges, as the SQL statements do."""
        return self._parts.roles

    @property
    def captured(self) -> CapturedSources:
        """Return the object that manages the upstream objects of sources that capture a database."""
        return self._parts.captured

    @property
    def subscriptions(self) -> Subscriptions:
        """Return the subscriptions and durable clients."""
        return self._parts.subscriptions

    @property
    def lanes(self) -> Lanes:
        """Return the threads that write several tables at once, each in a Spark session of its own."""
        return self._parts.lanes

    @property
    def verdicts(self) -> Log[HoldCheck]:
        """Return the log of the verdicts of checks and comparisons."""
        return self._parts.verdicts

    @property
    def checks(self) -> Checks:
        """Return the object that runs suites on tables."""
        return self._parts.checks

    def sql(self, text: str) -> Result:
        """Run `;`-separated statements and return the result of the last; statements that are Spark's go to Spark."""
        return self._parts.runner(self, lambda: self._session.is_open).run(text)

    def publish(self, name: str, on_commit: Callable[[PublishReport], None] | None = None) -> list[PublishReport]:
        """Append what a subscription gives until now to its output table, or refresh a materialized view, each timestamp once.

        Args:
            name: Name of the subscription, or full name of the view.
            on_commit: Called with each report as its commit is done.

        Raises:
            SubscriberBusy: Another process publishes it.
            SubscriberLapsed: The changes since it was last published are no longer kept.
            DefinitionError: The subscription does not exist, its tables cannot be read, or its output cannot be written.
        """
        reports = []
        for report in self.publications(name):
            if on_commit is not None:
                on_commit(report)
            reports.append(report)
        return reports

    def publications(self, name: str, stop: Event | None = None) -> Generator[PublishReport, None, None]:
        """Publish as `publish` does and yield one report at a time; with `stop`, continue with new changes until it is set."""
        yield from self._restored.subscriptions.publisher(name).publish(stop)

    def durable(
        self,
        name: str,
        statements: str | Mapping[str, str],
        *,
        on_lapse: OnLapse | str = OnLapse.STOP,
        max_lag_ms: int | None = None,
    ) -> DurableClient:
        """Return a client that continues after a restart where it stopped: no change is lost, and none is delivered again.

        Args:
            name: Name of the client, under which the lake keeps its position.
            statements: One SUBSCRIBE, without UP TO and PROGRESS, or several by names of your choice: a delivery then has
                the rows of all at one timestamp. The same each time.
            on_lapse: What happens when its hold was moved past its position: an error, or a new snapshot.
            max_lag_ms: How far it may lag; by default the setting `default_max_lag_ms`.

        Raises:
            StatementError: A text is not one SUBSCRIBE.
            DefinitionError: A name is not valid, or the statements begin at different times.
            PermissionDenied: The role in the setting `role` lacks SELECT on a table, or roles exist and the setting names none.
        """
        return self._restored.subscriptions.client(name, statements, OnLapse(on_lapse), max_lag_ms)

    def ingest(self, source: str, on_batch: Callable[[BatchReport], None] | None = None) -> list[BatchReport]:
        """Merge the records that the topics of `source` hold now into its tables.

        Args:
            source: Name of the source.
            on_batch: Called with each report as its batch commits.

        Returns:
            A report for each batch, in a list that notebooks show as a table; `stopped` of a report names tables that stopped.

        Raises:
            SourceBusy: Another process ingests the source.
            UpstreamUnavailable: Broker, registry or files do not answer; the next call finishes a batch that has begun.
        """
        from lakehold.ingest.batch_report import Batches

        reports = Batches()
        for report in self.batches_of(source):
            if on_batch is not None:
                on_batch(report)
            reports.append(report)
        return reports

    def batches_of(self, source: str, *, idle_ms: int = 0) -> Generator[BatchReport, None, None]:
        """Ingest as `ingest` does and yield one report at a time; the lease is held until the iterator ends or is closed.

        With `idle_ms`, for callers that poll, empty batches are at least so many milliseconds apart, and nothing is waited for.
        """
        with self._restored.ingesting.leased(source, idle_ms) as ingesting:
            yield from ingesting.drain()

    def batches_together(
        self, sources: Sequence[str], *, idle_ms: int = 0, turn_s: float | None = None
    ) -> Generator[Progressed, None, None]:
        """Ingest several sources, which take turns: records that they share are read and decoded once.

        A source that fails or was dropped yields a `SourceFailed`. After `turn_s` seconds it leaves the rest to the next call.
        """
        yield from self._restored.ingesting.drain_together(sources, idle_ms=idle_ms, turn_s=turn_s)

    def pending(self, source: str) -> int:
        """Return about how many messages an ingest of `source` would read; 0: it would only move the write frontier."""
        return self._parts.ingesting.pending(source)

    def unread(self, source: str, defined: Definitions, readers: Iterable[ReaderState]) -> dict[str, int]:
        """Return how many offsets of its topic each table of `source` has not read; they are no fewer than messages.

        Args:
            source: The source.
            defined: The definitions of the lake.
            readers: The readers of all sources.

        Raises:
            UpstreamError: Its broker or directory does not answer.
        """
        return self._parts.ingesting.unread(source, defined, readers)

    @contextmanager
    def batches_beside(self) -> Iterator[Callable[..., Generator[Progressed, None, None]]]:
        """Return `batches_together` for one more thread, in Spark sessions of its own until the context ends."""
        with self._parts.ingesting_beside() as ingesting:
            yield ingesting.drain_together

    def backfill(
        self,
        tables: Sequence[str],
        on_batch: Callable[[BatchReport], None] | None = None,
        *,
        progress: Progress | None = None,
        stop: Event | None = None,
    ) -> list[BackfillReport]:
        """Bring new or stopped tables to the position of the others of their source, and let them join these.

        Args:
            tables: Full names, which must have sources. Others of these sources continue meanwhile.
            on_batch: Called with each report as its batch commits.
            progress: Shows how much is read.
            stop: Ends it when set, between two batches; the next call continues.

        Returns:
            A report for each table; `error` says why a table is not in sync, or not readable yet.
        """
        return self._restored.backfilling.run(tables, on_batch or (lambda _: None), progress or NoProgress(), stop)

    def behind(self, tables: Sequence[str] | None = None) -> list[list[str]]:
        """Return the full names of tables to backfill, grouped by source.

        Args:
            tables: Tables to choose from; by default all that are new or stopped.

        Raises:
            DefinitionError: A table does not exist, or no source feeds it.
        """
        return self._parts.backfilling.together(tables)

    def maintain(
        self,
        tables: Sequence[str] | None = None,
        *,
        dry_run: bool = False,
        orphans: bool = False,
        on_table: Callable[[MaintenanceReport], None] | None = None,
        progress: Progress | None = None,
    ) -> list[MaintenanceReport]:
        """Expire history that nothing needs, compact small files, and delete files that no table refers to.

        Args:
            tables: Full names; by default all of lakehold's own, others that declare how much history they keep, and held ones.
            dry_run: Change nothing; report what would be done.
            orphans: Search for files that no table refers to even where that was done within a day; for `tables` it always is.
            on_table: Called with each report as its table is done.
            progress: Shows which tables are done.

        Returns:
            A report for each table; `error` says why one failed. Then the others were maintained, unless it ended Spark.
        """
        return self._parts.maintaining.run(tables, progress or NoProgress(), on_table, dry_run=dry_run, orphans=orphans)

    def check(self, table: str, at_ms: int | None = None, hold: str | None = None) -> Verdict:
        """Run the suite of `table`: its file in the directory `expectations`, or one generated from its schema and key.

        Args:
            table: Full name.
            at_ms: The time it is read at, epoch milliseconds; by default now.
            hold: Name of a hold on it: the table is read at the hold's time, and the verdict is kept with the hold.

        Raises:
            DefinitionError: The table or the hold does not exist, or the suite cannot be used.
            NotReadable: The table is not readable at `at_ms`.
            EnvironmentMissing: Great Expectations is not installed.
        """
        from lakehold.spark_errors import readable

        with readable():
            return self._restored.checks.check_at(table, at_ms, self.holds.hold(hold) if hold is not None else None)

    def verify(
        self,
        table: str,
        *,
        connection: str | None = None,
        upstream: str | None = None,
        progress: Progress | None = None,
    ) -> Comparison:
        """Compare a table with its table in a database, or a view with its query, row by row, while all go on changing.

        A captured table is compared with the table that feeds it. Its source is ingested as far as needed, unless another
        process does that. A key that differs only because one side is later than the other counts as equal. A materialized
        view is compared with its query at the last time that it shows. The newest rows of any other table are compared with
        the table of the database that you name. The verdict is kept.

        Args:
            table: Full name.
            connection: Name of the connection to the database; by default the one from which the table is captured.
            upstream: The table in that database, `schema.table`.
            progress: Shows how much is read.

        Raises:
            DefinitionError: The table or connection does not exist, no database is known for the table, or it has no key.
            NotReadable: The table's first snapshot is not complete.
            TableStopped: The table is stopped, or catches up.
            UpstreamUnavailable: The database does not answer, or its changes do not reach the lake.
            UpstreamRefused: The database refuses a query.
        """
        from lakehold.spark_errors import readable
        from lakehold.verify.subject import against

        with readable():
            return self._restored.compare(table, against(connection, upstream), progress or NoProgress())

    def drop_iceberg_table(self, full_name: str, object_id: str) -> bool:
        """Drop the data of the table defined as `object_id`; return False if one of this name stays, as it may be another's."""
        from lakehold.model.summary_keys import OBJECT_ID

        return self.tables.drop_own(full_name, OBJECT_ID, object_id)

    def forget_source(self, name: str) -> None:
        """Remove the reader state of a source that is not declared; does nothing while a process ingests it."""
        self.batches.forget_source(name)

    def close(self) -> None:
        """Close the catalog, and the sessions that were made here."""
        self._parts.close()
        self._session.close()

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
    """Open a lake; a lake that does not exist is created.

    Args:
        warehouse: Directory or URI of the tables. Unset arguments come from `LAKEHOLD_*`, then from `lakehold.toml`.
        spark: A session that another program made; if it lacks jars or extensions, its first use lists all that is missing.
        spark_remote: A Spark Connect endpoint; without effect if `spark` is given.
        catalog_uri: The Iceberg catalog; by default an SQLite file in the warehouse.
        **settings: Further fields of `lakehold.settings.Settings`.
    """
    return Lake(
        load_settings(warehouse=warehouse, spark_remote=spark_remote, catalog_uri=catalog_uri, **settings), spark
    )


def open_existing(warehouse: str | None = None) -> Lake:
    """Open a lake that exists, for commands that only read: opening creates and changes nothing.

    Raises:
        SettingsError: There is no lake, or it is of an earlier lakehold.
    """
    return Lake(load_settings(warehouse=warehouse), must_exist=True)
