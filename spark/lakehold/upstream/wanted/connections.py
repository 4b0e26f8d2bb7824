"""The connections to a source's database, Kafka, registry and Kafka Connect, with secrets resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakehold.definitions import Capture, Connection, ConnectionType, Source
from lakehold.errors import DefinitionError
from lakehold.kafka.connection_options import KafkaOptions, kafka_options
from lakehold.model.lake_definitions import Definitions
from lakehold.secrets import resolve
from lakehold.upstream.wanted.connector_config import Login, apicurio_avro, confluent_avro, json

_AUTHORITY, _TRUSTSTORE = "ssl_certificate_authority", "ssl_truststore_location"
_VERIFIES_HOST = "verify-full"
_CONNECTOR_MODES = {
    ConnectionType.MARIADB: {
        "disable": "disable",
        "require": "trust",
        "verify-ca": "verify-ca",
        _VERIFIES_HOST: "verify-full",
    },
    ConnectionType.MYSQL: {
        "disable": "disabled",
        "require": "required",
        "verify-ca": "verify_ca",
        _VERIFIES_HOST: "verify_identity",
    },
}
"""The values of Debezium's option `database.ssl.mode` for each SSL MODE."""
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
    _refuse_half_a_check(options)
    if connection.type is ConnectionType.POSTGRES:
        tls = of_connector = _tls_of_postgres(options)
    else:
        tls, of_connector = _tls_of_mysql(options), _tls_of_mysql_connector(connection.type, options)
    return Login(
        options["host"],
        int(options.get("port", _DEFAULT_PORT[connection.type])),
        options["user"],
        options.get("password", ""),
        options.get("database", ""),
        tls,
        of_connector,
    )


def _refuse_half_a_check(options: Mapping[str, str]) -> None:
    """Refuse a check of the certificate against no authority, and an authority that nothing is checked against."""
    verifies = options.get("ssl_mode", "").startswith("verify-")
    if verifies and _AUTHORITY not in options:
        raise DefinitionError(
            "a connection that checks the database's certificate needs SSL CERTIFICATE AUTHORITY",
            code="option-missing",
            hint="Add SSL CERTIFICATE AUTHORITY '/path/of/ca.pem'.",
        )
    unused = [] if verifies else [name for name in (_AUTHORITY, _TRUSTSTORE) if name in options]
    if unused:
        raise DefinitionError(
            f"a database connection with {unused[0].replace('_', ' ').upper()} needs SSL MODE",
            code="option-missing",
            detail="Only the modes verify-ca and verify-full check the server's certificate.",
            hint="Add SSL MODE 'verify-full'.",
        )


def _tls_of_postgres(options: Mapping[str, str]) -> dict[str, str]:
    """Return libpq's options for TLS; the connector has the same."""
    names = {"ssl_mode": "sslmode", _AUTHORITY: "sslrootcert"}
    return {libpq: options[name] for name, libpq in names.items() if name in options}


def _tls_of_mysql(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of lakehold's client for TLS; without any it encrypts if the server does, and checks nothing."""
    match options.get("ssl_mode"):
        case None:
            return {}
        case "disable":
            return {"ssl_disabled": True}
        case "require":
            return {"ssl": {"verify_mode": "none"}}
        case mode:
            return {
                "ssl_ca": options[_AUTHORITY],
                "ssl_verify_cert": True,
                "ssl_verify_identity": mode == _VERIFIES_HOST,
            }


def _tls_of_mysql_connector(database: ConnectionType, options: Mapping[str, str]) -> dict[str, str]:
    """Return the connector's options for TLS. It reads no PEM: without a truststore it trusts whom the worker's Java trusts."""
    names = {
        "ssl_mode": "ssl.mode",
        _TRUSTSTORE: "ssl.truststore",
        "ssl_truststore_password": "ssl.truststore.password",
    }
    tls = {name: options[option] for option, name in names.items() if option in options}
    if "ssl.mode" in tls:
        tls["ssl.mode"] = _CONNECTOR_MODES[database][tls["ssl.mode"]]
    return tls


def _avro(connect: Mapping[str, str], registry: Mapping[str, str]) -> dict[str, str]:
    write = apicurio_avro if connect.get("avro_converter") == "apicurio" else confluent_avro
    return write(connect.get("registry_url", registry["url"]), registry.get("username"), registry.get("password"))
