"""The databases that sources can capture, by the type of connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakehold.definitions import ConnectionType
from lakehold.upstream.database import Database
from lakehold.upstream.mysql.database import MysqlUpstream
from lakehold.upstream.postgres.database import PostgresUpstream
from lakehold.upstream.wanted.connector_config import Login

_DATABASES: Mapping[ConnectionType, Callable[[Login, float], Database]] = {
    ConnectionType.POSTGRES: PostgresUpstream,
    ConnectionType.MYSQL: MysqlUpstream,
    ConnectionType.MARIADB: MysqlUpstream,
}


def database_of(kind: ConnectionType, login: Login, timeout_s: float) -> Database:
    """Return the database of a login, which connects when it is asked; `timeout_s` is how long the server may stay silent."""
    return _DATABASES[kind](login, timeout_s)
