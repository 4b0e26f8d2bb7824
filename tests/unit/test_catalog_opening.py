"""Opening a lake although its catalog fails for a moment."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog

from lakehold.demo.demo_steps import lake_settings
from lakehold.errors import SettingsError, UpstreamUnavailable
from lakehold.iceberg.properties import pyiceberg_properties
from lakehold.lake import connect
from lakehold.settings import Settings, load_settings
from lakehold.state.catalog_opening import OPEN_ATTEMPTS, open_catalog
from lakehold.state.format_version import KEEPER
from lakehold.state.schema_files import SYSTEM_NAMESPACE, system_tables

RACE = "UncheckedSQLException: Failed to execute: INSERT INTO iceberg_namespace_properties"


class SecondToMakeNamespaces(BaseHTTPRequestHandler):
    """A REST catalog without tables, whose namespaces another client always creates first."""

    namespaces = 0

    def do_GET(self) -> None:
        is_config = self.path.startswith("/v1/config")
        self._answer(200 if is_config else 404, {"defaults": {}, "overrides": {}} if is_config else {})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        type(self).namespaces += 1
        self._answer(500, {"error": {"type": "UncheckedSQLException", "message": RACE, "code": 500}})

    def log_message(self, *_: object) -> None:
        """Suppress the log."""

    def _answer(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def catalog_uri() -> Iterator[str]:
    SecondToMakeNamespaces.namespaces = 0
    with ThreadingHTTPServer(("127.0.0.1", 0), SecondToMakeNamespaces) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_server_error_is_retried_and_reported_if_it_persists(catalog_uri: str) -> None:
    with pytest.raises(UpstreamUnavailable, match="does not answer") as raised:
        open_catalog(Settings(warehouse="s3://lake", catalog_uri=catalog_uri))
    assert raised.value.code == "catalog-unavailable"
    assert "INSERT INTO iceberg_namespace_properties" in raised.value.detail
    assert SecondToMakeNamespaces.namespaces == OPEN_ATTEMPTS


@pytest.mark.parametrize("created", range(len(system_tables())))
def test_a_lake_whose_creation_was_killed_is_missing_until_it_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, created: int
) -> None:
    settings = load_settings(warehouse=str(tmp_path / "lake"))
    create, left = SqlCatalog.create_table, [None] * created

    def create_or_die(*of: object, **named: object) -> object:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return create(*of, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as killed:
        killed.setattr(SqlCatalog, "create_table", create_or_die)
        with pytest.raises(KeyboardInterrupt):
            open_catalog(settings)
    with pytest.raises(SettingsError) as missing:
        open_catalog(settings, must_exist=True)
    assert missing.value.code == "lake-missing"
    open_catalog(settings).close()
    with closing(open_catalog(settings, must_exist=True)) as catalog:
        assert all(catalog.table_exists(schema.table) for schema in system_tables())


def test_a_warehouse_with_the_catalog_of_another_lake_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog_uri = f"sqlite:///{tmp_path}/catalog.db"
    monkeypatch.setenv("LAKEHOLD_CATALOG_URI", catalog_uri)
    with connect(str(tmp_path / "production")) as lake:
        lake.sql("CREATE CONNECTION k TO KAFKA (BROKER 'b:9092')")
    with pytest.raises(SettingsError, match=r'the catalog has no lake in "file://[^"]*/scratch"') as refused:
        connect(str(tmp_path / "scratch"))
    assert refused.value.code == "warehouse-differs"
    assert f'"{catalog_uri}" is in "file://{tmp_path}/production"' in refused.value.detail
    assert "lakehold.toml" in refused.value.hint
    with connect(str(tmp_path / "scratch"), catalog_name="scratch") as lake:
        assert not lake.definitions.definitions().connections
    (tmp_path / "link").symlink_to(tmp_path / "production")
    with connect(str(tmp_path / "link")) as lake:
        assert lake.definitions.definitions().connections.keys() == {"k"}


def test_a_lake_whose_old_path_is_a_link_to_its_new_disk_opens(tmp_path: Path) -> None:
    with connect(str(tmp_path / "lake")) as lake:
        lake.sql("CREATE CONNECTION k TO KAFKA (BROKER 'b:9092')")
    shutil.move(tmp_path / "lake", tmp_path / "disk")
    (tmp_path / "lake").symlink_to(tmp_path / "disk")
    with connect(str(tmp_path / "lake")) as lake:
        assert lake.definitions.definitions().connections.keys() == {"k"}


def test_a_copy_beside_its_original_is_refused(tmp_path: Path) -> None:
    with connect(str(tmp_path / "lake")):
        pass
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    with pytest.raises(SettingsError) as refused:
        connect(str(tmp_path / "copy"))
    assert refused.value.code == "warehouse-differs"


def move_in(settings: Settings, place: str, **properties: str) -> None:
    """Make a database the catalog of a lake whose first table is at `place`."""
    location = f"{settings.warehouse}/{place}"
    Path(settings.warehouse.removeprefix("file://")).mkdir()
    with closing(load_catalog(settings.catalog_name, **pyiceberg_properties(settings))) as moved:
        moved.create_namespace(SYSTEM_NAMESPACE)
        (objects,) = (schema for schema in system_tables() if schema.table == KEEPER)
        named = {f"lakehold.{name}": value for name, value in properties.items()}
        moved.create_table(KEEPER, objects.schema, location, properties=named)


@pytest.mark.parametrize("place", ["mz_catalog/mz_objects-5b8f", "../server/5b8f"])
def test_a_lake_from_a_server_opens_in_a_database_wherever_its_tables_are(tmp_path: Path, place: str) -> None:
    settings = load_settings(warehouse=str(tmp_path / "lake"))
    move_in(settings, place, warehouse=settings.warehouse)
    open_catalog(settings).close()
    elsewhere = settings.model_copy(update={"warehouse": f"file://{tmp_path}/elsewhere"})
    with pytest.raises(SettingsError) as refused:
        open_catalog(elsewhere)
    assert refused.value.code == "warehouse-differs"
    assert f'is in "{settings.warehouse}"' in refused.value.detail


def test_a_lake_in_a_database_without_the_name_of_its_warehouse_is_where_its_tables_are(tmp_path: Path) -> None:
    settings = load_settings(warehouse=str(tmp_path / "lake"))
    move_in(settings, "mz_catalog/mz_objects")
    open_catalog(settings).close()
    elsewhere = settings.model_copy(update={"warehouse": f"file://{tmp_path}/elsewhere"})
    with pytest.raises(SettingsError) as refused:
        open_catalog(elsewhere)
    assert refused.value.code == "warehouse-differs"


def test_the_demo_has_its_own_catalog_whatever_lake_the_settings_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lakehold.toml").write_text(
        'warehouse = "s3://bucket/lake"\ncatalog_uri = "https://catalog.example"\ncatalog_name = "main"\n'
        '[catalog_properties]\nwarehouse = "production"\n'
    )
    assert load_settings().catalog_properties == {"warehouse": "production"}
    settings = lake_settings(tmp_path / "demo", schemas="")
    assert settings.catalog_uri == f"sqlite:///{tmp_path}/demo/catalog.db"
    assert (settings.catalog_name, settings.catalog_properties) == ("lake", {})
    with closing(open_catalog(settings)) as catalog:
        assert catalog.load_table("mz_catalog.mz_objects").location().startswith(f"file://{tmp_path}/demo/")
