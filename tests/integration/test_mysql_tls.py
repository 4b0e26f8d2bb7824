"""A MariaDB is reached over TLS; certificates that do not fit are refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lakehold.definitions import Connection, ConnectionType
from lakehold.errors import DefinitionError, UpstreamUnavailable
from lakehold.servers import HOST
from lakehold.upstream.mysql.database import MysqlUpstream
from lakehold.upstream.wanted.connections import login_of
from lakehold.verify.mysql_rows import mysql_rows
from tests.certificates import Authority, Issued
from tests.mariadb_server import PASSWORD, MariaDb
from tests.mariadb_server import mariadb as mariadb  # noqa: PLC0414 - pytest finds fixtures by name

pytestmark = pytest.mark.stack

_TIMEOUT_S = 5.0

Certificate = Callable[[Authority], Issued | None]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def connection(port: int, **options: str) -> Connection:
    return Connection(
        "maria",
        ConnectionType.MARIADB,
        {"host": HOST, "port": port, "user": "lakehold", "password": PASSWORD, **options},
    )


def checking(port: int, authority: Path, mode: str = "verify-full") -> Connection:
    return connection(port, ssl_mode=mode, ssl_certificate_authority=str(authority))


def session_is_encrypted(of: Connection) -> bool:
    with MysqlUpstream(login_of(of), _TIMEOUT_S)._connected() as connected, connected.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
        ((_, cipher),) = cursor.fetchall()
    return bool(cipher)


def refusal(of: Connection) -> UpstreamUnavailable:
    """Return how the server is refused, by inspections and by `verify` alike."""
    login = login_of(of)
    with pytest.raises(UpstreamUnavailable) as inspected:
        MysqlUpstream(login, _TIMEOUT_S).log_settings()
    with pytest.raises(UpstreamUnavailable) as verified, mysql_rows(login, _TIMEOUT_S, "shop.t"):
        pass
    for error in (inspected.value, verified.value):
        assert error.code == "database-untrusted"
        assert "SSL CERTIFICATE AUTHORITY" in error.hint
        assert PASSWORD not in f"{error} {error.detail} {error.hint}"
    assert inspected.value.detail == verified.value.detail
    return inspected.value


def test_a_certificate_is_checked_as_its_mode_says(mariadb: MariaDb, authority: Authority, tmp_path: Path) -> None:
    stranger, port = Authority(tmp_path, "stranger"), mariadb.port
    mariadb.serve_tls(authority.issue("good"))
    assert not session_is_encrypted(connection(port, ssl_mode="disable"))
    for trusted in (
        connection(port, ssl_mode="require"),
        checking(port, authority.file, "verify-ca"),
        checking(port, authority.file),
    ):
        assert session_is_encrypted(trusted), trusted.options
    for mode in ("verify-ca", "verify-full"):
        assert "Self-signed certificate in certificate chain." in refusal(checking(port, stranger.file, mode)).detail

    mariadb.serve_tls(authority.issue("other", host="db.example"))
    assert session_is_encrypted(checking(port, authority.file, "verify-ca"))
    assert f"certificate is not valid for '{HOST}'" in refusal(checking(port, authority.file)).detail

    mariadb.serve_tls(authority.issue("expired", days_left=0))
    assert "Certificate has expired." in refusal(checking(port, authority.file, "verify-ca")).detail

    mariadb.serve_tls(None)
    for plain in (connection(port, ssl_mode="require"), checking(port, authority.file)):
        assert refusal(plain).detail == "SSL is required but the server doesn't support it."


def test_an_authority_that_cannot_be_read_is_named(mariadb: MariaDb, tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"
    with pytest.raises(DefinitionError) as refused:
        MysqlUpstream(login_of(checking(mariadb.port, missing)), _TIMEOUT_S).log_settings()
    assert (refused.value.code, refused.value.detail) == ("option-invalid", f"{missing}: No such file or directory.")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ssl_mode": "verify-full"}, "needs SSL CERTIFICATE AUTHORITY"),
        ({"ssl_mode": "require", "ssl_certificate_authority": "/ca.pem"}, "CERTIFICATE AUTHORITY needs SSL MODE"),
        ({"ssl_truststore_location": "/ca.p12"}, "SSL TRUSTSTORE LOCATION needs SSL MODE"),
    ],
)
def test_a_check_without_an_authority_or_an_authority_without_a_check_is_refused(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(DefinitionError, match=message) as refused:
        login_of(connection(3306, **options))
    assert refused.value.code == "option-missing"
    assert refused.value.hint


@pytest.mark.parametrize(
    ("kind", "modes"),
    [
        (ConnectionType.MARIADB, ["disable", "trust", "verify-ca", "verify-full"]),
        (ConnectionType.MYSQL, ["disabled", "required", "verify_ca", "verify_identity"]),
    ],
)
def test_connectors_get_the_mode_in_their_words(kind: ConnectionType, modes: list[str]) -> None:
    authority = {"ssl_certificate_authority": "/ca.pem", "ssl_truststore_location": "/ca.p12"}
    found = []
    for mode in ("disable", "require", "verify-ca", "verify-full"):
        of_mode = connection(3306, ssl_mode=mode, **(authority if mode.startswith("verify") else {}))
        found.append(login_of(replace(of_mode, type=kind)).connector_tls)
    assert [tls["ssl.mode"] for tls in found] == modes
    assert [tls.get("ssl.truststore") for tls in found] == [None, None, "/ca.p12", "/ca.p12"]
