"""Random transactions over two tables of a real PostgreSQL, with every kind of change that an application makes to rows.

The same seed runs the same statements. Statements need not find their rows, and keys may be taken: then a savepoint is
rolled back, as an application would.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from random import Random
from typing import LiteralString

import psycopg
from psycopg.errors import UniqueViolation

from tests.stack_fixtures import SourceDatabase

TABLES: tuple[LiteralString, ...] = (
    "CREATE TABLE accounts (id bigint PRIMARY KEY, name text NOT NULL, balance numeric(12, 2), visits int, letter text)",
    "CREATE TABLE entries (account text, line int, amount int, tag text, made_at timestamp, PRIMARY KEY (account, line))",
)

_ACCOUNTS = 60
_LINES = 8
_LETTER_CHARACTERS = 9_000
"""More characters than PostgreSQL keeps in the row."""

_OTHER_WRITER = 1_000
"""Only a second session writes the accounts from here on, so that the two sessions never wait for each other."""

_LOCK_TIMEOUT_MS = 5_000
"""One thread drives both sessions, so a session that waited for the other one would wait for ever."""


class RandomWorkload:
    """A random workload on `accounts` and `entries`.

    Args:
        database: Database of the two tables.
        seed: Seed of all random choices.
    """

    def __init__(self, database: SourceDatabase, seed: int) -> None:
        self._database = database
        self._random = Random(seed)
        self._altered = False

    def open(self) -> None:
        """Create the tables and their first rows."""
        self._database.execute(*TABLES)
        with self._connect() as connection, connection.transaction():
            for number in range(0, _ACCOUNTS, 2):
                self._put_account(connection, number)
                for line in range(1, 3):
                    self._put_entry(connection, str(number), line)

    def run(self, transactions: int) -> None:
        """Run so many transactions of one to five statements; some are rolled back, some overlap another session's."""
        with self._connect() as connection, self._connect() as other:
            for _ in range(transactions):
                if self._random.random() < 0.15:
                    with other.transaction():
                        self._put_account(other, _OTHER_WRITER + self._random.randrange(10))
                        self._transaction(connection)
                        self._put_account(other, _OTHER_WRITER + self._random.randrange(10))
                else:
                    self._transaction(connection)

    def alter(self) -> None:
        """Add, widen and drop a column."""
        self._database.execute(
            "ALTER TABLE accounts ADD COLUMN phone varchar(30)",
            "ALTER TABLE accounts ALTER COLUMN visits TYPE bigint",
            "ALTER TABLE entries ALTER COLUMN amount TYPE bigint",
            "ALTER TABLE entries DROP COLUMN tag",
        )
        self._altered = True

    def _connect(self) -> psycopg.Connection:
        uri = self._database.addresses.postgres(self._database.name)
        return psycopg.connect(uri, autocommit=True, options=f"-c lock_timeout={_LOCK_TIMEOUT_MS}")

    def _transaction(self, connection: psycopg.Connection) -> None:
        with connection.transaction() as whole:
            for _ in range(self._random.randrange(1, 6)):
                with suppress(UniqueViolation), connection.transaction() as savepoint:
                    self._random.choice(self._changes)(connection)
                    if self._random.random() < 0.1:
                        raise psycopg.Rollback(savepoint)
            if self._random.random() < 0.1:
                raise psycopg.Rollback(whole)

    @property
    def _changes(self) -> list[Callable[[psycopg.Connection], None]]:
        return [
            lambda c: self._put_account(c, self._account()),
            lambda c: self._put_entry(c, str(self._account()), self._line()),
            lambda c: self._put_entry(c, str(self._account()), self._line()),
            self._update_accounts,
            self._update_entries,
            self._write_letter,
            self._delete,
            self._change_keys,
            self._swap_keys,
            self._replace,
        ]

    def _account(self) -> int:
        return self._random.randrange(_ACCOUNTS)

    def _line(self) -> int:
        return self._random.randrange(1, _LINES)

    def _number(self) -> int:
        return self._random.randrange(2**62) if self._altered else self._random.randrange(-(2**31), 2**31)

    def _put_account(self, connection: psycopg.Connection, number: int) -> None:
        name = self._random.choice(["Ada", "", "naïve 日本 🌱", 'O\'Dea, "quoted"\n'])
        balance = self._random.choice([None, Decimal("0.00"), Decimal("-9999999999.99"), Decimal("12.50")])
        connection.execute(
            "INSERT INTO accounts (id, name, balance, visits) VALUES (%s, %s, %s, %s) "
            "ON CONFLICT (id) DO UPDATE SET balance = excluded.balance",
            (number, name, balance, self._number()),
        )

    def _put_entry(self, connection: psycopg.Connection, account: str, line: int) -> None:
        connection.execute(
            "INSERT INTO entries (account, line, amount, made_at) VALUES (%s, %s, %s, timestamp '2026-01-01' + %s)",
            (account, line, self._number(), self._microseconds()),
        )

    def _microseconds(self) -> str:
        return f"{self._random.randrange(10**12)} microseconds"

    def _update_accounts(self, connection: psycopg.Connection) -> None:
        connection.execute(
            "UPDATE accounts SET visits = %s WHERE id < %s AND id %% 7 = %s",
            (self._number(), _OTHER_WRITER, self._random.randrange(7)),
        )
        if self._altered:
            connection.execute("UPDATE accounts SET phone = %s WHERE id = %s", (self._microseconds(), self._account()))

    def _update_entries(self, connection: psycopg.Connection) -> None:
        connection.execute("UPDATE entries SET amount = -amount, made_at = NULL WHERE line = %s", (self._line(),))
        if not self._altered:
            connection.execute("UPDATE entries SET tag = %s WHERE account = %s", ("t", str(self._account())))

    def _write_letter(self, connection: psycopg.Connection) -> None:
        letter = self._random.choice([None, "", "".join(self._random.choices("abcdefgh", k=_LETTER_CHARACTERS))])
        connection.execute("UPDATE accounts SET letter = %s WHERE id = %s", (letter, self._account()))

    def _delete(self, connection: psycopg.Connection) -> None:
        connection.execute("DELETE FROM accounts WHERE id = %s", (self._account(),))
        connection.execute("DELETE FROM entries WHERE account = %s", (str(self._account()),))

    def _change_keys(self, connection: psycopg.Connection) -> None:
        connection.execute("UPDATE accounts SET id = %s WHERE id = %s", (self._account(), self._account()))
        connection.execute(
            "UPDATE entries SET account = %s, line = %s WHERE account = %s AND line = %s",
            (str(self._account()), self._line(), str(self._account()), self._line()),
        )

    def _swap_keys(self, connection: psycopg.Connection) -> None:
        one, two = self._account(), self._account()
        connection.execute("UPDATE accounts SET id = -1 WHERE id = %s", (one,))
        connection.execute("UPDATE accounts SET id = %s WHERE id = %s", (one, two))
        connection.execute("UPDATE accounts SET id = %s WHERE id = -1", (two,))

    def _replace(self, connection: psycopg.Connection) -> None:
        """Delete a row and insert its key again, in one transaction."""
        number = self._account()
        connection.execute("DELETE FROM accounts WHERE id = %s", (number,))
        self._put_account(connection, number)
