"""A real change-data-capture stack on this machine: PostgreSQL, Kafka, a schema registry and Connect with Debezium."""

from __future__ import annotations

from lakehold.errors import ConnectorError
from lakehold.servers import HOST, ServerError, ServerEvent, ServerStatus
from lakehold.stack.addresses import StackAddresses, StackPorts
from lakehold.stack.composition import StackPlan
from lakehold.stack.connectors import ValueFormat, debezium_postgres, publication_sql
from lakehold.stack.errors import StackError
from lakehold.stack.lifecycle import down, status, up
from lakehold.stack.shared import shared
from lakehold.upstream.connect.client import ConnectClient

__all__ = [
    "HOST",
    "ConnectClient",
    "ConnectorError",
    "ServerError",
    "ServerEvent",
    "ServerStatus",
    "StackAddresses",
    "StackError",
    "StackPlan",
    "StackPorts",
    "ValueFormat",
    "debezium_postgres",
    "down",
    "publication_sql",
    "shared",
    "status",
    "up",
]
