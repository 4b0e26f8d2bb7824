"""Failures of a catalog: which of them pass by themselves, and the reason that each gives."""

from __future__ import annotations

import re

from pyiceberg.exceptions import ServerError, ServiceUnavailableError, TooManyRequestsError
from requests.exceptions import ConnectionError as NotConnected
from requests.exceptions import SSLError, Timeout
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

_REFUSES = "FATAL:"
"""The beginning of PostgreSQL's reason for refusing a connection, such as a wrong password."""

_REFUSES_FOR_NOW = re.compile(
    r"the database system is|terminating connection|too many|connection slots are reserved|connection to client lost"
)
_SQLITE_BUSY = re.compile(r"database (?:table )?is locked")


def is_outage(error: Exception) -> bool:
    """Return whether a catalog failed to answer, or answered that it cannot for now: the same request may work later."""
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or _is_of_connection(error)
    if isinstance(error, SSLError):
        return False
    return isinstance(
        error,
        (
            *(ServerError, ServiceUnavailableError, TooManyRequestsError),
            *(NotConnected, Timeout, ConnectionError, TimeoutError),
        ),
    )


def _is_of_connection(error: DBAPIError) -> bool:
    if not isinstance(error, (OperationalError, InterfaceError)):
        return False
    reason = str(error.orig)
    if type(error.orig).__module__.startswith("sqlite3"):
        return _SQLITE_BUSY.search(reason) is not None
    return _REFUSES not in reason or _REFUSES_FOR_NOW.search(reason) is not None


def reason_of(error: Exception) -> str:
    """Return the first line of an error, without the full stop and the statement that SQLAlchemy adds."""
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
