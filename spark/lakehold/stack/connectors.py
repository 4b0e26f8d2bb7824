"""Connectors: their configuration, and a client for Kafka Connect's REST interface."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

import httpx

from lakehold.errors import UpstreamUnavailable
from lakehold.stack.addresses import StackAddresses
from lakehold.stack.errors import ConnectorError

_REQUEST_TIMEOUT_S = 30.0
_POLL_INTERVAL_S = 0.1
_REBALANCING = 409

ValueFormat = Literal["avro", "json"]


@dataclass(frozen=True)
class ConnectorStatus:
    """How a connector is.

    Attributes:
        connector: State of the connector itself, as Connect names it (`RUNNING`, `FAILED`, ...).
        tasks: State of each task.
        trace: Stack trace of the first failure, else empty.
    """

    connector: str
    tasks: tuple[str, ...]
    trace: str

    @property
    def is_running(self) -> bool:
        """Whether the connector and at least one task run, and no task does anything else."""
        return self.connector == "RUNNING" and set(self.tasks) == {"RUNNING"}


class ConnectClient:
    """Talks to one Connect worker. Use it as a context manager, or close it.

    Every method raises `UpstreamUnavailable` when the worker does not answer and `ConnectorError` when it refuses.

    Args:
        url: Base URL of the worker's REST interface.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._http = httpx.Client(base_url=url, timeout=_REQUEST_TIMEOUT_S)

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close its connections."""
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def names(self) -> list[str]:
        """Names of all connectors."""
        return list(self._request("GET", "/connectors").json())

    def put(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector, or change its configuration."""
        self._request("PUT", f"/connectors/{name}/config", json=dict(config))

    def delete(self, name: str) -> None:
        """Delete a connector. Its replication slot stays in PostgreSQL and keeps WAL until somebody drops it."""
        self._request("DELETE", f"/connectors/{name}")

    def restart(self, name: str) -> None:
        """Restart what failed of a connector and its tasks; they go on where they stopped."""
        self._request("POST", f"/connectors/{name}/restart", params={"includeTasks": "true", "onlyFailed": "true"})

    def status(self, name: str) -> ConnectorStatus:
        """How a connector is now."""
        answer = self._request("GET", f"/connectors/{name}/status").json()
        states = [answer["connector"], *answer["tasks"]]
        traces = [state["trace"] for state in states if state.get("trace")]
        return ConnectorStatus(
            connector=answer["connector"]["state"],
            tasks=tuple(task["state"] for task in answer["tasks"]),
            trace=traces[0] if traces else "",
        )

    def wait_until_running(self, name: str, timeout_s: float = 60.0) -> None:
        """Wait until a connector and its tasks run.

        Raises:
            ConnectorError: One of them failed, or they do not run in time.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            status = self._status_if_known(name)
            if status and status.is_running:
                return
            if status and "FAILED" in (status.connector, *status.tasks):
                raise ConnectorError(
                    f'connector "{name}" failed',
                    detail=status.trace.splitlines()[0] if status.trace else "",
                    hint="Remove the cause, then restart the connector: it goes on where it stopped.",
                )
            if time.monotonic() > deadline_s:
                raise ConnectorError(
                    f'connector "{name}" does not run after {timeout_s:.0f} s', detail=f"Its status is {status}."
                )
            time.sleep(_POLL_INTERVAL_S)

    def _status_if_known(self, name: str) -> ConnectorStatus | None:
        # A connector has no status for a moment after it is created.
        try:
            return self.status(name)
        except ConnectorError as error:
            if error.code == "connector-missing":
                return None
            raise

    def _request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        deadline_s = time.monotonic() + _REQUEST_TIMEOUT_S
        while True:
            try:
                response = self._http.request(method, path, **arguments)
            except httpx.TransportError as error:
                raise UpstreamUnavailable(
                    "Kafka Connect does not answer",
                    detail=f"{self._url}: {error}",
                    hint="Run lakehold stack status, and lakehold stack up if it is stopped.",
                ) from error
            if response.status_code != _REBALANCING or time.monotonic() > deadline_s:
                break
            time.sleep(_POLL_INTERVAL_S)
        if response.is_error:
            missing = response.status_code == httpx.codes.NOT_FOUND
            raise ConnectorError(
                f"Kafka Connect refused {method} {path}",
                code="connector-missing" if missing else None,
                detail=_message(response),
            )
        return response


def _message(response: httpx.Response) -> str:
    try:
        return str(response.json()["message"])
    except (ValueError, KeyError):
        return response.text


def publication_sql(publication: str, tables: Sequence[str]) -> list[str]:
    """Statements that make `tables` capturable with complete before images.

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
    """Configuration of a Debezium connector over tables of the stack's PostgreSQL.

    Every change of a table goes to `<topic_prefix>.<schema>.<table>`, transaction boundaries to
    `<topic_prefix>.transaction`. The publication must exist; the replication slot is made.

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
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "database.hostname": addresses.postgres_host,
        "database.port": str(addresses.postgres_port),
        "database.user": addresses.postgres_user,
        "database.password": addresses.postgres_password,
        "database.dbname": database,
        "topic.prefix": topic_prefix,
        "table.include.list": ",".join(tables),
        "plugin.name": "pgoutput",
        "slot.name": slot,
        "publication.name": publication,
        "publication.autocreate.mode": "disabled",
        "provide.transaction.metadata": "true",
        "tombstones.on.delete": "true",
        "decimal.handling.mode": "precise",
        "schema.name.adjustment.mode": "avro",
        **_topics(topic_prefix, partitions),
        **(_avro(addresses) if value_format == "avro" else _json()),
    }


def _topics(topic_prefix: str, partitions: int) -> dict[str, str]:
    # BEGIN and END of a transaction have different keys: only one partition keeps them in order.
    return {
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": str(partitions),
        "topic.creation.groups": "transaction",
        "topic.creation.transaction.include": rf"{topic_prefix}\.transaction",
        "topic.creation.transaction.replication.factor": "1",
        "topic.creation.transaction.partitions": "1",
    }


def _avro(addresses: StackAddresses) -> dict[str, str]:
    converter = {
        "": "io.apicurio.registry.utils.converter.AvroConverter",
        ".apicurio.registry.url": addresses.registry_native,
        ".apicurio.registry.auto-register": "true",
        ".apicurio.registry.find-latest": "true",
        # Confluent's wire format: a magic byte and a four-byte schema id before the body, not in headers.
        ".apicurio.registry.as-confluent": "true",
        ".apicurio.registry.use-id": "contentId",
        ".apicurio.registry.headers.enabled": "false",
    }
    return _for_key_and_value(converter)


def _json() -> dict[str, str]:
    converter = {
        "": "org.apache.kafka.connect.json.JsonConverter",
        ".schemas.enable": "true",
        # Otherwise an explicit NULL in a column with a default arrives as the default.
        ".replace.null.with.default": "false",
    }
    return _for_key_and_value(converter)


def _for_key_and_value(converter: Mapping[str, str]) -> dict[str, str]:
    return {f"{side}.converter{name}": value for side in ("key", "value") for name, value in converter.items()}
