"""Running a script, for `lake.sql` and `lakehold sql`: parse all of it, then plan and run one statement after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, assert_never

from lakehold.definitions import Source
from lakehold.errors import LakeholdError
from lakehold.holds.commands import HoldCommands, NewHold
from lakehold.holds.roles import RoleCommands
from lakehold.model.lake_definitions import DerivedEntry
from lakehold.publish.subscriptions import COLUMNS as SUBSCRIPTION_COLUMNS
from lakehold.publish.subscriptions import VIEW_COLUMNS
from lakehold.settings import DEFAULT_CATALOG
from lakehold.spark_errors import readable
from lakehold.sql.contracts import with_contract
from lakehold.sql.parse.statement import parse_script
from lakehold.sql.plan.explanation import combine
from lakehold.sql.plan.statement_effects import (
    BeginSubscription,
    ChangeDefinition,
    DropDefinitions,
    DropHolds,
    DropIcebergTable,
    EndSubscription,
    ExplainChanges,
    ExplainPlan,
    HoldEffect,
    ListHolds,
    ListSubscriptions,
    ListViews,
    ManageRoles,
    MoveHold,
    NameHold,
    Notice,
    Plan,
    PutDefinition,
    PutHold,
    ReadAsOf,
    ReadChanges,
    Reconcile,
    Release,
    Rows,
    RunOnSpark,
    SetMaxLag,
)
from lakehold.sql.result import Result
from lakehold.sql.run.definition_change import DefinitionChange, apply_plan, locating_errors
from lakehold.sql.run.hold_change import HoldChange
from lakehold.sql.run.list_holds import list_holds
from lakehold.sql.run.roles import check_privileges, run_on_roles
from lakehold.sql.run.spark_statements import S, run_on_spark, suggesting, with_full_name
from lakehold.sql.run.upstream import Upstream, explain, reconciled
from lakehold.sql.statements import CreateTable, ExplainDefinition, ParsedStatement
from lakehold.sql.transactions import Transaction, units
from lakehold.state.holds import Hold
from lakehold.state.objects import DefinitionStore
from lakehold.subscribe.statement import Query, Subscribe
from lakehold.timeline.as_of import AsOf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FedTables(Protocol):
    """The state of fed tables (those that sources fill) and of sources outside of the definitions, which a drop removes."""

    def drop_iceberg_table(self, full_name: str, object_id: str) -> bool:
        """Drop the Iceberg table with its data, if it exists; return False if one of this name stays, as it may be another's."""

    def forget_source(self, name: str) -> None:
        """Remove the reader state of a source that is not declared, unless an ingest runs the source."""


class Reads(Protocol):
    """Queries of tables at a time, and of their changes over time."""

    def read_as_of(self, query: Query, as_of: AsOf) -> Result:
        """Run a query over its tables as they were at one time."""

    def read_changes(self, subscribe: Subscribe) -> Result:
        """Read the rows of a SUBSCRIBE up to now."""

    def explain_changes(self, subscribe: Subscribe) -> Result:
        """Describe how lakehold would read a SUBSCRIBE."""

    def run_on_spark(self, statement: RunOnSpark) -> Result:
        """Let Spark run a statement that reads `CHANGES(…)`."""


class SubscriptionCommands(Protocol):
    """The commands on subscriptions and views outside of the definitions."""

    def begin(self, entry: DerivedEntry, tables: Mapping[str, str]) -> AbstractContextManager[None]:
        """Hold the tables that a new subscription or view reads while the block declares it; raise if they cannot be read.

        Args:
            entry: The new subscription or view.
            tables: Object ids of tables that the block declares as well, by full name.
        """

    def end(self, entry: DerivedEntry, *, with_output: bool) -> None:
        """Drop the hold of a dropped subscription or view, and its table if `with_output`."""

    def overview(self) -> list[tuple[Any, ...]]:
        """List the subscriptions and their progress: rows of `lakehold.publish.subscriptions.COLUMNS`."""

    def views(self) -> list[tuple[Any, ...]]:
        """List the materialized views and their progress: rows of `lakehold.publish.subscriptions.VIEW_COLUMNS`."""


@dataclass(frozen=True)
class Runner:
    """The runner of scripts on one lake.

    Attributes:
        store: The definitions.
        tables: The state of fed tables and sources outside of the definitions.
        spark: Returns the Spark session, and starts it when a statement first needs it: that takes seconds.
        reads: Returns what queries tables at a time, and their changes over time; few statements import it.
        holds: The commands on holds.
        subscriptions: The commands on subscriptions and views.
        roles: The commands on roles, with the privilege check for holds and subscriptions.
        upstream: Returns the upstream objects of sources that capture a database; few statements import their clients.
        schemas: Directory of the tables' contracts; None: there are none.
        catalog_name: Name of the lake's catalog, with which names of tables may begin.
        names: Returns the full names of all tables of the catalog, to suggest one.
        has_session: Returns whether the session is open: the catalog of a new one is the lake's.
    """

    store: DefinitionStore
    tables: FedTables
    spark: Callable[[], SparkSession]
    reads: Callable[[], Reads]
    holds: HoldCommands
    subscriptions: SubscriptionCommands
    roles: RoleCommands
    upstream: Callable[[], Upstream]
    schemas: Path | None = None
    catalog_name: str = DEFAULT_CATALOG
    names: Callable[[], Iterable[str]] = tuple
    has_session: Callable[[], bool] = lambda: False

    def run(self, sql: str) -> Result:
        """Run every statement of `sql`; return the result of the last one, with the notices of all.

        Raises:
            StatementError: A statement is not well formed; then none has run.
            DefinitionError: A statement contradicts the definitions; those before it have run.
            PermissionDenied: The program's role may not run a statement; those before it have run.
            LakeholdError: Spark failed on a statement; those before it have run. Each error has the notices of all that ran.
        """
        result = Result()
        notices: list[str] = []
        script = parse_script(sql, self.catalog_name)
        try:
            for unit in units(script):
                if isinstance(unit, Transaction):
                    result = self._run_transaction(unit, notices)
                else:
                    with locating_errors(unit, alone=len(script) == 1), suggesting(self._tables):
                        result = self._run_statement(self._completed(unit), notices)
        except LakeholdError as error:
            error.notices = tuple(notices)
            raise
        return replace(result, notices=tuple(notices))

    def _run_transaction(self, unit: Transaction, notices: list[str]) -> Result:
        if unit.changes_holds:
            self._change_holds_together(unit.statements, notices)
            return Result()
        statements = [self._completed(parsed) for parsed in unit.statements]
        if unit.is_explained:
            result = self._explain_together(statements)
            notices += result.notices
            return result
        self._run_together(statements, notices)
        return Result()

    def _tables(self) -> set[str]:
        return {*self.store.definitions().all_tables, *self.names()}

    def _completed(self, parsed: ParsedStatement) -> ParsedStatement:
        """Complete the statement by the contract of its table and the session's namespace: plans cannot read either."""
        statement = parsed.statement
        if not isinstance(statement, ExplainDefinition):
            return replace(parsed, statement=self._complete(statement))
        # EXPLAIN plans the statement that would run.
        return replace(parsed, statement=replace(statement, statement=self._complete(statement.statement)))

    def _complete(self, statement: S) -> S:
        if isinstance(statement, CreateTable):
            return replace(statement, table=with_contract(statement.table, self.schemas))
        return with_full_name(statement, self.catalog_name, self._session, self.has_session)

    def _session(self) -> SparkSession:
        with readable():
            return self.spark()

    def _run_statement(self, parsed: ParsedStatement, notices: list[str]) -> Result:
        change = DefinitionChange([parsed], self.holds.all, self._check)
        change.apply(self.store.definitions())
        if any(isinstance(effect, BeginSubscription) for effect in change.plans[0].effects):
            self._run_together([parsed], notices)
            return Result()
        with reconciled(change, self.store, self.upstream, notices):
            for effect in change.plans[0].effects:
                if isinstance(effect, SetMaxLag):
                    self.holds.set_max_lag(effect.object_id, effect.definition.max_lag_ms)
            if change.plans[0].definition_effects:
                self._commit(change)
        return self._apply_effects(change.plans[0], notices)

    def _check(self, plan: Plan) -> None:
        check_privileges(plan, self.roles.guard)

    def _run_together(self, statements: Sequence[ParsedStatement], notices: list[str]) -> None:
        """Run statements as one commit of definitions.

        Their holds are stored before the commit and become visible with it, or are removed if it fails.
        """
        change = DefinitionChange(statements, self.holds.all, self._check)
        after = change.apply(self.store.definitions())
        held: list[tuple[NewHold, Hold]] = []
        with reconciled(change, self.store, self.upstream, notices), ExitStack() as made:
            for parsed, plan in zip(statements, change.plans, strict=True):
                with locating_errors(parsed, alone=len(statements) == 1), readable():
                    for effect in plan.effects:
                        if isinstance(effect, PutHold):
                            hold = made.enter_context(self.holds.created(effect.hold, change.declared))
                            held.append((effect.hold, hold))
                        elif isinstance(effect, BeginSubscription):
                            entry = after.entry_of(effect.definition)
                            made.enter_context(self.subscriptions.begin(entry, change.declared))
            self._commit(change)
            notices += [e.text for plan in change.plans for e in plan.effects if isinstance(e, Notice)]
        for new, hold in held:
            notices += self.holds.notices(new, hold)

    def _commit(self, change: DefinitionChange) -> None:
        """Commit the definitions, then remove the reader state of dropped sources.

        If a process dies in between, creating a source of the same name removes that state. It is not removed earlier:
        another process may have created and read the new source meanwhile.
        """
        effects = [effect for plan in change.plans for effect in plan.definition_effects]
        about = [effect.definition for effect in effects if isinstance(effect, PutDefinition)]
        about += [each for effect in effects if isinstance(effect, DropDefinitions) for each in effect.definitions]
        self.store.change(change.apply)
        for definition in about:
            if isinstance(definition, Source):
                self.tables.forget_source(definition.name)

    def _explain_together(self, statements: Sequence[ParsedStatement]) -> Result:
        """Describe what `_run_together` would do."""
        change = DefinitionChange(statements, self.holds.all)
        before = self.store.definitions()
        after = change.apply(before)
        return explain(combine(change.plans), before, after, self.upstream())

    def _change_holds_together(self, statements: Sequence[ParsedStatement], notices: list[str]) -> None:
        """Run statements that rename and drop holds as one commit of holds."""
        change = HoldChange(statements, self.store, self.roles.guard)
        self.holds.change(change.apply)
        notices += change.notices

    def _apply_effects(self, plan: Plan, notices: list[str]) -> Result:
        """Make the effects that follow the commit of the definitions.

        A table is dropped after its definition, so that no batch creates the table again.
        """
        result = Result()
        for effect in plan.effects:
            match effect:
                case (
                    PutDefinition()
                    | ChangeDefinition()
                    | DropDefinitions()
                    | BeginSubscription()
                    | SetMaxLag()
                    | Reconcile()
                    | Release()
                ):
                    pass  # done around the commit
                case DropIcebergTable():
                    notices += self._drop_iceberg_table(effect)
                case PutHold() | MoveHold() | NameHold() | DropHolds():
                    notices += self._change_holds(effect)
                case EndSubscription() | ListSubscriptions() | ListViews():
                    result = self._on_subscriptions(effect)
                case ListHolds(holds):
                    result = list_holds(holds, self.store.definitions(), self.roles.all())
                case ManageRoles(statement):
                    result = run_on_roles(statement, self.roles)
                case RunOnSpark():
                    result = (
                        self.reads().run_on_spark(effect) if effect.changes else run_on_spark(self._session(), effect)
                    )
                case ReadAsOf() | ReadChanges() | ExplainChanges() | ExplainPlan():
                    with readable():
                        result = self._read(effect)
                case Rows(columns, rows):
                    result = Result(columns, list(rows))
                case Notice(text):
                    notices.append(text)
                case other:
                    assert_never(other)
        notices += result.notices
        return result

    def _drop_iceberg_table(self, effect: DropIcebergTable) -> tuple[str, ...]:
        if self.tables.drop_iceberg_table(effect.full_name, effect.object_id):
            return ()
        return (
            f'the Iceberg table "{effect.full_name}" stays: the dropped table did not create it, or it cannot be read',
        )

    def _read(self, effect: ReadAsOf | ReadChanges | ExplainChanges | ExplainPlan) -> Result:
        match effect:
            case ReadAsOf(query, as_of):
                return self.reads().read_as_of(query, as_of)
            case ReadChanges(subscribe):
                return self.reads().read_changes(subscribe)
            case ExplainChanges(subscribe):
                return self.reads().explain_changes(subscribe)
            case ExplainPlan(planned):
                before = self.store.definitions()
                return explain(planned, before, apply_plan(before, planned), self.upstream())
            case other:
                assert_never(other)

    def _change_holds(self, effect: HoldEffect) -> tuple[str, ...]:
        """Change one hold, and return notices for the person."""
        match effect:
            case PutHold(hold):
                return self.holds.notices(hold, self.holds.create(hold))
            case MoveHold(name, to_ms):
                self.holds.advance(name, to_ms)
            case NameHold(hold, new_name):
                self.holds.rename(hold.full_name, new_name)
            case DropHolds(holds):
                self.holds.drop_all(holds)
            case other:
                assert_never(other)
        return ()

    def _on_subscriptions(self, effect: EndSubscription | ListSubscriptions | ListViews) -> Result:
        match effect:
            case EndSubscription(entry, with_output):
                self.subscriptions.end(entry, with_output=with_output)
            case ListSubscriptions():
                return Result(SUBSCRIPTION_COLUMNS, self.subscriptions.overview())
            case ListViews():
                return Result(VIEW_COLUMNS, self.subscriptions.views())
            case other:
                assert_never(other)
        return Result()
