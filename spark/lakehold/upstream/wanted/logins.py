"""Describes why lakehold could not connect to a database, or lost the connection, from the server's message. Pure."""

from __future__ import annotations

import re

from lakehold.errors import UpstreamUnavailable
from lakehold.tls import fault_in

_REASON = re.compile(r"\b(?:FATAL|ERROR):\s+(.*)")
_BEFORE_CAUSE = re.compile(r"^.*\bfailed: ")
_ADVICE = ("\t", "Either provide the file, ")
"""Beginnings of lines in which libpq says what to do."""
_DENIED = re.compile(
    r'authentication failed|^role ".*" does not exist|pg_hba\.conf|not permitted to log in|^permission denied for database'
    "|no password supplied"
)
_TLS = re.compile(r"SSL error|\[SSL\b|\bcertificate\b|\bSSL (?:was|is) required\b")
_NO_DATABASE = re.compile(r'^database ".*" does not exist')
MYSQL_DENIED = frozenset({1044, 1045, 1130, 1251, 1524, 1698, 1820, 1862, 3118, 4151})
"""Errors of a denied access: a host or login method that is not allowed, an expired password, a locked account."""
LOST_CONNECTION = range(2000, 3000)
"""Error numbers that a client of MySQL raises, not the server."""


def postgres_unreachable(where: str, user: str, database: str, message: str) -> UpstreamUnavailable:
    """Describe why lakehold could not reach a PostgreSQL, or lost the connection.

    Args:
        where: The server, as messages name it.
        user: User of the connection.
        database: Database of the connection.
        message: libpq's message: several lines, of several attempts if the server has several addresses.
    """
    lines = [line.strip() for line in message.splitlines() if not line.startswith(_ADVICE)]
    by_server = [reason[1] for reason in map(_REASON.search, lines) if reason is not None]
    cause = (
        by_server[-1] if by_server else _BEFORE_CAUSE.sub("", next(filter(None, reversed(lines)), "no reason given"))
    )
    if _NO_DATABASE.search(cause):
        return UpstreamUnavailable(
            f'{where} has no database "{database}"',
            code="database-missing",
            detail=_sentence(cause),
            hint="Check DATABASE of its connection.",
        )
    if _DENIED.search(cause):
        return _denied(where, user, cause)
    if _TLS.search(cause):
        return _untrusted(where, cause)
    return _silent(where, cause, answers=bool(by_server))


def mysql_unreachable(where: str, user: str, number: int, message: str) -> UpstreamUnavailable:
    """Describe why lakehold could not reach a MySQL or MariaDB, by the error's number and text."""
    if number in MYSQL_DENIED:
        return _denied(where, user, message)
    if number in LOST_CONNECTION and _TLS.search(message):
        return _untrusted(where, fault_in(message.removesuffix(")")) or message)
    return _silent(where, message, answers=number not in LOST_CONNECTION)


def _denied(where: str, user: str, reason: str) -> UpstreamUnavailable:
    return UpstreamUnavailable(
        f'{where} rejects the login of user "{user}"',
        code="database-denied",
        detail=_sentence(reason),
        hint="Check USER of its connection and the value of the SECRET that is its PASSWORD, "
        "and that the server accepts this user from this machine.",
    )


def _untrusted(where: str, reason: str) -> UpstreamUnavailable:
    return UpstreamUnavailable(
        f"{where} gives no connection that SSL MODE accepts",
        code="database-untrusted",
        detail=_sentence(reason),
        hint="Check SSL MODE and SSL CERTIFICATE AUTHORITY of its connection, and the server's certificate.",
    )


def _silent(where: str, reason: str, *, answers: bool) -> UpstreamUnavailable:
    return UpstreamUnavailable(
        f"{where} {'accepts no connection' if answers else 'does not answer'}",
        code="database-unavailable",
        detail=_sentence(reason),
        hint="Check that it is up and accepts one more connection."
        if answers
        else "Check that it runs, and HOST and PORT of its connection.",
    )


def _sentence(reason: str) -> str:
    return f"{reason[:1].upper()}{reason[1:].strip().removesuffix('.')}."
