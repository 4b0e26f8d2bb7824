"""Checks of sources against the definitions: their connections, other sources of the same topics; ALTER SOURCE … SET. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from lakehold.definitions import ConnectionType, OptionValue, Source
from lakehold.errors import DefinitionError
from lakehold.model.lake_definitions import Definitions
from lakehold.model.shared_sources import sharing, topics_of
from lakehold.sql.plan.statement_effects import ChangeDefinition, Notice, Plan


def check_source(source: Source, definitions: Definitions) -> None:
    """Check that the connections of a source exist, and lead to the kinds of systems that it needs.

    Raises:
        DefinitionError: One does not.
    """
    if source.connection is not None:
        _check_connection(source.connection, ConnectionType.KAFKA, definitions)
    if source.format.registry is not None:
        _check_connection(source.format.registry, ConnectionType.SCHEMA_REGISTRY, definitions)
    if source.capture is not None:
        _check_connection(source.capture.connection, source.capture.database, definitions)
        _check_connection(source.capture.connect, ConnectionType.CONNECT, definitions)


def alter_source(source: Source, options: Mapping[str, OptionValue | None]) -> Plan:
    """Plan the change of a source's options, for ingests that begin later; None sets one to its default."""
    kept = {name: value for name, value in {**source.options, **options}.items() if value is not None}
    changed = replace(source, options=kept)
    return Plan((ChangeDefinition(changed),) if changed != source else ())


def read_by_others(source: Source, definitions: Definitions) -> Iterator[Notice]:
    """Report the other sources that read a topic of `source`, too."""
    for name in sharing(source, source.topics, definitions):
        other = {*definitions.source(name).topics, *topics_of(name, definitions)}
        topic = next(topic for topic in source.topics if topic in other)
        yield Notice(
            f'source "{name}" reads topic "{topic}", too: lakehold ingest {name} {source.name}, and the DAG, read and '
            "decode it once for both"
        )


def _check_connection(name: str, wanted: ConnectionType, definitions: Definitions) -> None:
    found = definitions.connection(name).type
    if found is not wanted:
        fitting = sorted(n for n, entry in definitions.connections.items() if entry.definition.type is wanted)
        words = wanted.value.replace("-", " ").upper()
        raise DefinitionError(
            f'connection "{name}" connects to another kind of system',
            code="connection-type",
            detail=f"Expected a connection to {_system(wanted)}, found one to {_system(found)}.",
            hint=f"Name one of these: {', '.join(fitting)}."
            if fitting
            else f"CREATE CONNECTION … TO {words} creates one.",
        )


def _system(connection_type: ConnectionType) -> str:
    return {
        ConnectionType.KAFKA: "Kafka",
        ConnectionType.SCHEMA_REGISTRY: "a schema registry",
        ConnectionType.POSTGRES: "PostgreSQL",
        ConnectionType.MYSQL: "MySQL",
        ConnectionType.MARIADB: "MariaDB",
        ConnectionType.CONNECT: "Kafka Connect",
    }[connection_type]
