"""A shop in PostgreSQL that a lake captures by statements alone, and inspections of its upstream objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from psycopg import sql

from lakehold.lake import Lake
from lakehold.status import status_of
from tests.conftest import LakeFactory
from tests.connector_topics import ConnectorTopics
from tests.live_source import execute
from tests.stack_fixtures import SourceDatabase
from tests.waiting import wait_for


class Shop:
    """The source `shop` of a lake over one database, with tables of the same names."""

    def __init__(
        self,
        make_lake: LakeFactory,
        database: SourceDatabase,
        value_format: str = "FORMAT JSON",
        user: str | None = None,
        tls: str = "",
    ) -> None:
        self._make_lake = make_lake
        self.lake: Lake = make_lake()
        self.database = database
        self._value_format = value_format
        self.user = user or database.addresses.postgres_user
        lake = self.lake
        addresses = database.addresses
        lake.sql(
            f"CREATE CONNECTION kafka TO KAFKA (BROKER '{addresses.kafka}');"
            f"CREATE CONNECTION registry TO SCHEMA REGISTRY (URL '{addresses.registry}');"
            f"CREATE CONNECTION pg TO POSTGRES (HOST '{addresses.postgres_host}', PORT {addresses.postgres_port}, "
            f"USER '{self.user}', PASSWORD SECRET 'pg', DATABASE '{database.name}'{tls});"
            f"CREATE CONNECTION connect TO CONNECT (URL '{addresses.connect}', AVRO CONVERTER 'apicurio', "
            f"REGISTRY URL '{addresses.registry_native}');{self.creating_source}"
        )

    @property
    def creating_source(self) -> str:
        """Return the statement that creates the source."""
        database = self.database
        return (
            f"CREATE SOURCE shop FROM POSTGRES CONNECTION pg (PUBLICATION 'lake', SLOT '{database.name}') "
            f"VIA CONNECT CONNECTION connect INTO KAFKA CONNECTION kafka (TOPIC PREFIX '{database.topic_prefix}') "
            f"{self._value_format}"
        )

    def reopen(self) -> None:
        """Continue as another process, which has not inspected the connector yet."""
        settings = self.lake.settings
        self.lake = self._make_lake(Path(settings.warehouse), catalog_name=settings.catalog_name)

    def close(self) -> None:
        """Remove all upstream objects of the source."""
        if "shop" in self.lake.definitions.definitions().sources:
            self.lake.sql("DROP SOURCE shop CASCADE")

    @staticmethod
    def creating(table: str, envelope: str = "DEBEZIUM") -> str:
        return f"CREATE TABLE shop.{table} FROM SOURCE shop (TABLE 'public.{table}') ENVELOPE {envelope}"

    def upstream(self, *tables: str, rows: int = 200) -> None:
        """Create tables in the database."""
        for table in tables:
            execute(
                self.database,
                [
                    f"CREATE TABLE {table} (id int PRIMARY KEY, n int, note text)",
                    f"ALTER TABLE {table} REPLICA IDENTITY FULL",
                    f"INSERT INTO {table} SELECT i, 0, '{table}' FROM generate_series(1, {rows}) i",
                ],
            )

    def steps(self, statement: str) -> list[str]:
        """Return the steps that EXPLAIN shows, without the prefix that differs in each test."""
        rows = self.lake.sql(f"EXPLAIN {statement}").rows
        return [text.replace(self.database.name, "shop") for (text,) in rows]

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        found = self.lake.sql(f"SELECT id, n, note FROM {self.lake.settings.catalog_name}.shop.{table}").rows
        return sorted(found)

    def wanted(self, table: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database.addresses.postgres(self.database.name)) as connection:
            return sorted(connection.execute(f"SELECT id, n, note FROM {table}".encode()).fetchall())

    def follow_until_equal(self, *tables: str) -> None:
        """Ingest until the lake's tables equal those of the database."""

        def equal() -> bool:
            for report in self.lake.ingest("shop"):
                for error in report.stopped.values():
                    raise error
            return all(self._has(table) and self.rows(table) == self.wanted(table) for table in tables)

        wait_for(equal, "the lake is equal to the database")

    def follow_until_readable(self, table: str) -> None:
        """Ingest until a table is readable. A table that joined becomes readable when the other tables reach its rows."""

        def readable() -> bool:
            list(self.lake.ingest("shop"))
            return self.since(table) is not None

        wait_for(readable, f"{table} is readable")

    def follow_until_nothing_is_reported(self) -> None:
        """Ingest until `status` has no notices, so that no changes are missing."""

        def quiet() -> bool:
            list(self.lake.ingest("shop"))
            return status_of(self.lake).notices == ()

        wait_for(quiet, "status has no notices")

    def _has(self, table: str) -> bool:
        return self.lake.tables.table_state(f"shop.{table}") is not None

    def since(self, table: str) -> Any:
        return self._status(table)["since"]

    def state(self, table: str) -> str:
        return str(self._status(table)["state"])

    def upper_ms(self, table: str) -> int:
        return self.lake.timelines.of([f"shop.{table}"])[f"shop.{table}"].upper_ms

    def _status(self, table: str) -> dict[str, Any]:
        status = status_of(self.lake)
        rows = (dict(zip(status.columns, row, strict=True)) for row in status.rows)
        return next(row for row in rows if row["table"] == f"shop.{table}")

    def topics(self) -> set[str]:
        """Return the broker's topics of the source, without their prefix."""
        names = AdminClient({"bootstrap.servers": self.database.addresses.kafka}).list_topics(timeout=10).topics
        return {name.replace(self.database.name, "shop") for name in names if self.database.name in name}

    def slots(self) -> int:
        ((count,),) = self.query("SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s", self.database.name)
        return int(count)

    def signal_schemas(self) -> int:
        ((count,),) = self.query("SELECT count(*) FROM pg_namespace WHERE nspname = 'lakehold_signals'")
        return int(count)

    def publications(self) -> dict[str, set[str]]:
        of_each = "ARRAY(SELECT tablename FROM pg_publication_tables t WHERE t.pubname = p.pubname)"
        found = self.query(f"SELECT pubname, {of_each} FROM pg_publication p")
        return {name: set(tables) for name, tables in found}

    def drop_slot(self) -> None:
        """Drop the replication slot, as a person would who does not know its purpose."""
        self.query(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", self.database.name
        )
        self.query("SELECT pg_drop_replication_slot(%s)", self.database.name)

    @property
    def connector(self) -> ConnectorTopics:
        """Return the topics of the source's connector."""
        return ConnectorTopics(self.database.addresses, self.database.topic_prefix)

    def wait_for_events(self, table: str, wanted: dict[str, int]) -> None:
        """Wait until the topic of a table has so many messages of each kind."""
        wait_for(lambda: self.events(table) == wanted, f"{table} has {wanted}")

    def events(self, table: str) -> Counter[str]:
        """Count the messages of each kind in a table's topic."""
        return self.connector.events(f"public.{table}")

    def sent_ms(self, table: str) -> list[int]:
        """Return the time at which the connector sent each message of a table's topic, in order."""
        return self.connector.sent_ms(f"public.{table}")

    def query(self, statement: str, *values: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database.addresses.postgres(self.database.name), autocommit=True) as connection:
            return connection.execute(statement.encode(), values or None).fetchall()


@pytest.fixture
def shop(make_lake: LakeFactory, database: SourceDatabase, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """Return a captured shop, and remove its upstream objects afterwards."""
    monkeypatch.setenv("LAKEHOLD_SECRET_PG", database.addresses.postgres_password)
    shop = Shop(make_lake, database)
    yield shop
    shop.close()


@pytest.fixture
def poor(make_lake: LakeFactory, database: SourceDatabase, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """Return a shop whose database user has no rights yet."""
    monkeypatch.setenv("LAKEHOLD_SECRET_PG", database.addresses.postgres_password)
    user = f"poor_{database.name}"
    shop = Shop(make_lake, database, user=user)
    password = sql.Literal(database.addresses.postgres_password)
    with psycopg.connect(database.addresses.postgres(database.name), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(user), password))
    yield shop
    shop.close()
    execute(database, [f"DROP OWNED BY {user}", f"DROP ROLE {user}"])


def grant_capture(poor: Shop, *tables: str) -> None:
    """Let a read-only user replicate the tables published for that user, as a superuser would."""
    published = ", ".join(tables)
    statements = [f"GRANT SELECT ON {published} TO {poor.user}", f"ALTER ROLE {poor.user} REPLICATION"]
    execute(poor.database, [*statements, f"CREATE PUBLICATION lake FOR TABLE {published}"])
