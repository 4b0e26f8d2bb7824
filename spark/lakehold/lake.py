"""A lake: the one object behind the command line, the DAGs and Python programs.

What only some of its methods need they import themselves: a short process pays for what it uses.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cached_property
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pyspark.sql import SparkSession

from lakehold.definitions import OnLapse
from lakehold.lake_parts import LakeParts
from lakehold.progress import NoProgress, Progress
from lakehold.session import close_session, open_session, prepared
from lakehold.settings import Settings, load_settings

if TYPE_CHECKING:
    from lakehold.holds.commands import HoldCommands
    from lakehold.holds.roles import RoleCommands
    from lakehold.ingest.backfill import BackfillReport
    from lakehold.ingest.batch import BatchReport
    from lakehold.ingest.together import Progressed
    from lakehold.maintenance.maintain import MaintenanceReport
    from lakehold.publish.durable import DurableClient
    from lakehold.publish.publisher import PublishReport
    from lakehold.publish.subscriptions import Subscriptions
    from lakehold.quality import Checks, Verdict
    from lakehold.sql.result import Result
    from lakehold.subscribe.batches import Batch
    from lakehold.subscribe.opening import Opened
    from lakehold.timeline.timelines import Timelines
    from lakehold.upstream.sources import CapturedSources


class Lake:
    """An open lake. Close it, or use it in a `with` statement.

    Args:
        settings: How it is opened.
        spark: A session to use, classic or Connect; None makes one when it is first needed.
    """

    def __init__(self, settings: Settings, spark: SparkSession | None = None) -> None:
        self.settings = settings
        self._given_spark = spark
        self._closed = Event()
        self._parts = LakeParts(settings, lambda: self.spark)
        self.catalog = self._parts.catalog
        self.definitions = self._parts.definitions
        self.batches = self._parts.batches
        self.tables = self._parts.tables

    @cached_property
    def spark(self) -> SparkSession:
        """The session; catalog `lake` is its default catalog. One made here takes seconds to start."""
        if self._given_spark is not None:
            return prepared(self._given_spark, self.settings)
        return open_session(self.settings, self._closed)

    @property
    def timelines(self) -> Timelines:
        """From when to when tables are readable, and what they showed when."""
        return self._parts.timelines

    @property
    def holds(self) -> HoldCommands:
        """The holds: made, moved, renamed and dropped, as their statements do it."""
        return self._parts.holds

    @property
    def roles(self) -> RoleCommands:
        """The roles: made, dropped and granted to, as their statements do it."""
        return self._parts.roles

    @property
    def captured(self) -> CapturedSources:
        """What is upstream of sources that capture a database."""
        return self._parts.captured

    @property
    def subscriptions(self) -> Subscriptions:
        """The subscriptions and durable clients."""
        return self._parts.subscriptions

    @property
    def checks(self) -> Checks:
        """What runs suites on tables."""
        return self._parts.checks

    def sql(self, text: str) -> Result:
        """Run `;`-separated statements and return the result of the last; what lakehold does not know goes to Spark."""
        from lakehold.sql.reads import LakeReads
        from lakehold.sql.run import Runner

        reads = LakeReads(self._parts.subscribing)
        runner = Runner(
            self.definitions,
            self,
            lambda: self.spark,
            reads,
            self.holds,
            self.subscriptions,
            self.roles,
            self.captured,
            self.settings.schemas,
        )
        return runner.run(text)

    def publish(self, name: str, on_commit: Callable[[PublishReport], None] | None = None) -> list[PublishReport]:
        """Append what a subscription gives until now to its output table, each timestamp once.

        Args:
            name: Of the subscription.
            on_commit: Called with each report as its commit is done.

        Raises:
            SubscriberBusy: Another process publishes it.
            SubscriberLapsed: What changed since it was last published is not kept any more.
            DefinitionError: There is no such subscription, its tables cannot be read, or its output cannot be written.
        """
        reports = []
        for report in self.publications(name):
            if on_commit is not None:
                on_commit(report)
            reports.append(report)
        return reports

    def publications(self, name: str, stop: Event | None = None) -> Generator[PublishReport, None, None]:
        """`publish`, one report at a time; with `stop` it goes on with what changes until that is set."""
        from lakehold.spark_errors import readable

        publisher = self.subscriptions.publisher(name)
        with readable():
            yield from publisher.publish(stop)

    def durable(
        self, name: str, text: str, *, on_lapse: OnLapse | str = OnLapse.STOP, max_lag_ms: int | None = None
    ) -> DurableClient:
        """A client that goes on after a restart where it was: nothing that it acknowledged comes again, nothing is left out.

        Args:
            name: Of the client; its place is kept in the lake under it.
            text: One SUBSCRIBE, without UP TO and PROGRESS; the same one each time.
            on_lapse: What happens when its hold was moved past its place: an error, or a new snapshot.
            max_lag_ms: How far it may stay behind; by default the setting `default_max_lag_ms`.

        Raises:
            StatementError: The text is not one SUBSCRIBE.
            DefinitionError: The name is none.
            PermissionDenied: The setting `role` names a role that lacks SELECT on a table, or there is none though others exist.
        """
        return self.subscriptions.client(name, text, OnLapse(on_lapse), max_lag_ms)

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
        from lakehold.spark_errors import readable
        from lakehold.subscribe.batches import batches

        opened = self.open_subscription(text)
        with readable():
            yield from batches(opened.follow(stop or Event()), opened.columns)

    def open_subscription(self, text: str) -> Opened:
        """A SUBSCRIBE on the lake as it is now, before anything of it is read. Raises as `follow` does."""
        from lakehold.spark_errors import readable
        from lakehold.sql.parse import parse_subscription

        statement = parse_subscription(text)
        with readable():
            return self._parts.subscribing.open(statement)

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

        `idle_ms` is for who calls again and again: empty batches are at least so far apart, and nothing is waited for.
        """
        with self._parts.ingesting.held(source, idle_ms) as ingesting:
            yield from ingesting.drain()

    def batches_together(
        self, sources: Sequence[str], *, idle_ms: int = 0, catch_up_s: float | None = None
    ) -> Generator[Progressed, None, None]:
        """`batches_of` several sources, which take turns: what they read of the same topics is read and decoded once.

        One that fails, or is not there any more, is told of as `SourceFailed`, and the others go on.
        `catch_up_s` is for who calls again and again as well: tables that are behind have no further batch after so long, and the
        next call goes on with them.
        """
        yield from self._parts.ingesting.drain_together(sources, idle_ms, catch_up_s)

    def backfill(
        self,
        tables: Sequence[str],
        on_batch: Callable[[BatchReport], None] | None = None,
        *,
        progress: Progress | None = None,
        stop: Event | None = None,
    ) -> list[BackfillReport]:
        """Bring tables that are behind, new or stopped ones, to where the others of their source are, and let them join these.

        Args:
            tables: Full names. The others of their sources go on with what arrives meanwhile.
            on_batch: Called with each report as its batch commits.
            progress: Shows how much is read.
            stop: Ends it when set, between two batches; the next call goes on.

        Returns:
            A report for each table; `error` of one says why it is not with the others, or not readable yet.

        Raises:
            DefinitionError: There is no such table, or no source feeds it; then none was begun.
        """
        return self._parts.backfilling.run(tables, on_batch or (lambda _: None), progress or NoProgress(), stop)

    def behind(self, tables: Sequence[str] | None = None) -> list[list[str]]:
        """What there is to backfill: full names, those of tables together that one source feeds.

        Args:
            tables: Those that are wanted; by default all that are new or stopped.

        Raises:
            DefinitionError: There is no such table, or no source feeds it.
        """
        return self._parts.backfilling.together(tables)

    def maintain(
        self,
        tables: Sequence[str] | None = None,
        *,
        dry_run: bool = False,
        orphans: bool = False,
        progress: Progress | None = None,
    ) -> list[MaintenanceReport]:
        """Let go of history that nobody needs any more, gather small files, delete what no table refers to.

        Args:
            tables: Full names; by default all that are lakehold's own, those of others that say how much history they keep, and
                those that are held.
            dry_run: Only tell what would be done.
            orphans: Search files that no table refers to also where that was done within a day; of `tables` it always is.
            progress: Shows which tables are done.

        Returns:
            A report for each table; `error` of one says what kept it from being done: the others were.
        """
        return self._parts.maintaining.run(tables, progress or NoProgress(), dry_run=dry_run, orphans=orphans)

    def check(self, table: str, at_ms: int | None = None, hold: str | None = None) -> Verdict:
        """Run the suite of `table`: its file in the directory `expectations`, or one made from its schema and key.

        Args:
            table: Full name.
            at_ms: The time it is read at, epoch milliseconds; by default now.
            hold: Name of a hold on it: it is read where the hold keeps it, and the verdict is kept beside the hold.

        Raises:
            DefinitionError: The table or the hold is not there, or the suite cannot be used.
            NotReadable: The table is not readable at `at_ms`.
            EnvironmentMissing: Great Expectations is not installed.
        """
        from lakehold.spark_errors import readable

        kept = self.holds.hold(hold) if hold is not None else None
        with readable():
            return self.checks.check_at(table, at_ms, kept)

    def drop_iceberg_table(self, full_name: str) -> None:
        """Drop a table's data; nothing when it was never made."""
        self.tables.drop_table(full_name)

    def forget_source(self, name: str) -> None:
        """Take away how far a source was that is not declared; nothing when it was never read, or is being read."""
        self.batches.forget_source(name)

    def close(self) -> None:
        """Let go of the catalog, and of the sessions that were made here."""
        self._parts.close()
        if self._given_spark is None and "spark" in self.__dict__:
            close_session(self.spark, self.settings, self._closed)

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
