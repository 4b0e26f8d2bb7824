"""Planning: statement and definitions -> plan. Pure: all checks that need the definitions are here, and no effects.

`script_run` then makes the effects of the plan, or explains them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import assert_never

from lakehold.definitions import (
    Connection,
    Definition,
    Derived,
    MaterializedView,
    ObjectKind,
    Source,
    Subscription,
    Table,
    described,
)
from lakehold.errors import DefinitionError
from lakehold.holds.rules import find as find_hold
from lakehold.model.lake_definitions import Definitions
from lakehold.model.reserved_namespaces import refuse_reserved
from lakehold.nearest import did_you_mean
from lakehold.object_names import object_text
from lakehold.spark_sql import quoted
from lakehold.sql.plan.by_hand import check_by_hand, check_not_own, known_name
from lakehold.sql.plan.capture import altered, reconciling, releasing, with_topic
from lakehold.sql.plan.connections import alter_connection, check_connection
from lakehold.sql.plan.holds import (
    create_hold,
    drop_hold,
    drop_holds_on,
    show_create_hold,
)
from lakehold.sql.plan.retention import retain_history
from lakehold.sql.plan.show import show, show_create
from lakehold.sql.plan.sources import alter_source, check_source, read_by_others
from lakehold.sql.plan.statement_effects import (
    BeginSubscription,
    DropDefinitions,
    DropIcebergTable,
    Effect,
    EndSubscription,
    ExplainChanges,
    ExplainPlan,
    ListHolds,
    ListSubscriptions,
    ListViews,
    ManageRoles,
    MoveHold,
    NameHold,
    Notice,
    Plan,
    PutDefinition,
    ReadAsOf,
    ReadChanges,
    RunOnSpark,
)
from lakehold.sql.plan.subscriptions import alter_derived, check_no_output, check_subscription, check_view
from lakehold.sql.query.double_quotes import texts_like_columns
from lakehold.sql.render import differences
from lakehold.sql.statements import (
    AdvanceHold,
    AlterOptions,
    AlterSource,
    Begin,
    Commit,
    CreateConnection,
    CreateHold,
    CreateMaterializedView,
    CreateRole,
    CreateSource,
    CreateSubscription,
    CreateTable,
    Drop,
    DropHold,
    DropRole,
    ExplainDefinition,
    ExplainSubscribe,
    ForSpark,
    GrantPrivileges,
    ParsedStatement,
    RenameHold,
    RetainHistory,
    RevokePrivileges,
    SelectAsOf,
    Show,
    ShowCreate,
    ShowCreateHold,
    ShowGrants,
    ShowHolds,
    ShowRoles,
    SubscribeTo,
)
from lakehold.state.holds import Holds


def plan(  # noqa: PLR0911, PLR0912 - one for each statement
    parsed: ParsedStatement, definitions: Definitions, holds: Holds = ()
) -> Plan:
    """Plan the effects of a statement on a lake.

    Args:
        parsed: The statement.
        definitions: The definitions of the lake.
        holds: The holds of the lake; only statements for which `needs_holds` is true need them.

    Raises:
        DefinitionError: An object is missing, exists already, is still used, or contradicts another.
    """
    match parsed.statement:
        case CreateConnection(connection, if_not_exists):
            check_connection(connection)
            return _put(parsed, connection, if_not_exists, definitions)
        case CreateSource(source, if_not_exists):
            check_source(source, definitions)
            put = _put(parsed, source, if_not_exists, definitions)
            return Plan((*put.effects, *read_by_others(source, definitions)))
        case CreateTable(table, if_not_exists):
            table = with_topic(table, definitions.source(table.source))
            _check_table(table, definitions)
            put = _put(parsed, table, if_not_exists, definitions)
            return Plan((*put.effects, *reconciling(table, definitions)))
        case CreateSubscription(subscription, if_not_exists):
            return _put_derived(parsed, subscription, if_not_exists, definitions)
        case CreateMaterializedView(view, if_not_exists):
            return _put_derived(parsed, view, if_not_exists, definitions)
        case AlterSource(name, resnapshot):
            return Plan((altered(name, resnapshot=resnapshot, definitions=definitions),))
        case ExplainDefinition(statement):
            written = replace(parsed.written, tokens=parsed.written.tokens[1:])
            return Plan((ExplainPlan(plan(replace(parsed, statement=statement, written=written), definitions, holds)),))
        case RetainHistory(name, retained_ms):
            return retain_history(name, retained_ms, definitions, parsed.written.catalog)
        case AlterOptions(ObjectKind.CONNECTION, name, options):
            return alter_connection(definitions.connection(name), options, definitions)
        case AlterOptions(ObjectKind.SOURCE, name, options):
            return alter_source(definitions.source(name), options)
        case AlterOptions(ObjectKind.MATERIALIZED_VIEW, name, options):
            return alter_derived(definitions.view(name), options)
        case AlterOptions(_, name, options):
            return alter_derived(definitions.subscription(name), options)
        case Drop() as drop:
            return _drop(parsed, drop, definitions, holds)
        case CreateHold() as create:
            return create_hold(create, parsed.written.text, holds)
        case AdvanceHold(name, to_ms):
            return Plan((MoveHold(name, to_ms),))
        case RenameHold(name, new_name):
            return Plan((NameHold(find_hold(holds, name), new_name),))
        case DropHold() as dropping:
            return drop_hold(dropping, holds, definitions)
        case ShowHolds():
            return Plan((ListHolds(holds),))
        case ShowCreateHold(name):
            return Plan((show_create_hold(find_hold(holds, name)),))
        case (
            CreateRole() | DropRole() | GrantPrivileges() | RevokePrivileges() | ShowRoles() | ShowGrants()
        ) as statement:
            return Plan((ManageRoles(statement),))
        case Begin() | Commit():
            return Plan()
        case Show(ObjectKind.SUBSCRIPTION):
            return Plan((ListSubscriptions(),))
        case Show(ObjectKind.MATERIALIZED_VIEW):
            return Plan((ListViews(),))
        case Show(kind):
            return Plan((show(kind, definitions),))
        case ShowCreate(kind, name):
            if kind is ObjectKind.TABLE and name not in definitions.tables:
                return Plan((_on_spark(parsed),))
            return Plan((show_create(find(kind, name, definitions)),))
        case SelectAsOf(query, as_of):
            return Plan((ReadAsOf(query, as_of),))
        case SubscribeTo(subscribe):
            return Plan((ReadChanges(subscribe),))
        case ExplainSubscribe(subscribe):
            return Plan((ExplainChanges(subscribe),))
        case ForSpark(verb, targets, changes):
            for target in targets:
                check_by_hand(verb, target, definitions, holds)
            return Plan((replace(_on_spark(parsed), changes=changes),))
        case other:
            assert_never(other)


def find(kind: ObjectKind, name: str, definitions: Definitions) -> Definition:
    """Return the definition of `kind` called `name`."""
    match kind:
        case ObjectKind.CONNECTION:
            return definitions.connection(name)
        case ObjectKind.SOURCE:
            return definitions.source(name)
        case ObjectKind.TABLE:
            return definitions.table(name).definition
        case ObjectKind.SUBSCRIPTION:
            return definitions.subscription(name).definition
        case ObjectKind.MATERIALIZED_VIEW:
            return definitions.view(name).definition
        case other:
            assert_never(other)


def _existing(definition: Definition, definitions: Definitions) -> tuple[ObjectKind, str, Definition | None]:
    """Return the kind and the full name of `definition`, and the definition that has this name now."""
    match definition:
        case Connection(name=name):
            kind, found = ObjectKind.CONNECTION, name in definitions.connections
        case Source(name=name):
            kind, found = ObjectKind.SOURCE, name in definitions.sources
        case Table(full_name=name):
            kind, found = ObjectKind.TABLE, name in definitions.tables
        case Subscription(name=name):
            kind, found = ObjectKind.SUBSCRIPTION, name in definitions.subscriptions
        case MaterializedView(full_name=name):
            kind, found = ObjectKind.MATERIALIZED_VIEW, name in definitions.views
        case other:
            assert_never(other)
    return kind, name, find(kind, name, definitions) if found else None


def _put(parsed: ParsedStatement, definition: Definition, if_not_exists: bool, definitions: Definitions) -> Plan:
    kind, name, existing = _existing(definition, definitions)
    if existing is None:
        return Plan((PutDefinition(definition, parsed.written.text),))
    differing = "; ".join(f"it has {old}, the statement says {new}" for old, new in differences(existing, definition))
    if not if_not_exists:
        raise DefinitionError(
            f'{kind} "{name}" already exists',
            code=f"{_code(kind)}-exists",
            detail=f"{differing[:1].upper()}{differing[1:]}." if differing else "It has the same definition.",
            hint=f"{_way_to_change(kind, name)}, or write CREATE {kind.upper()} IF NOT EXISTS to leave it as it is.",
        )
    return Plan((Notice(f'{kind} "{name}" exists and stays as it is: {differing}'),) if differing else ())


def _way_to_change(kind: ObjectKind, name: str) -> str:
    if kind is ObjectKind.CONNECTION:
        return f"Change its options by ALTER CONNECTION {object_text(name)} SET (…)"
    return "Drop it first"


def _code(kind: ObjectKind) -> str:
    return kind.value.replace(" ", "-")


def _put_derived(parsed: ParsedStatement, new: Derived, if_not_exists: bool, definitions: Definitions) -> Plan:
    put = _put(parsed, new, if_not_exists, definitions)
    if not put.definition_effects:
        return put
    refuse_reserved(new.into.partition(".")[0], "table")
    match new:
        case Subscription():
            check_subscription(new, definitions)
        case MaterializedView():
            check_view(new, definitions)
    return Plan((*put.effects, *_like_columns(parsed), BeginSubscription(new)))


def _like_columns(parsed: ParsedStatement) -> Iterator[Notice]:
    """Yield a notice if the query seems to have names of columns in double quotes: the result would be wrong, and no error."""
    found = dict.fromkeys(texts_like_columns(parsed.written))
    if found:
        texts, names = ", ".join(f'"{text}"' for text in found), ", ".join(map(quoted, found))
        yield Notice(f"{texts}: in a query double quotes are text; for a column write {names}")


def _check_table(table: Table, definitions: Definitions) -> None:
    refuse_reserved(table.namespace, "table")
    check_no_output("CREATE TABLE", table.full_name, definitions)
    topics = definitions.source(table.source).topics
    if topics and table.topic not in topics:
        raise DefinitionError(
            f"source \"{table.source}\" does not read topic '{table.topic}'",
            code="topic-missing",
            detail=f"Its topics: {', '.join(topics)}.",
            hint=did_you_mean(table.topic or "", topics, "Name one of these, or create a source that reads the topic."),
        )


def _drop(parsed: ParsedStatement, drop: Drop, definitions: Definitions, holds: Holds) -> Plan:
    found = {
        ObjectKind.CONNECTION: definitions.connections,
        ObjectKind.SOURCE: definitions.sources,
        ObjectKind.TABLE: definitions.tables,
        ObjectKind.SUBSCRIPTION: definitions.subscriptions,
        ObjectKind.MATERIALIZED_VIEW: definitions.views,
    }[drop.kind]
    if drop.name not in found:
        if drop.kind is ObjectKind.TABLE:
            name = known_name(drop.name, definitions, holds)
            check_not_own("DROP", name, definitions)
            readers = definitions.readers_of(name)
            _refuse_used(drop, readers)
            effects = _dropping(drop, readers, definitions, holds, [name])
            return Plan((*effects, _on_spark(parsed, drop.cascade or drop.restrict)))
        if drop.if_exists:
            return Plan((Notice(f'{drop.kind} "{drop.name}" does not exist: nothing to drop'),))
    target = find(drop.kind, drop.name, definitions)
    users = _users(target, definitions)
    _refuse_used(drop, users)
    dropped = (*users, target)
    released = () if drop.keep_upstream else releasing(dropped, definitions)
    return Plan((*released, *_dropping(drop, dropped, definitions, holds)))


def _refuse_used(drop: Drop, users: Sequence[Definition]) -> None:
    if users and not drop.cascade:
        raise DefinitionError(
            f'{drop.kind} "{drop.name}" is still used',
            code=f"{_code(drop.kind)}-in-use",
            detail=f"Used by {', '.join(map(described, users))}.",
            hint="Drop these first, or add CASCADE to drop them as well, tables with their data.",
        )


def _dropping(
    drop: Drop, dropped: Sequence[Definition], definitions: Definitions, holds: Holds, foreign: Sequence[str] = ()
) -> Iterator[Effect]:
    """Yield the drop of definitions, with what belongs to them, and of the holds on their tables and on `foreign` ones."""
    if dropped:
        yield DropDefinitions(tuple(dropped))
    # A view is its table. The output of a subscription is a table of its own, which stays unless CASCADE asks for it.
    with_output = drop.cascade and drop.kind is ObjectKind.SUBSCRIPTION
    for each in dropped:
        if isinstance(each, Derived):
            yield EndSubscription(definitions.entry_of(each), isinstance(each, MaterializedView) or with_output)
    tables = [definition.full_name for definition in dropped if isinstance(definition, Table)]
    views = [definition.full_name for definition in dropped if isinstance(definition, MaterializedView)]
    yield from drop_holds_on([*tables, *views, *foreign], holds, cascade=drop.cascade)
    yield from (DropIcebergTable(name, definitions.table(name).object_id) for name in tables)


def _users(definition: Definition, definitions: Definitions) -> tuple[Definition, ...]:
    """Find all definitions that need `definition`, each after those that use it."""
    match definition:
        case Connection(name=name):
            sources = [definitions.source(s) for s in definitions.users_of_connection(name)]
            return (*_with_users([t for s in sources for t in _tables_of(s, definitions)], definitions), *sources)
        case Source():
            return _with_users(_tables_of(definition, definitions), definitions)
        case Table(full_name=name):
            return definitions.readers_of(name)
        case MaterializedView(full_name=name):
            return definitions.readers_of(name)
        case Subscription():
            return ()


def _tables_of(source: Source, definitions: Definitions) -> Sequence[Table]:
    return [entry.definition for entry in definitions.tables_of(source.name)]


def _with_users(tables: Sequence[Table], definitions: Definitions) -> tuple[Definition, ...]:
    readers = [reader for table in tables for reader in definitions.readers_of(table.full_name)]
    # Each after all that read it: the last occurrence of a view that several tables lead to.
    in_order = tuple(reversed(dict.fromkeys(reversed(readers))))
    return (*in_order, *tables)


def _on_spark(parsed: ParsedStatement, less_last_word: bool = False) -> RunOnSpark:
    """Pass the statement to Spark as written, or without its last word: Spark's `DROP TABLE` has no CASCADE or RESTRICT."""
    tokens = parsed.written.tokens[: -1 if less_last_word else None]
    return RunOnSpark(parsed.written.sql, tokens[0].start, tokens[-1].end + 1)
