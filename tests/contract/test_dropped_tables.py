"""A dropped table goes from the catalog, also when its files cannot be read or deleted: the log names where these are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from requests import PreparedRequest, Response

from lakehold.errors import DefinitionError
from lakehold.iceberg.data_tables import DataTables
from tests.contract.conftest import CatalogOf

NAME = "shop.orders"
ROWS = pa.table({"id": [1, 2]})


def table_of(catalog: Catalog) -> Table:
    catalog.create_namespace("shop")
    table = catalog.create_table(NAME, ROWS.schema)
    for _ in range(3):
        table.append(ROWS)
    return table


def path_of(location: str) -> Path:
    return Path(location.removeprefix("file:"))


def manifest_list_of(table: Table) -> str:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.manifest_list


def forbid(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, is_forbidden: Callable[[PreparedRequest], bool]) -> None:
    """Answer requests of a REST catalog as Apache Polaris does if it does not allow them."""
    assert isinstance(catalog, RestCatalog)
    send = catalog._session.send

    def answered(request: PreparedRequest, **options: Any) -> Response:
        if not is_forbidden(request):
            return send(request, **options)
        refused = Response()
        refused.status_code, refused.request, refused.url = 403, request, str(request.url)
        error = {"message": "Unable to purge entity: orders", "type": "ForbiddenException", "code": 403}
        refused._content = json.dumps({"error": error}).encode()
        return refused

    monkeypatch.setattr(catalog._session, "send", answered)


@pytest.mark.stack
def test_a_catalog_that_refuses_to_purge_drops_the_table_without_its_files(
    catalog_of: CatalogOf, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = catalog_of("rest")
    table = table_of(catalog)
    forbid(catalog, monkeypatch, lambda request: "purgeRequested=True" in str(request.url))
    assert DataTables(catalog).drop_table(NAME)
    assert not catalog.table_exists(NAME)
    (logged,) = (text for record in caplog.records if "is dropped" in (text := record.getMessage()))
    assert f"below {table.location()}; delete them by hand" in logged
    assert "Unable to purge entity" in logged


@pytest.mark.stack
def test_a_catalog_that_refuses_to_drop_a_table_is_an_error(
    catalog_of: CatalogOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = catalog_of("rest")
    table_of(catalog)
    with monkeypatch.context() as refusing:
        forbid(catalog, refusing, lambda request: request.method == "DELETE")
        with pytest.raises(DefinitionError, match="cannot be dropped") as refused:
            DataTables(catalog).drop_table(NAME)
    assert refused.value.code == "drop-refused"
    assert DataTables(catalog).drop_table(NAME)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("{")], ids=["lost", "damaged"])
def test_a_table_whose_metadata_cannot_be_read_is_dropped_from_the_catalog(
    catalog_of: CatalogOf, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    catalog = catalog_of("sqlite")
    location = table_of(catalog).metadata_location
    catalog.close()  # forgets what it has read
    damage(path_of(location))
    tables = DataTables(catalog)
    with pytest.raises(DefinitionError, match="cannot be read"):
        tables.table_state(NAME)
    assert tables.drop_own(NAME, "owner", "old")
    assert tables.table_state(NAME) is None
    assert location in caplog.text


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("rest", marks=pytest.mark.stack)])
def test_a_table_is_dropped_only_for_that_for_which_it_was_made(catalog_of: CatalogOf, kind: str) -> None:
    catalog = catalog_of(kind)
    with table_of(catalog).transaction() as change:
        change.set_properties(owner="new")
    tables = DataTables(catalog)
    assert not tables.drop_own(NAME, "owner", "old")
    assert len(catalog.load_table(NAME).scan().to_arrow()) == 6
    assert tables.drop_own(NAME, "owner", "new")
    assert not catalog.table_exists(NAME)
    assert tables.drop_own(NAME, "owner", "new"), "nothing stays"


def test_a_table_of_a_newer_iceberg_stays_as_it_may_be_another_tools(
    catalog_of: CatalogOf, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = catalog_of("sqlite")
    metadata = path_of(table_of(catalog).metadata_location)
    catalog.close()  # forgets what it has read
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), "format-version": 9}))
    assert not DataTables(catalog).drop_own(NAME, "owner", "old")
    assert catalog.list_tables("shop") == [("shop", "orders")]
    assert f"{NAME} stays" in caplog.text


@pytest.mark.stack
def test_a_table_that_nobody_may_read_stays_as_it_may_be_another_tools(
    catalog_of: CatalogOf, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = catalog_of("rest")
    table_of(catalog)
    with monkeypatch.context() as refusing:
        forbid(catalog, refusing, lambda request: request.method == "GET")
        assert not DataTables(catalog).drop_own(NAME, "owner", "old")
    assert catalog.table_exists(NAME)
    assert f"{NAME} stays" in caplog.text


def test_a_table_made_while_the_files_of_an_earlier_one_are_listed_stays(
    catalog_of: CatalogOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = catalog_of("sqlite")
    table_of(catalog)
    list_manifests = Snapshot.manifests

    def replaced_meanwhile(self: Snapshot, io: FileIO) -> list[ManifestFile]:
        monkeypatch.setattr(Snapshot, "manifests", list_manifests)
        catalog.drop_table(NAME)
        catalog.create_table(NAME, ROWS.schema).append(ROWS)
        return self.manifests(io)

    monkeypatch.setattr(Snapshot, "manifests", replaced_meanwhile)
    assert not DataTables(catalog).drop_table(NAME)
    assert len(catalog.load_table(NAME).scan().to_arrow()) == 2


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("no Avro")], ids=["lost", "damaged"])
def test_a_dropped_table_with_a_lost_manifest_list_takes_its_other_files_along(
    catalog_of: CatalogOf, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    catalog = catalog_of("sqlite")
    table = table_of(catalog)
    lost = path_of(manifest_list_of(table))
    damage(lost)
    assert DataTables(catalog).drop_table(NAME)
    assert not catalog.table_exists(NAME)
    left = [path for path in path_of(table.location()).rglob("*") if path.is_file()]
    assert len(left) == 2, "the data file and the manifest that only this list named"
    (logged,) = (text for record in caplog.records if "is dropped" in (text := record.getMessage()))
    assert f"below {table.location()}; delete them by hand" in logged
    assert lost.name in logged
