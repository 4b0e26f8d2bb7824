"""The connections to a source's database, Kafka, registry and Kafka Connect, with secrets resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakehold.definitions import Capture, Connection, ConnectionType, Source
from lakehold.kafka.connection_options import KafkaOptions, kafka_options
from lakehold.kafka.registry import Registry, registry_of
from lakehold.model.lake_definitions import Definitions
from lakehold.secrets import resolve
from lakehold.upstream.wanted.connector_config import Login, apicurio_avro, confluent_avro, json
from lakehold.upstream.wanted.database_tls import check_tls, tls_of_mysql, tls_of_mysql_connector, tls_of_postgres

_DEFAULT_PORT = {ConnectionType.POSTGRES: "5432", ConnectionType.MYSQL: "3306", ConnectionType.MARIADB: "3306"}


@dataclass(frozen=True)
class ConnectAddress:
    """The address of Kafka Connect, a login if it needs one, and the PEM file of the authority that lakehold trusts."""

    url: str
    username: str | None = None
    password: str | None = None
    authority: str | None = None


@dataclass(frozen=True, repr=False)
class UpstreamConnections:
    """The connections of one source to its systems; hidden from messages, because they hold secrets.

    Attributes:
        login: The database.
        connect: Kafka Connect.
        kafka: The brokers.
        registry: Options of the registry's connection; None for JSON.
        converter: Options by which the connector writes keys and values.
    """

    login: Login
    connect: ConnectAddress
    kafka: KafkaOptions
    registry: Mapping[str, str] | None
    converter: Mapping[str, str]

    def open_registry(self, timeout_s: float) -> Registry | None:
        """Return a client of the registry; None for JSON."""
        return registry_of(self.registry, timeout_s=timeout_s) if self.registry is not None else None


def connections_of(source: Source, capture: Capture, defined: Definitions) -> UpstreamConnections:
    """Resolve the connections of a source.

    Raises:
        SettingsError: A secret has no value.
        DefinitionError: A connection's options cannot be used.
    """

    def options(connection: str) -> dict[str, str]:
        return resolve(defined.connection(connection).options)

    connect = options(capture.connect)
    registry = options(source.format.registry) if source.format.registry is not None else None
    return UpstreamConnections(
        login=login_of(defined.connection(capture.connection)),
        connect=connect_address(connect),
        kafka=kafka_options(options(source.connection or "")),
        registry=registry,
        converter=json() if registry is None else _avro(connect, registry),
    )


def connect_address(options: Mapping[str, str]) -> ConnectAddress:
    """Return the address of Kafka Connect in the options of its connection, with secret values."""
    return ConnectAddress(
        options["url"], options.get("username"), options.get("password"), options.get("ssl_certificate_authority")
    )


def login_of(connection: Connection) -> Login:
    """Resolve the login of a connection to a database.

    Raises:
        SettingsError: The secret has no value.
        DefinitionError: A certificate would be checked against no authority, or an authority is given and not used.
    """
    options = resolve(connection.options)
    check_tls(options)
    if connection.type is ConnectionType.POSTGRES:
        tls = of_connector = tls_of_postgres(options)
    else:
        tls, of_connector = tls_of_mysql(options), tls_of_mysql_connector(connection.type, options)
    return Login(
        options["host"],
        int(options.get("port", _DEFAULT_PORT[connection.type])),
        options["user"],
        options.get("password", ""),
        options.get("database", ""),
        tls,
        of_connector,
    )


def _avro(connect: Mapping[str, str], registry: Mapping[str, str]) -> dict[str, str]:
    write = apicurio_avro if connect.get("avro_converter") == "apicurio" else confluent_avro
    return write(connect.get("registry_url", registry["url"]), registry.get("username"), registry.get("password"))
