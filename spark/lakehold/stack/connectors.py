"""Connectors over tables of the stack's PostgreSQL, for the demo and for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from lakehold.stack.addresses import StackAddresses
from lakehold.upstream.wanted import connector_config
from lakehold.upstream.wanted.connector_config import Login

ValueFormat = Literal["avro", "json"]


def publication_sql(publication: str, tables: Sequence[str]) -> list[str]:
    """Build the statements that make `tables` capturable with complete before images.

    Args:
        publication: Name of the publication to create.
        tables: `schema.table` names.
    """
    return [
        *(f"ALTER TABLE {table} REPLICA IDENTITY FULL" for table in tables),
        f"CREATE PUBLICATION {publication} FOR TABLE {', '.join(tables)}",
    ]


def debezium_postgres(  # noqa: PLR0913 - each names one thing outside of Connect
    addresses: StackAddresses,
    *,
    topic_prefix: str,
    database: str,
    tables: Sequence[str],
    publication: str,
    slot: str,
    value_format: ValueFormat = "avro",
    partitions: int = 1,
) -> dict[str, str]:
    """Build the configuration of a Debezium connector over tables of the stack's PostgreSQL.

    Every change of a table goes to `<topic_prefix>.<schema>.<table>`, transaction boundaries to
    `<topic_prefix>.transaction`. The publication must exist; the connector creates the replication slot.

    Args:
        addresses: The stack.
        topic_prefix: First part of every topic's name; one connector's own.
        database: The database to capture.
        tables: `schema.table` names.
        publication: A publication of these tables, see `publication_sql`.
        slot: Name of the replication slot; lowercase letters, digits and underscores.
        value_format: `avro` through the registry, or `json` with the schema in every message.
        partitions: Partitions of each table's topic.
    """
    login = Login(
        addresses.postgres_host, addresses.postgres_port, addresses.postgres_user, addresses.postgres_password, database
    )
    avro = value_format == "avro"
    return {
        **connector_config.debezium(topic_prefix, tables),
        **connector_config.postgres(login, publication=publication, slot=slot),
        **connector_config.topic_creation(topic_prefix, partitions),
        **(connector_config.apicurio_avro(addresses.registry_native) if avro else connector_config.json()),
    }
