"""Servers for lakes of tests, one of each per session: PostgreSQL and Iceberg's REST servlet as catalogs, and an S3 store."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any, TypeVar
from urllib.request import urlopen

import psycopg
import pyspark
import pytest
from pyiceberg.catalog import load_catalog

from lakehold import artifacts
from lakehold.iceberg.namespaces import all_namespaces
from lakehold.servers import HOST, Server, ServerCommand, lifecycle
from lakehold.servers.server_directory import make_directory
from lakehold.stack.parts.java import java
from lakehold.stack.parts.postgres import Postgres
from tests.s3_server import S3Server
from tests.spark_connect import free_port
from tests.stack_fixtures import free_ports, open_directory

NewLake = Callable[[str], dict[str, Any]]
"""Arguments of `connect` for a new lake with an `sqlite`, `postgresql` or `rest` catalog, its files in `s3`, or both."""

_ANSWERS_WITHIN_S = 5.0

SomeServer = TypeVar("SomeServer", bound=Server)


class IcebergRest(Server):
    """A REST catalog that keeps all tables in `warehouse`, whatever location a client requests.

    Args:
        directory: A directory of this machine.
        store: The store of the warehouse; None: the warehouse is below `directory`.
    """

    name = "iceberg-rest"
    artifact_sets = ("iceberg-rest", "iceberg-aws")
    up_command = "the test"

    def __init__(self, directory: Path, store: S3Server | None = None) -> None:
        super().__init__(directory)
        self._port = free_port()
        self.uri = f"http://{HOST}:{self._port}"
        own: dict[str, Any] = {"warehouse": (self.folder / "warehouse").as_uri()}
        self._place = store.new_lake(directory) if store else own
        self._files = store.folder_of(self._place["warehouse"]) if store else self.folder / "warehouse"

    @property
    def port(self) -> int:
        return self._port

    def prepare(self) -> None:
        self.folder.mkdir()

    def command(self) -> ServerCommand:
        # Spark brings the libraries with which Iceberg opens files and its database.
        hadoop = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar")
        sqlite = artifacts.directory("spark").glob("sqlite-jdbc-*.jar")
        client = artifacts.jars("iceberg-aws")
        jars = ":".join(map(str, (*artifacts.jars("iceberg-rest"), *client, *hadoop, *sqlite)))
        properties = (
            f"host={HOST}",
            f"port={self._port}",
            f"database=jdbc:sqlite:{self.folder}/catalog.db?journal_mode=WAL&busy_timeout=30000",
            f"warehouse={self._place['warehouse']}",
            *(f"{name}={value}" for name, value in self._place.get("catalog_properties", {}).items()),
        )
        configuration = str(Path(__file__).with_name("iceberg_rest.xml"))
        # The server of the tests refuses the checksums that AWS's client adds otherwise.
        plain = [f"-Daws.{name}=WHEN_REQUIRED" for name in ("requestChecksumCalculation", "responseChecksumValidation")]
        argv = java(
            *plain, "-cp", jars, "org.eclipse.jetty.xml.XmlConfiguration", *properties, configuration, heap_mb=128
        )
        return ServerCommand(argv, self.folder, self.log, environment={})

    def is_healthy(self) -> bool:
        with suppress(OSError), urlopen(f"{self.uri}/v1/config", timeout=_ANSWERS_WITHIN_S) as answer:
            return bool(answer.status == 200)
        return False

    def lake(self) -> dict[str, Any]:
        """Return the arguments of `connect` for the lake."""
        return {**self._place, "catalog_uri": self.uri}

    def clear(self) -> None:
        """Drop everything in the catalog."""
        with closing(load_catalog("tests", type="rest", uri=self.uri)) as catalog:
            for namespace in reversed(all_namespaces(catalog)):
                for view in catalog.list_views(namespace):
                    catalog.drop_view(view)
                for table in catalog.list_tables(namespace):
                    catalog.drop_table(table)
                catalog.drop_namespace(namespace)
        shutil.rmtree(self._files, ignore_errors=True)


@contextmanager
def running(server: SomeServer) -> Iterator[SomeServer]:
    """Run `server` until the block ends, and stop it by its process id."""
    make_directory(server.folder.parent)
    try:
        lifecycle.start(server, Event(), lambda _: None)
        yield server
    finally:
        lifecycle.stop(server, lambda _: None)


@pytest.fixture(scope="session")
def rest_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRest]:
    with running(IcebergRest(tmp_path_factory.mktemp("catalog"))) as server:
        yield server


@pytest.fixture(scope="session")
def rest_s3_server(tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server) -> Iterator[IcebergRest]:
    with running(IcebergRest(tmp_path_factory.mktemp("catalog"), s3_server)) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    with open_directory() as directory, running(Postgres(Path(directory), free_ports())) as server:
        yield server


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running(S3Server(tmp_path_factory.mktemp("s3"))) as server:
        yield server


@pytest.fixture
def new_lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewLake]:
    """Start a server when the first test requests one, and empty it after each test."""
    with ExitStack() as ended:

        def arguments(kind: str) -> dict[str, Any]:
            match kind:
                case "rest" | "rest and s3":
                    rest: IcebergRest = request.getfixturevalue("rest_server" if kind == "rest" else "rest_s3_server")
                    ended.callback(rest.clear)
                    return rest.lake()
                case "postgresql":
                    uri = request.getfixturevalue("postgres_server").addresses.postgres()
                    ended.callback(_clear, uri)
                    sqlalchemy_uri = uri.replace("postgresql:", "postgresql+psycopg2:")
                    return {"warehouse": str(tmp_path / "lake"), "catalog_uri": sqlalchemy_uri}
                case "s3":
                    s3: S3Server = request.getfixturevalue("s3_server")
                    return s3.new_lake(tmp_path)
                case "postgresql and s3":
                    return {**arguments("s3"), "catalog_uri": arguments("postgresql")["catalog_uri"]}
                case _:
                    return {"warehouse": str(tmp_path / "lake")}

        yield arguments


def _clear(postgres_uri: str) -> None:
    with psycopg.connect(postgres_uri) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
