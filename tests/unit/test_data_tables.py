"""Facts about a table that need no reading of its data."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.exceptions import BadRequestError, NoSuchNamespaceError
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.typedef import Identifier
from pyiceberg.types import LongType

from lakehold.errors import SettingsError, UpstreamUnavailable
from lakehold.iceberg.column_bounds import EMPTY, ColumnBounds
from lakehold.iceberg.data_tables import DataTables
from lakehold.settings import load_settings
from lakehold.state.catalog_opening import open_catalog

SCHEMA = pa.schema([("id", pa.int32()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("name", pa.string())])


def _days(*day: int) -> int:
    return (date(*day) - date(1970, 1, 1)).days


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    catalog = open_catalog(load_settings(warehouse=str(tmp_path)))
    catalog.create_namespace("shop")
    yield catalog
    catalog.close()


def rows(first: int, last: int) -> pa.Table:
    days = [date(2026, 1, day) for day in range(first, last + 1)]
    ats = [datetime(2026, 1, day, tzinfo=UTC) for day in range(first, last + 1)]
    names: list[str | None] = [None] * len(days)
    return pa.table([list(range(first, last + 1)), days, ats, names], schema=SCHEMA)


def append(catalog: Catalog, data: pa.Table, **summary: str) -> None:
    properties = {f"lakehold.{name}": value for name, value in summary.items()}
    catalog.load_table("shop.orders").append(data, snapshot_properties=properties)


def test_a_missing_table_has_no_state(catalog: Catalog) -> None:
    tables = DataTables(catalog)
    assert tables.table_state("shop.orders") is None
    assert tables.table_state("nowhere.orders") is None
    assert tables.drop_table("shop.orders") is False


def test_a_catalog_that_does_not_answer_is_named_when_its_tables_are_listed(tmp_path: Path, catalog: Catalog) -> None:
    (database,) = tmp_path.rglob("*.db")
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("DROP TABLE iceberg_tables")
    with pytest.raises(UpstreamUnavailable, match="the lake's catalog does not answer") as raised:
        DataTables(catalog).all_names()
    assert raised.value.code == "catalog-unavailable"


class OneLevelCatalog(InMemoryCatalog):
    """A catalog without nested namespaces, with one of the answers that servers give to a question for them."""

    answer: Exception | None = None

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        if namespace and self.answer is not None:
            raise self.answer
        return super().list_namespaces()


@pytest.mark.parametrize("answer", [None, NoSuchNamespaceError(), BadRequestError(), NotImplementedError()])
def test_a_catalog_without_nested_namespaces_lists_its_tables(answer: Exception | None) -> None:
    with closing(OneLevelCatalog("lake")) as catalog:
        catalog.answer = answer
        for namespace in ("shop", "bi"):
            catalog.create_namespace(namespace)
        assert DataTables(catalog).namespaces() == ["bi", "shop"]


def test_the_batches_of_a_table_are_in_its_history(catalog: Catalog) -> None:
    catalog.create_table("shop.orders", SCHEMA)
    tables = DataTables(catalog)
    empty = tables.table_state("shop.orders")
    assert empty is not None
    assert (empty.snapshot_id, empty.row_count, [*empty.of_batch("shop", 1000)]) == (None, 0, [])

    append(catalog, rows(1, 3), source="shop", timestamp="1000")
    append(catalog, rows(4, 5), source="shop", timestamp="2000")
    append(catalog, rows(6, 6), source="other", timestamp="3000")
    append(catalog, rows(7, 7))
    state = tables.table_state("shop.orders")
    assert state is not None
    assert state.row_count == 7
    assert [s.sequence_number for s in state.history] == [4, 3, 2, 1]
    found = {at: [s.sequence_number for s in state.of_batch("shop", at)] for at in (1000, 2000, 3000)}
    assert found == {1000: [1], 2000: [2], 3000: []}


def test_a_snapshot_that_main_left_does_not_count(catalog: Catalog) -> None:
    table = catalog.create_table("shop.orders", SCHEMA)
    append(catalog, rows(1, 1), source="shop", timestamp="1000")
    append(catalog, rows(2, 2), source="shop", timestamp="2000")
    before = table.refresh().metadata.snapshots[0].snapshot_id
    table.manage_snapshots().set_current_snapshot(before).commit()
    state = DataTables(catalog).table_state("shop.orders")
    assert state is not None
    assert [*state.of_batch("shop", 2000)] == []
    assert [s.snapshot_id for s in state.of_batch("shop", 1000)] == [before]


def test_bounds_show_which_keys_a_table_cannot_hold(catalog: Catalog) -> None:
    catalog.create_table("shop.orders", SCHEMA)
    tables = DataTables(catalog)

    def bounds() -> dict[str, ColumnBounds | None]:
        state = tables.table_state("shop.orders")
        assert state is not None
        return tables.column_bounds(state, SCHEMA.names)

    assert bounds() == dict.fromkeys(SCHEMA.names, EMPTY)
    append(catalog, rows(10, 12))
    append(catalog, rows(15, 20))
    assert bounds() == {
        "id": ColumnBounds(10, 20),
        "day": ColumnBounds(_days(2026, 1, 10), _days(2026, 1, 20)),
        "at": ColumnBounds(_days(2026, 1, 10) * 86_400_000_000, _days(2026, 1, 20) * 86_400_000_000),
        "name": EMPTY,
    }
    with catalog.load_table("shop.orders").update_schema() as update:
        update.update_column("id", LongType())
    append(catalog, rows(2, 3).set_column(0, "id", pa.array([2**40, 3])))
    assert bounds()["id"] == ColumnBounds(3, 2**40)


def test_bounds_that_were_read_last_are_known_without_reading(catalog: Catalog) -> None:
    catalog.create_table("shop.orders", SCHEMA)
    append(catalog, rows(10, 12))
    tables = DataTables(catalog)
    first = tables.table_state("shop.orders")
    assert first is not None
    assert tables.last_column_bounds(first, ["id", "name"]) is None
    read = tables.column_bounds(first, ["id", "name"])
    append(catalog, rows(15, 20))
    second = tables.table_state("shop.orders")
    assert second is not None
    assert tables.last_column_bounds(second, ["id", "name"]) == read
    assert tables.last_column_bounds(second, ["id", "day"]) is None
    catalog.drop_table("shop.orders")
    catalog.create_table("shop.orders", SCHEMA)
    other = tables.table_state("shop.orders")
    assert other is not None
    assert tables.last_column_bounds(other, ["id"]) is None, "it is another table of the name"


def test_a_column_without_statistics_has_unknown_bounds(catalog: Catalog) -> None:
    catalog.create_table("shop.orders", SCHEMA, properties={"write.metadata.metrics.column.id": "none"})
    append(catalog, rows(1, 3))
    append(catalog, rows(4, 5))
    tables = DataTables(catalog)
    state = tables.table_state("shop.orders")
    assert state is not None
    found = tables.column_bounds(state, ["id", "day"])
    assert found["id"] is None
    assert found["day"] == ColumnBounds(_days(2026, 1, 1), _days(2026, 1, 5))


def test_bounds_exclude_values_that_lie_wholly_outside() -> None:
    bounds = ColumnBounds(10, 20)
    assert bounds.excludes(21, 30)
    assert bounds.excludes(1, 9)
    assert not bounds.excludes(20, 30)
    assert not bounds.excludes(1, 10)
    assert not bounds.excludes(1, 30)
    assert EMPTY.excludes(1, 30)


def test_a_dropped_table_takes_its_files_along_and_reads_each_manifest_once(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.create_table("shop.orders", SCHEMA)
    for day in range(1, 6):
        append(catalog, rows(day, day))
    fetch, read = ManifestFile.fetch_manifest_entry, list[str]()

    def counted(manifest: ManifestFile, *args: Any, **options: Any) -> list[ManifestEntry]:
        read.append(manifest.manifest_path)
        return fetch(manifest, *args, **options)

    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", counted)
    tables = DataTables(catalog)
    assert tables.drop_table("shop.orders")
    assert tables.table_state("shop.orders") is None
    assert (len(read), len({*read})) == (5, 5)
    assert [path for path in (tmp_path / "shop").rglob("*") if path.is_file()] == []


def test_the_error_of_a_lake_that_cannot_be_opened_gives_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="cannot be opened") as error:
        open_catalog(load_settings(warehouse=str(tmp_path / "file" / "lake")))
    assert error.value.code == "lake-unreachable"
    for scheme in ("postgresql+psycopg2", "http"):
        with pytest.raises(UpstreamUnavailable) as unavailable:
            open_catalog(load_settings(warehouse=str(tmp_path), catalog_uri=f"{scheme}://me:secret@127.0.0.1:1/x"))
        assert "refused" in unavailable.value.detail
        assert "secret" not in str(error.value)


@pytest.mark.parametrize("lost", ["*.metadata.json", "snap-*.avro"])
def test_a_table_with_a_damaged_file_is_dropped_and_its_files_are_logged(
    catalog: Catalog, tmp_path: Path, caplog: pytest.LogCaptureFixture, lost: str
) -> None:
    catalog.create_table("shop.orders", SCHEMA)
    append(catalog, rows(1, 3))
    newest = max((tmp_path / "shop/orders").rglob(lost), key=lambda file: file.stat().st_mtime_ns)
    newest.write_bytes(b"")
    again = open_catalog(load_settings(warehouse=str(tmp_path)))
    with closing(again):
        tables = DataTables(again)
        assert tables.drop_table("shop.orders")
        assert "shop.orders" not in tables.all_names()
        assert "shop.orders is dropped, and files of it are still " in caplog.text
        again.create_table("shop.orders", SCHEMA)
        assert tables.table_state("shop.orders") is not None
