"""What lakehold asks of a real PostgreSQL that is to be captured, and what it says of one that it does not reach."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import psycopg
import pytest

from lakehold.errors import UpstreamUnavailable
from lakehold.servers import HOST
from lakehold.stack.parts.postgres import Postgres
from lakehold.upstream.connector_config import Login
from lakehold.upstream.postgres import PostgresUpstream
from tests.catalog_servers import postgres_server as postgres_server  # noqa: PLC0414 - pytest finds fixtures by name

pytestmark = pytest.mark.stack

_TIMEOUT_S = 5.0


@pytest.fixture
def login(postgres_server: Postgres) -> Login:
    info = psycopg.conninfo.conninfo_to_dict(postgres_server.addresses.postgres())
    return Login(HOST, postgres_server.port, str(info["user"]), str(info["password"]), str(info["dbname"]))


@pytest.mark.parametrize(
    ("changed", "code", "message", "detail"),
    [
        ({"password": "x"}, "database-denied", 'does not let user "lakehold" in', "Password authentication failed"),
        ({"password": ""}, "database-denied", 'does not let user "lakehold" in', "no password supplied"),
        ({"user": "nobody"}, "database-denied", 'does not let user "nobody" in', "Password authentication failed"),
        ({"database": "none"}, "database-missing", 'has no database "none"', 'Database "none" does not exist.'),
        ({"port": 1}, "database-unavailable", "does not answer", "Connection refused."),
    ],
)
def test_what_keeps_it_out_is_told_apart(
    login: Login, changed: dict[str, Any], code: str, message: str, detail: str
) -> None:
    with pytest.raises(UpstreamUnavailable) as refusal:
        PostgresUpstream(replace(login, **changed), _TIMEOUT_S).members("p")
    assert refusal.value.code == code
    assert message in refusal.value.message
    assert detail in refusal.value.detail
    assert not set("\t\n") & set(refusal.value.detail)
