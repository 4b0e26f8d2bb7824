"""A database that stops showing the rows of a table is described by what happened, and a missing GRANT is one of many causes."""

from __future__ import annotations

import pytest

from lakehold.errors import UpstreamRefused
from lakehold.verify.failed_reads import mysql_read_failed, postgres_read_failed

_MESSAGES = {
    "denied": 'PG refused to show the rows of table "public.orders"',
    "canceled": 'PG canceled the read of table "public.orders"',
    "behind": 'PG is a standby and canceled the read of table "public.orders"',
    "exhausted": 'PG lacks memory, space or connections to read table "public.orders"',
    "lost": 'the connection to PG was lost during the read of table "public.orders"',
    "changed": 'PG changed or dropped table "public.orders" during the read',
    "other": 'PG could not show the rows of table "public.orders"',
}


@pytest.mark.parametrize(
    ("state", "reported", "message", "code"),
    [
        ("42501", "permission denied for table orders", "denied", "database-refused"),
        ("57014", "canceling statement due to statement timeout", "canceled", "database-canceled"),
        ("25P04", "terminating connection due to transaction timeout", "canceled", "database-canceled"),
        ("40001", "canceling statement due to conflict with recovery", "behind", "database-canceled"),
        ("53200", "out of memory", "exhausted", "database-exhausted"),
        ("53100", "could not write block: No space left on device", "exhausted", "database-exhausted"),
        ("57P01", "terminating connection due to administrator command", "lost", "database-unavailable"),
        ("08006", "server closed the connection unexpectedly", "lost", "database-unavailable"),
        (None, "server closed the connection unexpectedly", "lost", "database-unavailable"),
        ("42P01", 'relation "public.orders" does not exist', "changed", "upstream-table-changed"),
        ("42703", 'column "note" does not exist', "changed", "upstream-table-changed"),
        ("XX001", "invalid page in block 7", "other", "database-refused"),
    ],
)
def test_postgres_says_why_by_its_sqlstate(state: str | None, reported: str, message: str, code: str) -> None:
    error = postgres_read_failed("PG", "reader", "public.orders", state, f"{reported}\nLINE 1: COPY")
    assert (error.message, error.code) == (_MESSAGES[message], code)
    assert error.detail == (f"{reported} (SQLSTATE {state})." if state else f"{reported}.")
    assert ("GRANT" in error.hint) == (message == "denied")
    assert isinstance(error, UpstreamRefused) == (code == "database-refused")
    assert error.retryable == (code != "database-refused")


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (1142, "denied"),
        (1317, "canceled"),
        (3024, "canceled"),
        (1969, "canceled"),
        (1205, "canceled"),
        (1041, "exhausted"),
        (2013, "lost"),
        (1927, "lost"),
        (1146, "changed"),
        (1412, "changed"),
        (1105, "other"),
    ],
)
def test_mysql_says_why_by_the_number_of_its_error(number: int, message: str) -> None:
    error = mysql_read_failed("PG", "reader", "public.orders", number, "It says so.")
    assert (error.message, error.detail) == (_MESSAGES[message], f"It says so (error {number}).")
    assert error.hint.startswith("GRANT SELECT ON `public`.`orders` TO reader.") == (message == "denied")
