"""A bank in a real database, with two invariants after each commit.

The balances of all accounts add up to their first total, and each account's balance is the sum of its entries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from random import Random

import psycopg

from tests.mariadb_server import MariaDb
from tests.stack_fixtures import SourceDatabase

TELLERS = 4
ACCOUNTS = 24
OPENING = 100
"""The first entry of each account."""

Rows = Iterable[tuple[int, int]]


class Bank(ABC):
    """Tellers who change `accounts` and `entries` at the same time, each only their own accounts."""

    tables: Sequence[str]
    sleep: str

    @abstractmethod
    def session(self, transactions: Iterable[Sequence[str]]) -> None:
        """Run transactions one after the other, each with its BEGIN and its end."""

    def open(self) -> None:
        """Make the tables and the accounts."""
        accounts = [(account, OPENING) for account in range(ACCOUNTS)]
        opening = [f"INSERT INTO accounts VALUES ({account}, {balance})" for account, balance in accounts]
        entries = [_entry(account, amount) for account, amount in accounts]
        self.session([self.tables, ["BEGIN", *opening, *entries, "COMMIT"]])

    def run(self, teller: int, transactions: int) -> None:
        """Run so many transactions of one teller: short and long ones, some large, some rolled back."""
        random = Random(teller)
        own = [account for account in range(ACCOUNTS) if account % TELLERS == teller]
        self.session(self._transaction(random, own) for _ in range(transactions))

    def _transaction(self, random: Random, accounts: Sequence[int]) -> list[str]:
        statements = ["BEGIN"]
        for _ in range(random.choice([1, 1, 1, 2, 5, 40])):
            statements += _transfer(random, *random.sample(accounts, 2))
        if random.random() < 0.2:
            statements.append(self.sleep)
        return [*statements, "ROLLBACK" if random.random() < 0.1 else "COMMIT"]


class PostgresBank(Bank):
    """A bank in PostgreSQL."""

    tables = (
        "CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL)",
        "CREATE TABLE entries (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, account int NOT NULL, amount int NOT NULL)",
    )
    sleep = "SELECT pg_sleep(0.05)"

    def __init__(self, database: SourceDatabase) -> None:
        self._uri = database.addresses.postgres(database.name)

    def session(self, transactions: Iterable[Sequence[str]]) -> None:
        """See `Bank.session`."""
        with psycopg.connect(self._uri, autocommit=True) as connection:
            for transaction in transactions:
                for statement in transaction:
                    connection.execute(statement.encode())


class MariaDbBank(Bank):
    """A bank in MariaDB, in the database `bank`."""

    tables = (
        "CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL)",
        "CREATE TABLE entries (id int AUTO_INCREMENT PRIMARY KEY, account int NOT NULL, amount int NOT NULL, INDEX (account))",
    )
    sleep = "DO SLEEP(0.05)"

    def __init__(self, server: MariaDb) -> None:
        self._server = server
        server.execute("CREATE DATABASE bank")

    def session(self, transactions: Iterable[Sequence[str]]) -> None:
        """See `Bank.session`."""
        for transaction in transactions:
            # A DELETE may lock rows of other tellers on its way to its own.
            while not self._server.is_executed("USE bank", *transaction):
                pass


def assert_balanced(accounts: Rows, entries: Rows) -> None:
    """Check the two invariants of the bank."""
    balances: dict[int, int] = dict(accounts)
    assert sum(balances.values()) == ACCOUNTS * OPENING
    sums = dict.fromkeys(balances, 0)
    for account, amount in entries:
        sums[account] += amount
    assert sums == balances


def _transfer(random: Random, payer: int, payee: int) -> list[str]:
    amount = random.randrange(-50, 50)
    statements = []
    for account, change in ((payer, -amount), (payee, amount)):
        statements.append(f"UPDATE accounts SET balance = balance + {change} WHERE id = {account}")
        statements.append(_entry(account, change))
    if random.random() < 0.3:
        # One entry replaces all entries of the account.
        statements.append(f"DELETE FROM entries WHERE account = {payer}")
        statements.append(f"INSERT INTO entries (account, amount) SELECT id, balance FROM accounts WHERE id = {payer}")
    return statements


def _entry(account: int, amount: int) -> str:
    return f"INSERT INTO entries (account, amount) VALUES ({account}, {amount})"
