"""A lake whose catalog is a server ingests, holds, checks, maintains and publishes tables there, also in an object store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pyiceberg.io import load_file_io

from lakehold.errors import DefinitionError
from lakehold.iceberg.data_tables import DataTables
from lakehold.lake import Lake
from lakehold.overview import gather, render
from lakehold.stack.parts.postgres import Postgres
from lakehold.status import status_of
from tests import recorded_files
from tests.catalog_servers import NewLake, new_lake, postgres_server, rest_s3_server, rest_server, s3_server
from tests.certificates import Authority
from tests.conftest import LakeFactory
from tests.postgres_tls import serve_tls

__all__ = ["new_lake", "postgres_server", "rest_s3_server", "rest_server", "s3_server"]

pytestmark = [pytest.mark.spark, pytest.mark.stack]

NAME = "shop.items"
KEEP_NOTHING = {"foreign_lag_ms": 0, "retain_history_ms": 0, "expire_grace_ms": 0}


@pytest.fixture(
    params=[
        "postgresql and s3",
        "rest and s3",
        *(pytest.param(server, marks=pytest.mark.soak) for server in ("postgresql", "rest")),
    ]
)
def lake(request: pytest.FixtureRequest, make_lake: LakeFactory, new_lake: NewLake, tmp_path: Path) -> Lake:
    """Open an empty lake that keeps only held history, and expects of a table that its keys are unique."""
    suites = tmp_path / "expectations"
    suites.mkdir()
    unique = {"type": "expect_key_to_be_unique", "kwargs": {"key": ["id"]}}
    (suites / f"{NAME}.json").write_text(json.dumps({"name": NAME, "expectations": [unique]}))
    return make_lake(**new_lake(request.param), **KEEP_NOTHING, expectations=str(suites))


class Feed:
    """A table and the recorded file that feeds it."""

    def __init__(self, lake: Lake, directory: Path) -> None:
        self._lake, self._file = lake, directory / "items.jsonl"
        self._offset = 0
        lake.sql(f"""
            CREATE SOURCE feed FROM FILES '{directory}' FORMAT JSON;
            CREATE TABLE {NAME} (id BIGINT, v STRING) FROM SOURCE feed (TOPIC 'items') KEY (id) ENVELOPE UPSERT
        """)

    def ingest(self, *changes: tuple[int, str | None]) -> int:
        """Ingest (id, v) pairs, where None deletes; return the timestamp of their batch."""
        for key, value in changes:
            body = None if value is None else json.dumps({"id": key, "v": value}).encode()
            line = recorded_files.line("items", 0, self._offset, body, json.dumps({"id": key}).encode())
            recorded_files.append(self._file, [line])
            self._offset += 1
        (batch,) = self._lake.ingest("feed")
        assert not batch.stopped
        return batch.timestamp_ms


def tags(lake: Lake) -> set[str]:
    return set(lake.catalog.load_table(NAME).metadata.refs) - {"main"}


def snapshots(lake: Lake) -> int:
    return len(lake.catalog.load_table(NAME).metadata.snapshots)


def test_tables_are_ingested_held_maintained_subscribed_to_and_published(lake: Lake, tmp_path: Path) -> None:
    feed = Feed(lake, tmp_path / "topics")
    first = feed.ingest((1, "a"), (2, "b"))
    lake.sql(f"CREATE HOLD h ON {NAME}; CREATE SUBSCRIPTION s INTO bi.items AS SUBSCRIBE {NAME}")
    second = feed.ingest((1, "A"), (2, None), (3, "c"))
    assert sorted(lake.sql(f"SELECT * FROM {NAME}").rows) == [(1, "A"), (3, "c")]
    assert "hold_h" in tags(lake)

    diffs = [(first, 1, 1, "a"), (first, 1, 2, "b"), (second, 1, 1, "A"), (second, -1, 1, "a"), (second, -1, 2, "b")]
    diffs.append((second, 1, 3, "c"))
    assert [report.error for report in lake.maintain() if report.error] == []
    assert sorted(lake.sql(f"SUBSCRIBE {NAME} AS OF {first}").rows) == sorted(diffs)
    assert sorted(lake.sql(f"SELECT * FROM {NAME} VERSION AS OF 'hold_h'").rows) == [(1, "a"), (2, "b")]
    verdict = lake.check(NAME, hold="h")
    assert verdict.statistics == {"evaluated": 1, "successful": 1, "failed": 0}
    assert load_file_io(lake.catalog.properties, verdict.html_path).new_input(verdict.html_path).exists()
    lake.publish("s")
    assert sorted(lake.sql("SELECT mz_timestamp, mz_diff, id, v FROM bi.items").rows) == sorted(diffs)

    assert [(row[0], row[5]) for row in status_of(lake).rows] == [(NAME, 2)]
    assert NAME in render(gather(lake))

    held = snapshots(lake)
    lake.sql("DROP HOLD h; DROP SUBSCRIPTION s")
    assert [report.error for report in lake.maintain() if report.error] == []
    assert snapshots(lake) < held
    assert tags(lake) == set()
    assert sorted(lake.sql(f"SELECT * FROM {NAME}").rows) == [(1, "A"), (3, "c")]


def test_views_are_distinguished_from_tables_and_both_are_dropped(lake: Lake) -> None:
    lake.sql("CREATE NAMESPACE shop; CREATE TABLE shop.rates (id INT) USING iceberg")
    lake.sql("CREATE VIEW shop.best AS SELECT max(id) AS id FROM shop.rates")
    ((view, location),) = DataTables(lake.catalog).view_locations().items()
    assert (view, location is not None and "/best" in location) == ("shop.best", True)
    with pytest.raises(DefinitionError, match="It is a view"):
        lake.sql("CREATE HOLD h ON shop.best")
    lake.sql("CREATE HOLD h ON shop.rates; DROP TABLE shop.rates CASCADE; DROP VIEW shop.best")
    assert lake.sql("SHOW TABLES IN shop").rows == []


@pytest.fixture
def tls(postgres_server: Postgres, tmp_path: Path) -> Iterator[Path]:
    """Make PostgreSQL serve with a certificate, and return the file of its authority."""
    uri = postgres_server.addresses.postgres()
    authority = Authority(tmp_path)
    serve_tls(uri, authority.issue("good"))
    yield authority.file
    serve_tls(uri, None)


def test_spark_connects_to_postgresql_with_the_parameters_of_the_catalog(
    make_lake: LakeFactory, new_lake: NewLake, postgres_server: Postgres, tls: Path
) -> None:
    arguments = new_lake("postgresql")
    arguments["catalog_uri"] += (
        f"?sslmode=verify-full&sslrootcert={tls}&options=-csearch_path%3Dlake&application_name=the%20shop"
    )
    with psycopg.connect(postgres_server.addresses.postgres(), autocommit=True) as connection:
        connection.execute("CREATE SCHEMA lake")
        (earlier,) = connection.execute("SELECT array_agg(pid) FROM pg_stat_activity").fetchone() or ([],)
        lake = make_lake(**arguments)
        lake.sql("CREATE NAMESPACE shop; CREATE TABLE shop.t USING iceberg AS SELECT 1 AS id")
        assert lake.tables.names_in("shop") == ["t"]
        schemas = "SELECT DISTINCT table_schema FROM information_schema.tables WHERE table_name LIKE 'iceberg%'"
        assert connection.execute(schemas).fetchall() == [("lake",)]
        sessions = """
            SELECT DISTINCT application_name, ssl FROM pg_stat_activity JOIN pg_stat_ssl USING (pid)
            WHERE client_port IS NOT NULL AND pid <> ALL (%s)
        """
        assert connection.execute(sessions, [earlier]).fetchall() == [("the shop", True)]
        connection.execute("DROP SCHEMA lake CASCADE")
