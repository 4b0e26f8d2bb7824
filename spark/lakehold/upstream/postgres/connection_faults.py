"""Describes why a PostgreSQL cannot be reached, and asks it for its certificate where libpq reports no reason."""

from __future__ import annotations

import psycopg

from lakehold.errors import UpstreamUnavailable
from lakehold.tls import certificate_fault
from lakehold.upstream.wanted.connector_config import Login
from lakehold.upstream.wanted.logins import postgres_unreachable

_TLS_REQUEST = bytes.fromhex("00000008 04d2162f")
"""PostgreSQL's SSLRequest: its length, and the code 80877103."""
_UNVERIFIED = "certificate verify failed"


def unreachable(login: Login, error: psycopg.OperationalError) -> UpstreamUnavailable:
    """Describe why lakehold could not connect as `login`, or lost the connection."""
    message = str(error)
    if _UNVERIFIED in message:
        found = certificate_fault(login.host, login.port, file=login.tls.get("sslrootcert"), opening=_TLS_REQUEST)
        message = message.replace(_UNVERIFIED, f"{_UNVERIFIED}. {found}" if found else _UNVERIFIED)
    return postgres_unreachable(f"PostgreSQL at {login.host}:{login.port}", login.user, login.database, message)
