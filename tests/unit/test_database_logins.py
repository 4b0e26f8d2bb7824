"""Reasons why lakehold cannot reach a database, recognized by the driver's messages."""

from __future__ import annotations

import pytest

from lakehold.upstream.wanted.logins import mysql_unreachable, postgres_unreachable

_FAILED = 'connection failed: connection to server at "127.0.0.1", port 5432 failed: '


@pytest.mark.parametrize(
    ("message", "code", "detail"),
    [
        (
            f"{_FAILED}Connection refused\n\tIs the server running on that host and accepting TCP/IP connections?",
            "database-unavailable",
            "Connection refused.",
        ),
        (
            "failed to resolve host 'db.example': [Errno -2] Name or service not known",
            "database-unavailable",
            "Failed to resolve host 'db.example': [Errno -2] Name or service not known.",
        ),
        (
            f"{_FAILED}FATAL:  sorry, too many clients already",
            "database-unavailable",
            "Sorry, too many clients already.",
        ),
        (
            f'{_FAILED}FATAL:  password authentication failed for user "u"\n'
            f'{_FAILED.removeprefix("connection failed: ")}FATAL:  password authentication failed for user "u"\n',
            "database-denied",
            'Password authentication failed for user "u".',
        ),
        (
            f'{_FAILED}FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "u", database "d", no encryption',
            "database-denied",
            'No pg_hba.conf entry for host "10.0.0.1", user "u", database "d", no encryption.',
        ),
        (f'{_FAILED}FATAL:  role "u" does not exist', "database-denied", 'Role "u" does not exist.'),
        (f"{_FAILED}fe_sendauth: no password supplied", "database-denied", "Fe_sendauth: no password supplied."),
        (f'{_FAILED}FATAL:  database "d" does not exist', "database-missing", 'Database "d" does not exist.'),
        (
            f'{_FAILED}FATAL:  permission denied for database "d"\nDETAIL:  User does not have CONNECT privilege.',
            "database-denied",
            'Permission denied for database "d".',
        ),
        ("", "database-unavailable", "No reason given."),
    ],
)
def test_messages_of_postgresql_are_distinguished(message: str, code: str, detail: str) -> None:
    found = postgres_unreachable("PostgreSQL at db:5432", "u", "d", message)
    assert (found.code, found.detail) == (code, detail)
    assert found.hint


@pytest.mark.parametrize(
    ("number", "code", "message"),
    [
        (1045, "database-denied", 'the server rejects the login of user "u"'),
        (1130, "database-denied", 'the server rejects the login of user "u"'),
        (1040, "database-unavailable", "the server accepts no connection"),
        (2003, "database-unavailable", "the server does not answer"),
    ],
)
def test_errors_of_mysql_are_distinguished(number: int, code: str, message: str) -> None:
    found = mysql_unreachable("the server", "u", number, "something")
    assert (found.code, found.message, found.detail) == (code, message, "Something.")
    assert found.hint
