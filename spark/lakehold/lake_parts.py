"""The parts of a lake: each is made at its first use, from the settings, the catalog and the session.

Parts import what they need when they are made, so that a short process loads only what it uses.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lakehold.iceberg.data_tables import DataTables
from lakehold.iceberg.deletion import wait_for_deletions
from lakehold.iceberg.object_stores import FILES_AT_ONCE, is_far
from lakehold.progress import NoProgress, Progress
from lakehold.settings import Settings
from lakehold.state.batch_protocol import BATCHES, BatchStore
from lakehold.state.catalog_opening import open_catalog
from lakehold.state.hold_checks import HOLD_CHECKS
from lakehold.state.holds import HoldStore
from lakehold.state.iceberg_state import IcebergState
from lakehold.state.objects import DefinitionStore
from lakehold.state.read_lease_store import ReadLeaseStore
from lakehold.state.subscribers import SubscriberStore

if TYPE_CHECKING:
    from pyarrow import RecordBatchReader
    from pyspark.sql import SparkSession

    from lakehold.holds.commands import HoldCommands
    from lakehold.holds.guard import Guard
    from lakehold.holds.held_history import HeldHistory
    from lakehold.holds.roles import RoleCommands
    from lakehold.holds.tags import TableTags
    from lakehold.ingest.backfill import Backfilling
    from lakehold.ingest.side_by_side import Lanes
    from lakehold.ingest.source_opening import Opening
    from lakehold.maintenance.maintain import Maintaining
    from lakehold.publish.merged_table import MergeWriting
    from lakehold.publish.subscriptions import Subscriptions
    from lakehold.quality import Checks, Outcome
    from lakehold.sql.run.reads import LakeReads
    from lakehold.sql.run.script_run import FedTables, Runner
    from lakehold.state.holds import Hold
    from lakehold.subscribe.read_leases import ReadLeases
    from lakehold.subscribe.statement import Changes, Subscribe
    from lakehold.subscribe.subscription_opening import Subscribing
    from lakehold.timeline.timelines import Timelines
    from lakehold.upstream.sources import CapturedSources
    from lakehold.verify.comparison import Comparison
    from lakehold.verify.subject import Against
    from lakehold.verify.verifying import Verifying
    from lakehold.verify.view_comparison import ViewComparing


class LakeParts:
    """The parts of one open lake, for `Lake` and for each other.

    Args:
        settings: How it is opened.
        spark: Returns the session, which takes seconds to start at the first call.
        must_exist: Whether opening creates and changes nothing.
    """

    def __init__(self, settings: Settings, spark: Callable[[], SparkSession], *, must_exist: bool) -> None:
        self.settings = settings
        self._spark = spark
        self.catalog = open_catalog(settings, must_exist=must_exist)
        self.state = IcebergState(self.catalog)
        self.definitions = DefinitionStore(self.state)
        self.batches = BatchStore(self.state)
        self.hold_store = HoldStore(self.state)
        self.read_lease_store = ReadLeaseStore(self.state)
        self.tables = DataTables(self.catalog)
        self.subscribers = SubscriberStore(self.state)
        self.verdicts = self.state.log(HOLD_CHECKS)

    def close(self) -> None:
        """Close the catalog, stop the threads that read files, and wait for deletions: then nothing touches the lake's files."""
        wait_for_deletions()
        if "_workers" in self.__dict__:
            self._workers.shutdown()
        if "lanes" in self.__dict__:
            self.lanes.close()
        self.catalog.close()

    @cached_property
    def checks(self) -> Checks:
        """Make the object that runs suites on tables."""
        from lakehold.quality import Checks
        from lakehold.sql.contracts import column_docs
        from lakehold.sql.query.query_of_snapshots import query_of_snapshots

        return Checks(
            spark=self._spark,
            catalog_name=self.settings.catalog_name,
            tables=self.tables,
            definitions=self.definitions,
            timelines=self.timelines,
            kept=self.verdicts,
            suites=self.settings.expectations,
            pages=self.settings.check_pages_uri,
            compare=self._compared,
            docs_of=lambda table: column_docs(table, self.settings.schemas),
            query_of_snapshots=query_of_snapshots,
            read_leases=self._read_leases,
        )

    def compare(self, full_name: str, against: Against | None, progress: Progress) -> Comparison:
        """Compare a table with its database, or a view with its query, and keep the verdict."""
        from lakehold.verify.kept_verdict import verdict_of

        view = self.definitions.definitions().views.get(full_name) if against is None else None
        if view is None:
            found = self.verifying.compare(full_name, against, progress)
        else:
            found = self.view_comparing.compare(view, progress)
        self.checks.keep(verdict_of(found))
        return found

    def _compared(self, full_name: str, arguments: Mapping[str, Any]) -> Outcome:
        from lakehold.verify.kept_verdict import outcome_of
        from lakehold.verify.subject import against

        return outcome_of(
            lambda: self.compare(
                full_name, against(arguments.get("connection"), arguments.get("upstream")), NoProgress()
            ),
            arguments,
        )

    @cached_property
    def holds(self) -> HoldCommands:
        """Make the object that creates, moves, renames and drops holds, as the SQL statements do."""
        return self._hold_commands(self._guard)

    @cached_property
    def _own_holds(self) -> HoldCommands:
        """Make the object that changes holds for subscribers and maintenance, which need no privileges."""
        return self._hold_commands(None)

    def _hold_commands(self, guard: Guard | None) -> HoldCommands:
        from lakehold.holds.commands import HoldCommands

        return HoldCommands(
            self.hold_store, self.timelines, self.definitions, self.settings, self.tags.put, self._check_hold, guard
        )

    @cached_property
    def roles(self) -> RoleCommands:
        """Make the object that creates and drops roles and grants privileges, as the SQL statements do."""
        from lakehold.holds.roles import RoleCommands

        return RoleCommands(self._guard)

    @cached_property
    def _guard(self) -> Guard:
        from lakehold.holds.guard import Guard
        from lakehold.state.roles import ROLES

        return Guard(self.state.store(ROLES), self.settings.role)

    def _check_hold(self, hold: Hold) -> None:
        from lakehold.quality import HoldChecker
        from lakehold.spark_errors import readable

        with readable():
            HoldChecker(self.checks)(hold)

    @cached_property
    def captured(self) -> CapturedSources:
        """Make the object that manages the upstream objects of sources that capture a database."""
        from lakehold.state.upstream_leases import UpstreamLeases
        from lakehold.upstream.sources import CapturedSources

        leases = UpstreamLeases(self.state)
        return CapturedSources(self.definitions.definitions, self.batches.readers, leases, self.settings, self.tables)

    @cached_property
    def subscriptions(self) -> Subscriptions:
        """Make the object that manages subscriptions and durable clients."""
        from lakehold.publish.subscriptions import Subscriptions

        return Subscriptions(
            self.catalog,
            self.definitions,
            self.subscribers,
            self._own_holds,
            lambda: self.subscribing,
            self._parse_endless,
            self.settings,
            self._guard,
            lambda: self._merge_writing,
            self._spark,
        )

    @cached_property
    def _merge_writing(self) -> MergeWriting:
        from lakehold.publish.merged_table import MergeWriting

        return MergeWriting(self.lanes.spark, self.settings.catalog_name, self.tables, self.tags, self.settings.buckets)

    def _parse_endless(self, text: str) -> Subscribe:
        from lakehold.sql.parse.statement import parse_endless

        return parse_endless(text, catalog=self.settings.catalog_name)

    @cached_property
    def timelines(self) -> Timelines:
        """Make the timelines: which snapshot a table shows at which time."""
        from lakehold.holds.rules import existing
        from lakehold.timeline.timelines import Timelines

        return Timelines(
            self.tables,
            self.definitions,
            self.batches,
            self.settings.foreign_lag_ms,
            holds=lambda: existing(self.hold_store.holds(), self.definitions.definitions()),
            subscriber=self.subscribers.find,
        )

    @cached_property
    def tags(self) -> TableTags:
        """Make the object that manages the tags of holds."""
        from lakehold.holds.tags import TableTags

        return TableTags(self.catalog, self.timelines, self.hold_store)

    @cached_property
    def _held_history(self) -> HeldHistory:
        from lakehold.holds.held_history import HeldHistory

        return HeldHistory(self.tags, self._own_holds)

    @cached_property
    def maintaining(self) -> Maintaining:
        """Make the object that `maintain` calls."""
        from lakehold.maintenance.maintain import Maintaining
        from lakehold.maintenance.procedures import Procedures
        from lakehold.maintenance.record_expiry import Records
        from lakehold.maintenance.survey import Survey
        from lakehold.quality.pages import Pages

        holds, leases, settings = self.hold_store, self.read_lease_store, self.settings
        survey = Survey(self.catalog, self.timelines, self.batches, holds, leases, self.tags, settings)
        procedures = Procedures(self._call, settings.catalog_name, is_in_object_store=settings.warehouse_path is None)
        pages = Pages(self.settings.check_pages_uri, self.catalog.load_table(HOLD_CHECKS.table).io)
        log, tables = self.state.log(BATCHES), self.tables
        records = Records(log, self.verdicts, pages, tables, holds, self.definitions, procedures)
        return Maintaining(survey, procedures, records, self.subscriptions.let_go, self._own_holds.enforce_lag)

    def _call(self, statement: str) -> list[dict[str, Any]]:
        from lakehold.sql.plan.statement_effects import RunOnSpark
        from lakehold.sql.run.spark_statements import run_on_spark

        found = run_on_spark(self._spark(), RunOnSpark(statement, 0, len(statement)))
        return [dict(zip(found.columns, row, strict=True)) for row in found.rows]

    @cached_property
    def subscribing(self) -> Subscribing:
        """Make the object that opens SUBSCRIBEs."""
        from lakehold.subscribe.on_spark import OnSpark
        from lakehold.subscribe.shared_diffs import SharedDiffs
        from lakehold.subscribe.subscription_opening import Subscribing
        from lakehold.subscribe.table_diffs import DiffReading

        on_spark = OnSpark(self._spark, self.settings.catalog_name)
        shared = SharedDiffs(self.settings.shared_diffs_max_bytes)
        driver_rows, far = self.settings.driver_diff_max_rows, is_far(self.settings)
        reading = DiffReading(on_spark, self._workers, shared, driver_rows, far)
        return Subscribing(self.timelines, reading, self.settings, self._read_leases)

    def runner(self, tables: FedTables, has_session: Callable[[], bool]) -> Runner:
        """Make the runner of scripts; arguments as of `Runner`."""
        from lakehold.sql.run.script_run import Runner

        def reads() -> LakeReads:
            from lakehold.sql.run.reads import LakeReads

            return LakeReads(self.subscribing)

        return Runner(
            self.definitions,
            tables,
            self._spark,
            reads,
            self.holds,
            self.subscriptions,
            self.roles,
            lambda: self.captured,
            self.settings.schemas,
            self.settings.catalog_name,
            self.tables.all_names,
            has_session,
        )

    def another_session(self, spark: SparkSession | None = None) -> AbstractContextManager[SparkSession]:
        """Open one more session like the lake's, or like `spark`, until the block ends."""
        from lakehold.other_sessions import another_session

        return another_session(spark or self._spark(), self.settings)

    def read_changes(self, changes: Changes) -> RecordBatchReader:
        """Open the changes of a table as a stream of Arrow batches."""
        from lakehold.spark_errors import readable
        from lakehold.subscribe.table_changes import open_changes

        with readable():
            return open_changes(self.subscribing, changes).reader()

    @cached_property
    def _read_leases(self) -> ReadLeases:
        from lakehold.subscribe.read_leases import ReadLeases

        return ReadLeases(self.read_lease_store, self.settings.expire_grace_ms)

    @cached_property
    def _workers(self) -> ThreadPoolExecutor:
        # Local files are read without waiting: more threads than cores would only wait for each other.
        at_once = max(2, os.cpu_count() or 1) if self.settings.warehouse_path else FILES_AT_ONCE
        return ThreadPoolExecutor(at_once, thread_name_prefix="lakehold-files")

    @cached_property
    def lanes(self) -> Lanes:
        """Make the threads that write several tables at once."""
        from lakehold.ingest.side_by_side import Lanes

        return Lanes(self._spark, self.another_session, self.settings.tables_at_once)

    @cached_property
    def verifying(self) -> Verifying:
        """Make the object that `verify` calls."""
        from lakehold.verify.subject import Subjects
        from lakehold.verify.verifying import Verifying

        return Verifying(
            subjects=Subjects(
                definitions=self.definitions, batches=self.batches, tables=self.tables, timelines=self.timelines
            ),
            batches=self.batches,
            tables=self.tables,
            timelines=self.timelines,
            read_leases=self._read_leases,
            ingest=self._ingest,
            spark=self._spark,
            catalog_name=self.settings.catalog_name,
            timeout_s=self.settings.upstream_timeout_ms / 1000,
        )

    @cached_property
    def view_comparing(self) -> ViewComparing:
        """Make the object that `verify` calls for materialized views."""
        from lakehold.verify.view_comparison import ViewComparing

        return ViewComparing(subscribing=self.subscribing, parse=self._parse_endless)

    def _ingest(self, source: str) -> None:
        with self.ingesting.leased(source, idle_ms=10_000) as ingesting:
            for _ in ingesting.drain():
                pass

    @cached_property
    def backfilling(self) -> Backfilling:
        """Make the object that `backfill` calls."""
        from lakehold.ingest.backfill import Backfilling

        return Backfilling(self.definitions, self.batches, self.tables, self.timelines, self.ingesting.fill)

    @cached_property
    def ingesting(self) -> Opening:
        """Make the object that opens sources for ingesting."""
        from lakehold.ingest.source_opening import Opening

        return Opening(
            settings=self.settings,
            definitions=self.definitions,
            store=self.batches,
            tables=self.tables,
            history=self._held_history,
            captured=lambda: self.captured,
            lanes=self.lanes,
        )

    @contextmanager
    def ingesting_beside(self) -> Iterator[Opening]:
        """Open sources in sessions of their own until the context ends, for a thread that ingests beside others."""
        from lakehold.ingest.side_by_side import Lanes

        with closing(Lanes(self._spark, self.another_session, self.settings.tables_at_once)) as lanes:
            yield replace(self.ingesting, lanes=lanes)
