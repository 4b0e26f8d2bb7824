"""A lake that follows one database of the live stack: capture, define, wait until changes arrive, compare.

Every comparison is with PostgreSQL itself, row by row.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from lakehold.ingest.batch_report import BatchReport
from lakehold.lake import Lake
from lakehold.stack import ConnectClient, publication_sql
from lakehold.stack.connectors import ValueFormat
from tests.stack_fixtures import SourceDatabase

_ARRIVES_WITHIN_S = 60.0
_SHOWN_DIFFERENCES = 8
_MARKER = "arrival_marker"

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Column:
    """A column, and the expressions that show it as one Python value on both sides; `{}` is its name."""

    name: str
    in_postgres: str = "{}"
    in_lake: str = "{}"


def execute(database: SourceDatabase, statements: Iterable[str]) -> None:
    """Run statements that are built from parts, in one transaction."""
    with psycopg.connect(database.addresses.postgres(database.name)) as connection:
        for statement in statements:
            connection.execute(statement.encode())


class LiveSource:
    """The source `live` of a lake, over tables of one database.

    Args:
        lake: An empty lake.
        database: Holds the tables, with rows in each.
        tables: Their names.
        value_format: Format of the connector's messages.
        partitions: Number of partitions of each table's topic.
        max_records: The most records of one batch.
        connector_options: Further options of the connector.
        whole_transactions: Use the transaction topic, so that batches hold whole transactions.
    """

    def __init__(
        self,
        lake: Lake,
        database: SourceDatabase,
        *tables: str,
        value_format: ValueFormat = "avro",
        partitions: int = 1,
        max_records: int = 100_000,
        connector_options: Mapping[str, str] | None = None,
        whole_transactions: bool = False,
    ) -> None:
        self.lake = lake
        self.database = database
        self._partitions = partitions
        database.execute(f"CREATE TABLE {_MARKER} (token text PRIMARY KEY)")
        self._capture([*tables, _MARKER], value_format, connector_options or {})
        topics = ", ".join(f"'{self.topic(table)}'" for table in tables)
        transactions = f"TRANSACTION METADATA TOPIC '{database.topic('transaction')}'" if whole_transactions else ""
        written = "AVRO USING SCHEMA REGISTRY CONNECTION registry" if value_format == "avro" else "JSON"
        lake.sql(
            f"CREATE CONNECTION kafka TO KAFKA (BROKER '{database.addresses.kafka}');"
            f"CREATE CONNECTION registry TO SCHEMA REGISTRY (URL '{database.addresses.registry}');"
            f"CREATE SOURCE live FROM KAFKA CONNECTION kafka (TOPICS ({topics})) FORMAT {written} "
            f"{transactions} WITH (MAX RECORDS = {max_records})"
        )

    def topic(self, table: str) -> str:
        """Return the topic of a table."""
        return self.database.topic(f"public.{table}")

    def table(self, name: str, upstream: str, envelope: str, options: str = "") -> None:
        """Define a table `live.<name>` of the lake."""
        self.lake.sql(
            f"CREATE TABLE live.{name} FROM SOURCE live (TOPIC '{self.topic(upstream)}') ENVELOPE {envelope} {options}"
        )

    def wait_for_arrival(self) -> None:
        """Wait until every change committed so far is in Kafka.

        The connector sends the changes of one poll in a Kafka transaction, which partitions show at different times. The next
        transaction begins when all partitions show this one, so the second marker follows the first marker's transaction.
        """
        for _ in range(2):
            self._wait_for_marker()

    def _wait_for_marker(self) -> None:
        token = uuid.uuid4().hex
        execute(self.database, [f"INSERT INTO {_MARKER} VALUES ('{token}')"])
        consumer = Consumer({"bootstrap.servers": self.database.addresses.kafka, "group.id": token, "log_level": 0})
        topic = self.topic(_MARKER)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(self._partitions)])
        deadline = time.monotonic() + _ARRIVES_WITHIN_S
        try:
            while time.monotonic() < deadline:
                message = consumer.poll(0.5)
                value = message.value() if message is not None and message.error() is None else None
                if value is not None and token.encode() in value:
                    return
        finally:
            consumer.close()
        raise AssertionError(f"the changes did not arrive within {_ARRIVES_WITHIN_S} s")

    def ingest(self) -> list[BatchReport]:
        """Ingest everything that has arrived, and raise the error of a table that stops."""
        reports = self.lake.ingest("live")
        for report in reports:
            for error in report.stopped.values():
                raise error
        return reports

    def catch_up(self) -> list[BatchReport]:
        """Wait until everything has arrived, and ingest it."""
        self.wait_for_arrival()
        return self.ingest()

    def rows(self, table: str, columns: str = "*") -> list[Row]:
        """Return the rows of the lake's table."""
        return self.lake.sql(f"SELECT {columns} FROM {self.lake.settings.catalog_name}.live.{table}").rows

    def assert_equal(
        self, table: str, upstream: str, key: Sequence[str], columns: Sequence[Column] | None = None
    ) -> None:
        """Compare `live.<table>` with the current rows of PostgreSQL's `upstream`.

        Args:
            table: Name of the lake's table.
            upstream: Name of PostgreSQL's table.
            key: The primary key's columns.
            columns: The columns to compare; by default all columns of PostgreSQL's table.
        """
        shown = [*map(Column, key), *(columns or [Column(name) for name in self._column_names(upstream)])]
        in_postgres = ", ".join(c.in_postgres.format(c.name) for c in shown)
        wanted = _by_key(len(key), self._query(f"SELECT {in_postgres} FROM {upstream}"))
        rows = self.rows(table, ", ".join(c.in_lake.format(c.name) for c in shown))
        found = _by_key(len(key), rows)
        assert len(rows) == len(found), f"{table} has {len(rows)} rows of {len(found)} keys"
        different = list(_differences([c.name for c in shown], wanted, found))
        assert not different, "\n".join([f"{table} is not as {upstream}", *different[:_SHOWN_DIFFERENCES]])

    def _column_names(self, table: str) -> list[str]:
        return [
            name
            for (name,) in self._query(
                "SELECT attname FROM pg_attribute "
                f"WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
            )
        ]

    def _query(self, statement: str) -> list[Row]:
        uri = self.database.addresses.postgres(self.database.name)
        with psycopg.connect(uri, options="-c timezone=UTC") as connection:
            return connection.execute(statement.encode()).fetchall()

    def _capture(self, tables: Sequence[str], value_format: ValueFormat, options: Mapping[str, str]) -> None:
        names = [f"public.{table}" for table in tables]
        execute(self.database, publication_sql("captured", names))
        config = self.database.connector_config(*names, value_format=value_format, partitions=self._partitions)
        with ConnectClient(self.database.addresses.connect) as connect:
            connect.put(self.database.name, {**config, **options})
            connect.wait_until_running(self.database.name)


def _differences(names: Sequence[str], wanted: Mapping[Row, Row], found: Mapping[Row, Row]) -> Iterator[str]:
    """Yield a line for each row that only one side has or that differs."""
    for key in sorted(wanted.keys() | found.keys(), key=repr):
        want, have = wanted.get(key), found.get(key)
        if want is None or have is None:
            yield f"{key}: only in {'PostgreSQL' if have is None else 'the lake'}"
        elif repr(want) != repr(have):  # unlike `==`, distinguishes 0.0 from -0.0 and finds NaN equal to NaN
            pairs = zip(names, want, have, strict=True)
            yield f"{key}: {', '.join(f'{n} is {h!r:.99}, not {w!r:.99}' for n, w, h in pairs if repr(w) != repr(h))}"


def _by_key(width: int, rows: Sequence[Row]) -> dict[Row, Row]:
    return {tuple(row[:width]): _plain(row) for row in rows}


def _plain(row: Row) -> Row:
    """Convert bytes of either driver to `bytes`."""
    return tuple(bytes(value) if isinstance(value, bytearray | memoryview) else value for value in row)
