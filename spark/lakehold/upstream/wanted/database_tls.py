"""Options of a database connection for TLS: of lakehold's clients, and of the connectors. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakehold.definitions import ConnectionType
from lakehold.errors import DefinitionError

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


def check_tls(options: Mapping[str, str]) -> None:
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


def tls_of_postgres(options: Mapping[str, str]) -> dict[str, str]:
    """Return libpq's options for TLS; the connector has the same."""
    names = {"ssl_mode": "sslmode", _AUTHORITY: "sslrootcert"}
    return {libpq: options[name] for name, libpq in names.items() if name in options}


def tls_of_mysql(options: Mapping[str, str]) -> dict[str, Any]:
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


def tls_of_mysql_connector(database: ConnectionType, options: Mapping[str, str]) -> dict[str, str]:
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
