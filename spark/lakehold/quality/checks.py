"""Checks tables: finds or makes the suite, reads the snapshot, runs the one on the other, writes the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from lakehold.errors import DefinitionError
from lakehold.iceberg.data_tables import DataTables, TableState
from lakehold.ingest.envelope.stored_key import stored_key
from lakehold.model.definitions import DefinitionReader
from lakehold.quality.generate import FUTURE, FUTURE_MS, TableDescription, generated_suite
from lakehold.quality.page import page_uri, write_page
from lakehold.quality.run import run_suite
from lakehold.quality.snapshot_at import snapshot_at
from lakehold.quality.suites import GENERATED, Suite, read_suite, write_suite
from lakehold.quality.verdict import Verdict
from lakehold.spark_sql import quoted_table
from lakehold.state.hold_checks import HoldCheck
from lakehold.state.holds import Hold
from lakehold.state.store import Log
from lakehold.templates import shown_path
from lakehold.timeline.timelines import Timelines
from lakehold.times import now_ms

CLOCKS_APART_MS = 5 * 60_000
"""How far the clocks of upstream databases may be ahead before a row is one of the future, in milliseconds."""


@dataclass(frozen=True)
class Checks:
    """Checks the tables of a lake.

    Args:
        spark: The lake's session.
        catalog_name: Name of the catalog in it.
        tables: The lake's tables.
        definitions: Which of them have declared columns.
        timelines: Which snapshots they had when.
        kept: Where verdicts on holds are kept.
        suites: Directory of suites, `<namespace.table>.json`; None: all are generated.
        pages: Directory or URI below which pages are written.
        docs_of: Column to description, of a table by its full name, where a contract in a file has them.
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
    docs_of: Callable[[str], Mapping[str, str]]
    clock: Callable[[], int] = now_ms

    def check_at(self, full_name: str, at_ms: int | None = None, hold: Hold | None = None) -> Verdict:
        """Check a table at `at_ms`, or where `hold` keeps it, or as it is now; the verdict is kept.

        Raises:
            NotReadable: The table is not readable at `at_ms`. Others as `check` does.
        """
        snapshot = snapshot_at(self.timelines, full_name, at_ms, hold)
        verdict = self.check(full_name, snapshot.snapshot_id, snapshot.at_ms)
        self.kept.append(as_hold_check(hold.hold_id if hold is not None else "", verdict))
        return verdict

    def check(self, full_name: str, snapshot_id: int | None, at_ms: int) -> Verdict:
        """Run the table's suite on a snapshot, and write the page.

        Args:
            full_name: `namespace.table`.
            snapshot_id: The snapshot that the table shows at `at_ms`; None: it has no rows then.
            at_ms: The time it is read at, epoch milliseconds: what is later is the future.

        Raises:
            DefinitionError: The table is not there, or its suite cannot be used.
            EnvironmentMissing: Great Expectations is not installed.
            LakeholdError: An expectation could not be evaluated.
        """
        state = self._state(full_name)
        found = read_suite(self.suites, full_name)
        frame = self._frame(full_name, snapshot_id)
        suite = found or self._generated(state, frame)
        future_ms = at_ms + CLOCKS_APART_MS
        parameters = {FUTURE: datetime.fromtimestamp(future_ms / 1000, UTC).isoformat(), FUTURE_MS: future_ms}
        outcomes = run_suite(suite, frame, parameters, [name for name in _key(state) if name in frame.columns])
        verdict = Verdict(full_name, snapshot_id, at_ms, suite.origin, outcomes, "", self.clock())
        uri = page_uri(self.pages, verdict)
        write_page(verdict, state.table.io, uri)
        return replace(verdict, html_path=shown_path(uri))

    def page(self, full_name: str, file: str) -> str:
        """A page that a check of a table wrote, by the name of its file.

        Raises:
            FileNotFoundError: There is none.
            DefinitionError: The table is not there.
        """
        io = self._state(full_name).table.io
        with io.new_input(f"{self.pages.rstrip('/')}/{full_name}/{file}").open() as page:
            return page.read().decode()

    def write_suite(self, full_name: str) -> Path:
        """Write the suite that is made from what is known of a table, to be edited; the file's path.

        Without a directory of suites it becomes `expectations` in the working directory, where they are looked for.

        Raises:
            DefinitionError: The table is not there, or the file is.
        """
        snapshot = snapshot_at(self.timelines, full_name)
        suite = self._generated(self._state(full_name), self._frame(full_name, snapshot.snapshot_id))
        return write_suite(self.suites or Path("expectations").resolve(), suite)

    def _generated(self, state: TableState, frame: DataFrame) -> Suite:
        types = {field.name: field.dataType.simpleString() for field in frame.schema}
        entry = self.definitions.definitions().tables.get(state.full_name)
        if entry is not None and entry.definition.columns:
            # What was promised; the table may have been changed since.
            types = {column.name: column.type for column in entry.definition.columns}
        stored = {field.name: field.doc for field in state.schema.fields if field.doc}
        docs = {**stored, **self.docs_of(state.full_name)}
        return generated_suite(TableDescription(state.full_name, types, _key(state), docs))

    def _frame(self, full_name: str, snapshot_id: int | None) -> DataFrame:
        table = quoted_table(self.catalog_name, full_name)
        if snapshot_id is None:
            return self.spark().sql(f"SELECT * FROM {table} LIMIT 0")
        # With the schema that the snapshot had, as every engine reads a tag.
        return self.spark().sql(f"SELECT * FROM {table} VERSION AS OF {snapshot_id}")

    def _state(self, full_name: str) -> TableState:
        state = self.tables.table_state(full_name)
        if state is None:
            raise DefinitionError(
                f'table "{full_name}" does not exist',
                code="table-missing",
                hint="SHOW TABLES IN a namespace lists what is there.",
            )
        return state


def as_hold_check(hold_id: str, verdict: Verdict) -> HoldCheck:
    """What is kept of the verdict on a table, of a hold or, with an empty id, of none."""
    failures = (
        f"{o.expectation}{f' ({o.column})' if o.column else ''}: expected {o.expected}, found {o.found}"
        for o in verdict.failed
    )
    return HoldCheck(
        hold_id=hold_id,
        table=verdict.full_name,
        snapshot_id=verdict.snapshot_id,
        at_ms=verdict.at_ms,
        suite=verdict.suite if verdict.suite == GENERATED else Path(verdict.suite).name,
        success=verdict.success,
        statistics=verdict.statistics,
        failures=tuple(failures),
        html_path=verdict.html_path,
        checked_at_ms=verdict.checked_at_ms,
    )


def _key(state: TableState) -> tuple[str, ...]:
    """The key that a source's table was made with, or Iceberg's identifier fields."""
    stored = tuple(column.name for column in stored_key(state))
    return stored or tuple(sorted(state.schema.identifier_field_names()))
