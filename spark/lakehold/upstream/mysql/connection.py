"""Connects to MySQL and MariaDB, and describes why that failed."""

from __future__ import annotations

from typing import Any

import pymysql

from lakehold.errors import UpstreamUnavailable
from lakehold.tls import unusable_authority
from lakehold.upstream.wanted.connector_config import Login
from lakehold.upstream.wanted.logins import LOST_CONNECTION, mysql_unreachable


def connect(login: Login, timeout_s: float, **options: Any) -> pymysql.Connection[Any]:
    """Connect as `login`, with further options of the client.

    Raises:
        UpstreamUnavailable: The server does not answer, or cannot be trusted.
        DefinitionError: The file of its certificate authority cannot be used.
    """
    try:
        return pymysql.connect(**login.arguments(timeout_s), **options)
    except pymysql.Error as error:
        raise unreachable(login, error) from error
    except OSError as error:
        # The client reads the file before it connects.
        raise unusable_authority("a database", str(login.tls.get("ssl_ca")), error) from error


def unreachable(login: Login, error: pymysql.Error) -> UpstreamUnavailable:
    """Describe why lakehold could not connect as `login`, or lost the connection."""
    where = f"the database server at {login.host}:{login.port}"
    return mysql_unreachable(where, login.user, *number_and_text(error))


def number_and_text(error: pymysql.Error) -> tuple[int, str]:
    """Return the number and the text of an error."""
    match error.args:
        case (int(number), str(text)):
            return number, text.strip().removesuffix(".")
    return LOST_CONNECTION.start, str(error)
