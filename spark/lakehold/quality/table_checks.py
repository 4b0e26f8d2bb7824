"""Checks tables: reads or generates the suite, reads the snapshot, runs the suite on it, writes the page."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lakehold.errors import DefinitionError, SettingsError, UpstreamUnavailable
from lakehold.file_names import file_name_of
from lakehold.iceberg.data_tables import DataTables, TableState
from lakehold.model.lake_definitions import DefinitionReader
from lakehold.nearest import did_you_mean
from lakehold.quality.generate import FUTURE, FUTURE_MS, TableDescription, generated_suite
from lakehold.quality.snapshot_at import snapshot_at
from lakehold.quality.suite_run import run_suite
from lakehold.quality.suites import GENERATED, Suite, read_suite, write_suite
from lakehold.quality.verdict import Outcome, Verdict
from lakehold.quality.verdict_page import page_uri, write_page
from lakehold.spark_sql import quoted_table
from lakehold.state.hold_checks import DATABASE, QUERY, HoldCheck
from lakehold.state.holds import Hold
from lakehold.state.store import Log
from lakehold.subscribe.read_leases import ReadLeases
from lakehold.tables.stored_key import stored_key
from lakehold.templates import shown_path
from lakehold.timeline.timelines import Timelines
from lakehold.times import now_ms

logger = logging.getLogger(__name__)

CLOCKS_APART_MS = 5 * 60_000
"""How far the clocks of upstream databases may be ahead before a row counts as one of the future, in milliseconds."""


@dataclass(frozen=True)
class Checks:
    """The checks of a lake's tables.

    Args:
        spark: The lake's session.
        catalog_name: Name of the catalog in it.
        tables: The lake's tables.
        definitions: The definitions, with the declared columns of tables.
        timelines: The snapshots of the tables by time.
        kept: The log that keeps verdicts.
        suites: Directory of suites, `<namespace.table>.json`; None: all are generated.
        pages: Directory or URI below which pages are written.
        compare: Compares a table with its database: the one that feeds it, or the one that an expectation's arguments name.
        docs_of: Returns the descriptions of columns that a contract in a file gives for a table, by its full name.
        query_of_snapshots: Rewrites a query over tables of a catalog to read them at snapshots.
        read_leases: Keep the snapshots that a long check reads.
        clock: Epoch milliseconds.
    """

    spark: Callable[[], SparkSession]
    catalog_name: str
    tables: DataTables
    definitions: DefinitionReader
    timelines: Timelines
    kept: Log[HoldCheck]
    suites: Path | None
    pages: str
    compare: Callable[[str, Mapping[str, Any]], Outcome]
    docs_of: Callable[[str], Mapping[str, str]]
    query_of_snapshots: Callable[[str, str, Callable[[str], int | None]], str]
    read_leases: ReadLeases
    clock: Callable[[], int] = now_ms

    def check_at(self, full_name: str, at_ms: int | None = None, hold: Hold | None = None) -> Verdict:
        """Check a table at `at_ms`, or at the time of `hold`, or as it is now, and keep the verdict.

        Raises:
            NotReadable: The table is not readable at `at_ms`. Others as `check` does.
        """
        snapshot = snapshot_at(self.timelines, full_name, at_ms, hold)
        is_present = at_ms is None and hold is None
        verdict = self.check(full_name, snapshot.snapshot_id, snapshot.at_ms, is_present=is_present)
        self.kept.append(as_hold_check(hold.hold_id if hold is not None else "", verdict))
        return verdict

    def keep(self, verdict: Verdict) -> None:
        """Keep the verdict of a comparison of a table with its database, and write its page."""
        try:
            verdict = self._with_page(verdict, self._state(verdict.full_name))
        except (SettingsError, UpstreamUnavailable) as error:
            # A comparison may take hours: its result stands without a page.
            logger.warning("%s", error)
        self.kept.append(as_hold_check("", verdict))

    def check(self, full_name: str, snapshot_id: int | None, at_ms: int, *, is_present: bool = False) -> Verdict:
        """Run the table's suite on a snapshot, and write the page.

        Args:
            full_name: `namespace.table`.
            snapshot_id: The snapshot that the table shows at `at_ms`; None: it has no rows then.
            at_ms: The time it is read at, epoch milliseconds: times later than this by `CLOCKS_APART_MS` are the future.
            is_present: Whether the table is checked as it is now, so that it may be compared with its database. A check of the
                newest snapshot counts as one, too.

        Raises:
            DefinitionError: The table does not exist, or its suite cannot be used.
            EnvironmentMissing: Great Expectations is not installed.
            LakeholdError: An expectation could not be evaluated, or the page could not be written.
        """
        state = self._state(full_name)
        found = read_suite(self.suites, full_name)
        frame = self._frame(full_name, snapshot_id)
        suite = found or self._generated(state, frame)
        future_ms = at_ms + CLOCKS_APART_MS
        parameters = {FUTURE: datetime.fromtimestamp(future_ms / 1000, UTC).isoformat(), FUTURE_MS: future_ms}
        key = [name for name in _key(state) if name in frame.columns]
        compares = is_present or snapshot_id == state.snapshot_id
        compare = partial(self.compare, full_name) if compares else None
        with ExitStack() as leases:
            leases.enter_context(self.read_leases.acquire([full_name], at_ms))
            query_at = None if is_present else self._query_at(at_ms, leases)
            outcomes = run_suite(suite, frame, parameters, key, compare, query_at)
        return self._with_page(Verdict(full_name, snapshot_id, at_ms, suite.origin, outcomes, "", self.clock()), state)

    def _query_at(self, at_ms: int, leases: ExitStack) -> Callable[[str], str]:
        """Return a function that rewrites queries to read other tables at `at_ms`, which `leases` then protect.

        Tables that are not complete until then are read as they are now.
        """

        @cache
        def snapshot_of(full_name: str) -> int | None:
            newest = snapshot_at(self.timelines, full_name)
            at = newest if newest.at_ms <= at_ms else snapshot_at(self.timelines, full_name, at_ms)
            leases.enter_context(self.read_leases.acquire([full_name], at.at_ms))
            return at.snapshot_id

        return lambda query: self.query_of_snapshots(query, self.catalog_name, snapshot_of)

    def _with_page(self, verdict: Verdict, state: TableState) -> Verdict:
        uri = page_uri(self.pages, verdict, str(state.table.metadata.table_uuid))
        write_page(verdict, state.table.io, uri)
        return replace(verdict, html_path=shown_path(uri))

    def page(self, folder: str, file: str) -> str:
        """Read a page that a check of a table wrote, by the name of its file and of the table's folder (`file_name_of`).

        Raises:
            FileNotFoundError: The page does not exist.
            DefinitionError: There is no such table.
        """
        state = self.tables.table_state(folder)
        if state is None:
            checked = (check.table for check in self.kept.values())
            state = self._state(next((name for name in checked if file_name_of(name) == folder), folder))
        with state.table.io.new_input(f"{self.pages.rstrip('/')}/{folder}/{file}").open() as page:
            return page.read().decode()

    def write_suite(self, full_name: str) -> Path:
        """Write the generated suite of a table to a file for editing, and return its path.

        Without a directory of suites, the file goes to `expectations` in the working directory, where suites are looked up.

        Raises:
            DefinitionError: The table does not exist, or the file already exists.
        """
        snapshot = snapshot_at(self.timelines, full_name)
        suite = self._generated(self._state(full_name), self._frame(full_name, snapshot.snapshot_id))
        return write_suite(self.suites or Path("expectations").resolve(), suite)

    def _generated(self, state: TableState, frame: DataFrame) -> Suite:
        types = {field.name: field.dataType.simpleString() for field in frame.schema}
        entry = self.definitions.definitions().tables.get(state.full_name)
        if entry is not None and entry.definition.columns:
            # The declared columns are the contract; the table may have been changed since.
            types = {column.name: column.type for column in entry.definition.columns}
        stored = {field.name: field.doc for field in state.schema.fields if field.doc}
        docs = {**stored, **self.docs_of(state.full_name)}
        return generated_suite(TableDescription(state.full_name, types, _key(state), docs))

    def _frame(self, full_name: str, snapshot_id: int | None) -> DataFrame:
        table = quoted_table(self.catalog_name, full_name)
        if snapshot_id is None:
            return self.spark().sql(f"SELECT * FROM {table} LIMIT 0")
        # Read with the schema of the snapshot, as every engine reads a tag.
        return self.spark().sql(f"SELECT * FROM {table} VERSION AS OF {snapshot_id}")

    def _state(self, full_name: str) -> TableState:
        state = self.tables.table_state(full_name)
        if state is None:
            known = {*self.definitions.definitions().all_tables, *self.tables.all_names()}
            raise DefinitionError(
                f'table "{full_name}" does not exist',
                code="table-missing",
                hint=did_you_mean(full_name, known, "SHOW TABLES IN a namespace lists its tables."),
            )
        return state


def as_hold_check(hold_id: str, verdict: Verdict) -> HoldCheck:
    """Convert the verdict on a table to the row that is kept; an empty `hold_id` stands for no hold."""
    failures = (
        f"{o.expectation}{f' ({o.column})' if o.column else ''}: expected {o.expected}, found {o.found}"
        for o in verdict.failed
    )
    return HoldCheck(
        hold_id=hold_id,
        table=verdict.full_name,
        snapshot_id=verdict.snapshot_id,
        at_ms=verdict.at_ms,
        suite=verdict.suite if verdict.suite in (GENERATED, DATABASE, QUERY) else Path(verdict.suite).name,
        success=verdict.success,
        statistics=verdict.statistics,
        failures=tuple(failures),
        html_path=verdict.html_path,
        checked_at_ms=verdict.checked_at_ms,
    )


def _key(state: TableState) -> tuple[str, ...]:
    """Return the key that a source's table was created with, or Iceberg's identifier fields."""
    stored = tuple(column.name for column in stored_key(state))
    return stored or tuple(sorted(state.schema.identifier_field_names()))
