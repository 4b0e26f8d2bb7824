"""pgbench's tables and transactions (TPC-B) in a PostgreSQL that a connector captures: a backlog to drain, or a steady load."""

from __future__ import annotations

import time
from threading import Event

import psycopg

from lakehold.lake import Lake
from tests.live_source import LiveSource, execute
from tests.stack_fixtures import SourceDatabase

TABLES = ("accounts", "tellers", "branches", "history")
KEYS = {"accounts": "aid", "tellers": "tid", "branches": "bid", "history": "hid"}
"""The primary key of each table. pgbench's own history has none."""
_ACCOUNTS_PER_BRANCH = 100_000
_TELLERS_PER_BRANCH = 10

_TABLES_SQL = """
    CREATE TABLE branches (bid int PRIMARY KEY, bbalance int NOT NULL, filler char(88));
    CREATE TABLE tellers (tid int PRIMARY KEY, bid int NOT NULL, tbalance int NOT NULL, filler char(84));
    CREATE TABLE accounts (aid int PRIMARY KEY, bid int NOT NULL, abalance int NOT NULL, filler char(84));
    CREATE TABLE history (hid bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tid int, bid int, aid int, delta int,
                          mtime timestamp, filler char(22));
    ALTER TABLE branches REPLICA IDENTITY FULL;
    ALTER TABLE tellers REPLICA IDENTITY FULL;
    ALTER TABLE accounts REPLICA IDENTITY FULL;
    CREATE PROCEDURE bank(transactions int, branches int, is_committing boolean) LANGUAGE plpgsql AS $$
    DECLARE
        a int; t int; b int; d int;
    BEGIN
        FOR i IN 1..transactions LOOP
            a := 1 + floor(random() * branches * 100000)::int;
            t := 1 + floor(random() * branches * 10)::int;
            b := 1 + floor(random() * branches)::int;
            d := floor(random() * 10001)::int - 5000;
            UPDATE accounts SET abalance = abalance + d WHERE aid = a;
            UPDATE tellers SET tbalance = tbalance + d WHERE tid = t;
            UPDATE branches SET bbalance = bbalance + d WHERE bid = b;
            INSERT INTO history (tid, bid, aid, delta, mtime) VALUES (t, b, a, d, now() AT TIME ZONE 'UTC');
            IF is_committing THEN
                COMMIT;
            END IF;
        END LOOP;
    END $$;
"""
"""The transactions of pgbench as a procedure of the database, so that a client does not limit the load."""


class Bank:
    """pgbench's database and the source `live` of a lake that mirrors it, with whole transactions.

    Args:
        lake: A lake without a source `live`.
        database: An empty database.
        branches: The scale of pgbench: each branch has 100,000 accounts.
        max_records: The most records of one batch.
    """

    def __init__(self, lake: Lake, database: SourceDatabase, branches: int, max_records: int) -> None:
        self._database = database
        self._branches = branches
        rows = {
            "branches": branches,
            "tellers": branches * _TELLERS_PER_BRANCH,
            "accounts": branches * _ACCOUNTS_PER_BRANCH,
        }
        execute(database, [_TABLES_SQL])
        execute(
            database,
            [
                f"INSERT INTO branches SELECT i, 0, '' FROM generate_series(1, {rows['branches']}) i",
                f"INSERT INTO tellers SELECT i, 1 + (i - 1) / 10, 0, '' FROM generate_series(1, {rows['tellers']}) i",
                f"INSERT INTO accounts SELECT i, 1 + (i - 1) / 100000, 0, '' FROM generate_series(1, {rows['accounts']}) i",
                f"CALL bank(1, {branches}, false)",
            ],
        )
        self.source = LiveSource(lake, database, *TABLES, max_records=max_records, whole_transactions=True)
        for table in TABLES:
            self.source.table(table, table, "DEBEZIUM")
        self.source.catch_up()

    def run(self, transactions: int) -> None:
        """Run some transactions one after the other, as fast as they go."""
        with psycopg.connect(self._database.addresses.postgres(self._database.name), autocommit=True) as connection:
            connection.execute("SET synchronous_commit = off")
            connection.execute("CALL bank(%s, %s, true)", (transactions, self._branches))

    def run_until(self, is_over: Event, transactions_per_s: float) -> None:
        """Run transactions at a steady pace until an event is set."""
        with psycopg.connect(self._database.addresses.postgres(self._database.name), autocommit=True) as connection:
            began_s, done = time.monotonic(), 0
            while not is_over.wait(max(0.0, began_s + done / transactions_per_s - time.monotonic())):
                connection.execute("CALL bank(1, %s, true)", (self._branches,))
                done += 1

    def assert_equal(self) -> None:
        """Compare each table with PostgreSQL's."""
        for table in TABLES:
            self.source.assert_equal(table, table, [KEYS[table]])
