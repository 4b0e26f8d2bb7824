"""The shop's database on a running stack, and the connector that captures it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files

import psycopg
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from psycopg import sql

from lakehold.demo.shop_rows import SHOP_TABLES, Row, ShopTable
from lakehold.demo.workload import Transaction
from lakehold.stack import (
    ConnectClient,
    ConnectorError,
    StackAddresses,
    ValueFormat,
    debezium_postgres,
    publication_sql,
)
from lakehold.upstream.postgres.database import UNTIL_RELEASED

_TOPICS_WRITTEN_WITHIN_S = 60.0
_TOPICS_DELETED_WITHIN_S = 30.0
_POLL_INTERVAL_S = 0.1

TABLES = tuple(f"public.{table.name}" for table in SHOP_TABLES)


@dataclass(frozen=True)
class ShopDatabase:
    """A database with the shop in it.

    Attributes:
        addresses: The stack.
        name: Name of the database, its connector, its replication slot and its publication.
        topic_prefix: First part of the topics' names.
    """

    addresses: StackAddresses
    name: str
    topic_prefix: str

    @property
    def topics(self) -> tuple[str, ...]:
        """Return a topic for each table, then the one of the transactions."""
        return (*(f"{self.topic_prefix}.{table}" for table in TABLES), f"{self.topic_prefix}.transaction")

    def connect(self) -> psycopg.Connection:
        """Open a connection on which each `transaction()` is one transaction of the database."""
        return psycopg.connect(self.addresses.postgres(self.name), autocommit=True)

    def rows(self, table: ShopTable) -> list[Row]:
        """Fetch all rows of a table as it is now."""
        with self.connect() as connection:
            return connection.execute(table.in_postgres()).fetchall()

    def capture(self, value_format: ValueFormat) -> None:
        """Start a connector over the tables and wait until it writes their topics."""
        config = debezium_postgres(
            self.addresses,
            topic_prefix=self.topic_prefix,
            database=self.name,
            tables=TABLES,
            publication=self.name,
            slot=self.name,
            value_format=value_format,
        )
        with ConnectClient(self.addresses.connect) as connect:
            connect.put(self.name, config)
            connect.wait_until_running(self.name)
        self._wait_for_topics()

    def _wait_for_topics(self) -> None:
        wanted = {f"{self.topic_prefix}.{table}" for table in TABLES}
        broker = AdminClient({"bootstrap.servers": self.addresses.kafka})
        deadline_s = time.monotonic() + _TOPICS_WRITTEN_WITHIN_S
        while not wanted <= broker.list_topics(timeout=_TOPICS_WRITTEN_WITHIN_S).topics.keys():
            if time.monotonic() > deadline_s:
                raise ConnectorError(
                    f'connector "{self.name}" runs, but does not write',
                    hint="See its log: lakehold stack status shows the file.",
                )
            time.sleep(_POLL_INTERVAL_S)

    def _create(self, opening: Transaction) -> None:
        self._maintain(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(self.name)))
        with self.connect() as connection:
            connection.execute(files("lakehold.demo").joinpath("shop.postgres.sql").read_bytes())
            for statement in publication_sql(self.name, TABLES):
                connection.execute(statement.encode())
            run(connection, opening)

    def _drop(self) -> None:
        with ConnectClient(self.addresses.connect) as connect, suppress(ConnectorError):
            connect.delete(self.name)
        self._drop_slot()
        # Keep a reference: Python frees an unreferenced client, and its answers with it.
        client = AdminClient({"bootstrap.servers": self.addresses.kafka})
        for deleted in client.delete_topics([*self.topics]).values():
            with suppress(KafkaException):  # one without messages was never made
                deleted.result(_TOPICS_DELETED_WITHIN_S)
        self._maintain(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(self.name)))

    def _drop_slot(self) -> None:
        statement = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s"
        with psycopg.connect(self.addresses.postgres(), autocommit=True) as connection:
            UNTIL_RELEASED(connection.execute, statement, [self.name])

    def _maintain(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.addresses.postgres(), autocommit=True) as connection:
            connection.execute(statement)


@contextmanager
def open_shop(addresses: StackAddresses, name: str, topic_prefix: str, opening: Transaction) -> Iterator[ShopDatabase]:
    """Open a new shop with its first rows, not captured yet; at the end drop it, with everything that captured it."""
    shop = ShopDatabase(addresses, name, topic_prefix)
    try:
        shop._create(opening)
        yield shop
    finally:
        shop._drop()


def run(connection: psycopg.Connection, transaction: Transaction) -> int:
    """Run one transaction; returns PostgreSQL's number of it (`txId` in Debezium's messages)."""
    with connection.transaction():
        for statement in transaction.statements:
            connection.execute(statement.sql, statement.values)
        row = connection.execute("SELECT pg_current_xact_id()::text").fetchone()
    return int(row[0]) if row else 0
