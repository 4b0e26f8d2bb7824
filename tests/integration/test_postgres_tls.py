"""A PostgreSQL is reached over TLS; certificates that do not fit are refused with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from lakehold.definitions import Connection, ConnectionType
from lakehold.errors import DefinitionError, UpstreamUnavailable
from lakehold.servers import HOST
from lakehold.stack.parts.postgres import Postgres
from lakehold.upstream.postgres.database import PostgresUpstream
from lakehold.upstream.wanted.connections import login_of
from lakehold.verify.postgres_rows import postgres_rows
from tests.catalog_servers import postgres_server as postgres_server  # noqa: PLC0414 - pytest finds fixtures by name
from tests.certificates import Authority, Issued
from tests.postgres_tls import serve_tls

pytestmark = pytest.mark.stack

_TIMEOUT_S = 5.0

Certificate = Callable[[Authority], Issued | None]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def serve(postgres_server: Postgres, authority: Authority) -> Iterator[Callable[[Certificate], None]]:
    """Return a function that makes the server use a certificate."""
    uri = postgres_server.addresses.postgres()
    yield lambda certificate: serve_tls(uri, certificate(authority))
    serve_tls(uri, None)


def connection(server: Postgres, **options: str) -> Connection:
    info = psycopg.conninfo.conninfo_to_dict(server.addresses.postgres())
    login = {"host": HOST, "user": str(info["user"]), "password": str(info["password"]), "database": "postgres"}
    return Connection("pg", ConnectionType.POSTGRES, {**login, "port": server.port, **options})


def good(authority: Authority) -> Issued:
    return authority.issue("good")


def expired(authority: Authority) -> Issued:
    return authority.issue("expired", days_left=0)


def of_another_host(authority: Authority) -> Issued:
    return authority.issue("other", host="db.example")


def none(_: Authority) -> None:
    return None


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
def test_a_certificate_of_the_authority_is_accepted(
    postgres_server: Postgres, serve: Callable[[Certificate], None], authority: Authority, mode: str
) -> None:
    serve(good)
    trusted = {} if mode == "require" else {"ssl_certificate_authority": str(authority.file)}
    login = login_of(connection(postgres_server, ssl_mode=mode, **trusted))
    with PostgresUpstream(login, _TIMEOUT_S)._connected() as connected:
        assert connected.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchall() == [(True,)]


@pytest.mark.parametrize(
    ("certificate", "authority_name", "mode", "detail"),
    [
        (good, "other", "verify-ca", "Self-signed certificate in certificate chain."),
        (good, "other", "verify-full", "Self-signed certificate in certificate chain."),
        (expired, "ca", "verify-full", "Certificate has expired."),
        (of_another_host, "ca", "verify-full", f'does not match host name "{HOST}"'),
        (good, "none", "verify-full", "does not exist"),
        (none, "ca", "verify-full", "Server does not support SSL, but SSL was required."),
        (none, "", "require", "Server does not support SSL, but SSL was required."),
    ],
)
def test_a_server_that_cannot_be_trusted_is_refused(
    postgres_server: Postgres,
    serve: Callable[[Certificate], None],
    tmp_path: Path,
    certificate: Certificate,
    authority_name: str,
    mode: str,
    detail: str,
) -> None:
    serve(certificate)
    Authority(tmp_path, "other")
    trusted = {"ssl_certificate_authority": str(tmp_path / f"{authority_name}.pem")} if authority_name else {}
    login = login_of(connection(postgres_server, ssl_mode=mode, **trusted))
    with pytest.raises(UpstreamUnavailable) as captured:
        PostgresUpstream(login, _TIMEOUT_S).members("p")
    with pytest.raises(UpstreamUnavailable) as verified, postgres_rows(login, _TIMEOUT_S, "public.t"):
        pass
    for error in (captured.value, verified.value):
        assert error.code == "database-untrusted"
        assert detail in error.detail
        assert "SSL CERTIFICATE AUTHORITY" in error.hint
        assert login.password not in f"{error} {error.detail} {error.hint}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ssl_mode": "verify-full"}, "needs SSL CERTIFICATE AUTHORITY"),
        ({"ssl_mode": "require", "ssl_certificate_authority": "/ca.pem"}, "needs SSL MODE"),
        ({"ssl_certificate_authority": "/ca.pem"}, "needs SSL MODE"),
    ],
)
def test_a_check_without_an_authority_or_an_authority_without_a_check_is_refused(
    postgres_server: Postgres, options: dict[str, str], message: str
) -> None:
    with pytest.raises(DefinitionError, match=message) as refusal:
        login_of(connection(postgres_server, **options))
    assert refusal.value.code == "option-missing"
    assert refusal.value.hint
