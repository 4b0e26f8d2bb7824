"""Runs a script: parses all of it, then plans and acts statement by statement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, assert_never
from uuid import uuid4

from lakehold.catalog.definitions import Definitions, DefinitionStore, Entry
from lakehold.definitions import Connection, Source, Table
from lakehold.errors import DefinitionError
from lakehold.sql.contracts import contracted
from lakehold.sql.effects import (
    DefinitionEffect,
    DropDefinitions,
    DropIcebergTable,
    ExplainChanges,
    Notice,
    Plan,
    PutDefinition,
    ReadAsOf,
    ReadChanges,
    Rows,
    RunOnSpark,
)
from lakehold.sql.engine import readable, run_on_spark
from lakehold.sql.parse import ParsedStatement, parse_script
from lakehold.sql.plan import plan
from lakehold.sql.result import Result
from lakehold.sql.statements import CreateTable
from lakehold.subscribe.statement import Query, Subscribe
from lakehold.times import now_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FedTables(Protocol):
    """What dropping a table undoes outside of the definitions."""

    def drop_iceberg_table(self, full_name: str) -> None:
        """Drop the Iceberg table with its data; nothing when it was never made."""


class Reads(Protocol):
    """What reads tables at a time and over time."""

    def read_as_of(self, query: Query, as_of_ms: int) -> Result:
        """The result of a query over its tables as they were."""

    def read_changes(self, subscribe: Subscribe) -> Result:
        """What a SUBSCRIBE gives now."""

    def explain_changes(self, subscribe: Subscribe) -> Result:
        """How it would be read."""


@dataclass(frozen=True)
class Runner:
    """Runs scripts on one lake.

    Attributes:
        store: The definitions.
        tables: What stands behind them.
        spark: Gives the session, made when a statement first needs it: starting one takes seconds.
        reads: Reads the lake at a time and over time.
        schemas: Directory of the tables' contracts; None: there are none.
    """

    store: DefinitionStore
    tables: FedTables
    spark: Callable[[], SparkSession]
    reads: Reads
    schemas: Path | None = None

    def run(self, sql: str) -> Result:
        """Run every statement of `sql`; the result of the last one counts, the notices of all.

        Raises:
            StatementError: Some statement is not well formed; then none has run.
            DefinitionError: A statement contradicts the definitions; those before it have run.
            LakeholdError: Spark failed on a statement; those before it have run.
        """
        script = parse_script(sql)
        result = Result()
        notices: list[str] = []
        for parsed in script:
            try:
                result = self._run_statement(self._contracted(parsed))
            except DefinitionError as error:
                if len(script) > 1:
                    error.detail = f"{error.detail} The statement is on line {parsed.written.line}.".strip()
                raise
            notices += result.notices
        return replace(result, notices=tuple(notices))

    def _contracted(self, parsed: ParsedStatement) -> ParsedStatement:
        """The statement with what the table's file says in its place, read once: plans have no effects."""
        if not isinstance(parsed.statement, CreateTable):
            return parsed
        table = contracted(parsed.statement.table, self.schemas)
        return replace(parsed, statement=replace(parsed.statement, table=table))

    def _run_statement(self, parsed: ParsedStatement) -> Result:
        decided = plan(parsed, self.store.definitions())
        if decided.definition_effects:
            decided = self._change_definitions(parsed)
        return self._act(decided)

    def _change_definitions(self, parsed: ParsedStatement) -> Plan:
        """Commit what the statement does to the definitions, planned again on those it commits to."""
        decided = Plan()

        def apply(current: Definitions) -> Definitions:
            nonlocal decided
            decided = plan(parsed, current)
            for effect in decided.definition_effects:
                current = _changed(current, effect)
            return current

        self.store.change(apply)
        return decided

    def _act(self, decided: Plan) -> Result:
        """The effects behind the commit. A table's definition goes first, so that no batch makes the table again."""
        result = Result()
        notices: list[str] = []
        for effect in decided.effects:
            match effect:
                case PutDefinition() | DropDefinitions():
                    pass  # committed already
                case DropIcebergTable(full_name):
                    self.tables.drop_iceberg_table(full_name)
                case RunOnSpark():
                    result = run_on_spark(self.spark(), effect)
                case ReadAsOf(query, as_of_ms):
                    with readable():
                        result = self.reads.read_as_of(query, as_of_ms)
                case ReadChanges(subscribe):
                    with readable():
                        result = self.reads.read_changes(subscribe)
                case ExplainChanges(subscribe):
                    with readable():
                        result = self.reads.explain_changes(subscribe)
                case Rows(columns, rows):
                    result = Result(columns, list(rows))
                case Notice(text):
                    notices.append(text)
                case other:
                    assert_never(other)
        return replace(result, notices=(*result.notices, *notices))


def _changed(definitions: Definitions, effect: DefinitionEffect) -> Definitions:
    match effect:
        case PutDefinition(definition, sql):
            return definitions.with_entry(_entry(definition, sql))
        case DropDefinitions(dropped):
            for definition in dropped:
                definitions = definitions.without(definition)
            return definitions
        case other:
            assert_never(other)


def _entry(definition: Connection | Source | Table, sql: str) -> Entry[Connection] | Entry[Source] | Entry[Table]:
    object_id, created_at_ms = uuid4().hex, now_ms()
    match definition:
        case Connection():
            return Entry(object_id, definition, sql, created_at_ms)
        case Source():
            return Entry(object_id, definition, sql, created_at_ms)
        case Table():
            return Entry(object_id, definition, sql, created_at_ms)
