"""Statement and definitions -> plan. Pure: every check that needs the definitions is here, and nothing happens."""

from __future__ import annotations

from typing import assert_never

from lakehold.catalog.definitions import Definitions
from lakehold.definitions import Connection, ConnectionType, Definition, Source, Table
from lakehold.errors import DefinitionError
from lakehold.sql.effects import (
    DropDefinitions,
    DropIcebergTable,
    Effect,
    ExplainChanges,
    Notice,
    Plan,
    PutDefinition,
    ReadAsOf,
    ReadChanges,
    RunOnSpark,
)
from lakehold.sql.parse import ParsedStatement
from lakehold.sql.plan_show import show, show_create
from lakehold.sql.render import differences
from lakehold.sql.statements import (
    CreateConnection,
    CreateSource,
    CreateTable,
    Drop,
    ExplainSubscribe,
    ForSpark,
    ObjectKind,
    SelectAsOf,
    Show,
    ShowCreate,
    SubscribeTo,
)

_RESERVED_NAMESPACES = frozenset({"information_schema", "mz_catalog", "mz_internal", "sys"})


def plan(parsed: ParsedStatement, definitions: Definitions) -> Plan:  # noqa: PLR0911 - one a statement
    """What `parsed` does to a lake with these `definitions`.

    Raises:
        DefinitionError: An object is missing, exists already, is still used, or contradicts another.
    """
    match parsed.statement:
        case CreateConnection(connection, if_not_exists):
            return _put(parsed, connection, if_not_exists, definitions)
        case CreateSource(source, if_not_exists):
            _check_source(source, definitions)
            return _put(parsed, source, if_not_exists, definitions)
        case CreateTable(table, if_not_exists):
            _check_table(table, definitions)
            return _put(parsed, table, if_not_exists, definitions)
        case Drop() as drop:
            return _drop(parsed, drop, definitions)
        case Show(kind):
            return Plan((show(kind, definitions),))
        case ShowCreate(kind, name):
            if kind is ObjectKind.TABLE and name not in definitions.tables:
                return Plan((_on_spark(parsed),))
            return Plan((show_create(find(kind, name, definitions)),))
        case SelectAsOf(query, as_of_ms):
            return Plan((ReadAsOf(query, as_of_ms),))
        case SubscribeTo(subscribe):
            return Plan((ReadChanges(subscribe),))
        case ExplainSubscribe(subscribe):
            return Plan((ExplainChanges(subscribe),))
        case ForSpark(verb, target):
            _check_not_fed(verb, target, definitions)
            return Plan((_on_spark(parsed),))
        case other:
            assert_never(other)


def find(kind: ObjectKind, name: str, definitions: Definitions) -> Definition:
    """The definition of `kind` called `name`."""
    match kind:
        case ObjectKind.CONNECTION:
            return definitions.connection(name)
        case ObjectKind.SOURCE:
            return definitions.source(name)
        case ObjectKind.TABLE:
            return definitions.table(name).definition
        case other:
            assert_never(other)


def _existing(definition: Definition, definitions: Definitions) -> tuple[ObjectKind, str, Definition | None]:
    """Kind and full name of `definition`, and what stands under that name now."""
    match definition:
        case Connection(name=name):
            kind, found = ObjectKind.CONNECTION, name in definitions.connections
        case Source(name=name):
            kind, found = ObjectKind.SOURCE, name in definitions.sources
        case Table(full_name=name):
            kind, found = ObjectKind.TABLE, name in definitions.tables
        case other:
            assert_never(other)
    return kind, name, find(kind, name, definitions) if found else None


def _put(parsed: ParsedStatement, definition: Definition, if_not_exists: bool, definitions: Definitions) -> Plan:
    kind, name, existing = _existing(definition, definitions)
    if existing is None:
        return Plan((PutDefinition(definition, parsed.written.text),))
    if not if_not_exists:
        raise DefinitionError(
            f'{kind} "{name}" already exists',
            code=f"{kind}-exists",
            hint=f"Drop it first, or write CREATE {kind.upper()} IF NOT EXISTS to leave it as it is.",
        )
    differing = "; ".join(f"it has {old}, the statement says {new}" for old, new in differences(existing, definition))
    return Plan((Notice(f'{kind} "{name}" exists and stays as it is: {differing}'),) if differing else ())


def _check_source(source: Source, definitions: Definitions) -> None:
    if source.connection is not None:
        _check_connection(source.connection, ConnectionType.KAFKA, definitions)
    if source.format.registry is not None:
        _check_connection(source.format.registry, ConnectionType.SCHEMA_REGISTRY, definitions)


def _check_connection(name: str, wanted: ConnectionType, definitions: Definitions) -> None:
    found = definitions.connection(name).type
    if found is not wanted:
        raise DefinitionError(
            f'connection "{name}" leads to another kind of system',
            code="connection-type",
            detail=f"Expected a connection to {_system(wanted)}, found one to {_system(found)}.",
        )


def _system(connection_type: ConnectionType) -> str:
    return "Kafka" if connection_type is ConnectionType.KAFKA else "a schema registry"


def _check_table(table: Table, definitions: Definitions) -> None:
    if table.namespace.lower() in _RESERVED_NAMESPACES:
        raise DefinitionError(
            f'namespace "{table.namespace}" is reserved',
            code="namespace-reserved",
            detail="It holds the lake's own tables.",
            hint="Choose another namespace for the table.",
        )
    topics = definitions.source(table.source).topics
    if topics and table.topic not in topics:
        raise DefinitionError(
            f"source \"{table.source}\" does not read topic '{table.topic}'",
            code="topic-missing",
            detail=f"Its topics: {', '.join(topics)}.",
            hint="Name one of these, or make a source that reads the topic.",
        )


def _drop(parsed: ParsedStatement, drop: Drop, definitions: Definitions) -> Plan:
    found = {
        ObjectKind.CONNECTION: definitions.connections,
        ObjectKind.SOURCE: definitions.sources,
        ObjectKind.TABLE: definitions.tables,
    }[drop.kind]
    if drop.name not in found:
        if drop.kind is ObjectKind.TABLE and not drop.cascade:
            return Plan((_on_spark(parsed),))
        if drop.if_exists:
            return Plan((Notice(f'{drop.kind} "{drop.name}" does not exist: nothing to drop'),))
    target = find(drop.kind, drop.name, definitions)
    users = _users(target, definitions)
    if users and not drop.cascade:
        raise DefinitionError(
            f'{drop.kind} "{drop.name}" is still used',
            code=f"{drop.kind}-in-use",
            detail=f"Used by {', '.join(_described(u) for u in users)}.",
            hint="Drop these first, or add CASCADE to drop them as well, tables with their data.",
        )
    dropped = (*users, target)
    effects: list[Effect] = [DropDefinitions(dropped)]
    effects += [DropIcebergTable(definition.full_name) for definition in dropped if isinstance(definition, Table)]
    return Plan(tuple(effects))


def _users(definition: Definition, definitions: Definitions) -> tuple[Definition, ...]:
    """Everything that cannot be without `definition`, users before what they use."""
    match definition:
        case Connection(name=name):
            sources = [definitions.source(s) for s in definitions.users_of_connection(name)]
            return (*(t for s in sources for t in _users(s, definitions)), *sources)
        case Source(name=name):
            return tuple(e.definition for e in definitions.tables_of(name))
        case Table():
            return ()


def _described(definition: Definition) -> str:
    match definition:
        case Connection(name=name):
            return f'connection "{name}"'
        case Source(name=name):
            return f'source "{name}"'
        case Table(full_name=name):
            return f'table "{name}"'


def _check_not_fed(verb: str, target: str, definitions: Definitions) -> None:
    """Rows of a fed table come from its topic: what a hand writes there, the next batch would contradict unseen."""
    if not verb or target not in definitions.tables:
        return
    table = definitions.tables[target].definition
    raise DefinitionError(
        f'table "{target}" is fed by source "{table.source}"',
        code="table-fed",
        detail=f"{verb} by hand would make it differ from topic '{table.topic}'.",
        hint=f"Change the rows upstream; DROP TABLE {target} removes the table and its data.",
    )


def _on_spark(parsed: ParsedStatement) -> RunOnSpark:
    written = parsed.written
    return RunOnSpark(written.sql, written.start, written.end_exclusive)
