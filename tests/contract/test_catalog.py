"""Definitions in memory and in a lake, and promises of a lake's tables when many processes change them at once."""

from __future__ import annotations

import json
import multiprocessing
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest
from pyarrow.fs import FileSelector
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from lakehold.definitions import (
    Connection,
    ConnectionType,
    DeclaredColumn,
    Envelope,
    Format,
    FormatType,
    Included,
    Metadata,
    Secret,
    Source,
    Table,
)
from lakehold.errors import DefinitionError, UpstreamUnavailable
from lakehold.iceberg import expiry
from lakehold.iceberg.data_tables import DataTables
from lakehold.model.lake_definitions import Definitions, Entry
from lakehold.publish.output_columns import TIME_COLUMN, create_table
from lakehold.settings import Settings
from lakehold.state import catalog_opening, rows
from lakehold.state.catalog_opening import open_catalog
from lakehold.state.iceberg_state import MANIFESTS_MOST, IcebergState
from lakehold.state.objects import OBJECTS, DefinitionStore, ObjectRow
from lakehold.state.rows import Rows
from lakehold.state.schema_files import system_tables
from lakehold.state.store import State
from tests.contract.conftest import connection_lost

KAFKA = Entry("u1", Connection("kafka", ConnectionType.KAFKA, {"broker": "127.0.0.1:9092"}), "CREATE CONNECTION …", 1)
REGISTRY = Entry(
    "u2",
    Connection(
        "registry", ConnectionType.SCHEMA_REGISTRY, {"url": "http://127.0.0.1", "password": Secret("PW"), "n": 1}
    ),
    "CREATE CONNECTION …",
    2,
)
SHOP = Entry(
    "u3",
    Source("shop", Format(FormatType.AVRO, "registry"), "kafka", None, ("t",), "tx", {"strict": True, "limit": 7}),
    "CREATE SOURCE …",
    3,
)
ORDERS = Entry(
    "u4",
    Table(
        "shop",
        "orders",
        "shop",
        "t",
        Envelope.DEBEZIUM_UPSERT,
        (DeclaredColumn("id", "bigint"),),
        ("id",),
        include=(Included(Metadata.KEY, "k"), Included(Metadata.OFFSET)),
    ),
    "CREATE TABLE …",
    4,
)


@dataclass(frozen=True)
class OwnedRow(ObjectRow):
    owner: str | None = None


@pytest.fixture
def store(state: State) -> DefinitionStore:
    return DefinitionStore(state)


def test_definitions_are_read_as_they_were_declared(store: DefinitionStore) -> None:
    declared = store.change(
        lambda none: none.with_entry(KAFKA).with_entry(REGISTRY).with_entry(SHOP).with_entry(ORDERS)
    )
    assert declared == store.definitions()
    assert declared.connections == {"kafka": KAFKA, "registry": REGISTRY}
    assert declared.sources == {"shop": SHOP}
    assert declared.tables == {"shop.orders": ORDERS}


def test_definitions_are_parsed_once_until_they_change(state: State) -> None:
    store, other = DefinitionStore(state), DefinitionStore(state)
    other.change(lambda none: none.with_entry(KAFKA))
    seen = store.definitions()
    assert store.definitions() is seen
    other.change(lambda before: before.with_entry(SHOP))
    assert store.definitions().sources == {"shop": SHOP}


def test_a_table_stored_before_include_existed_is_read(state: State) -> None:
    store = DefinitionStore(state)
    store.change(lambda none: none.with_entry(ORDERS))

    def without_include(rows: tuple[ObjectRow, ...]) -> list[ObjectRow]:
        content = json.loads(rows[0].definition)
        del content["include"]
        return [replace(rows[0], definition=json.dumps(content))]

    state.store(OBJECTS).change(without_include)
    assert store.definitions().tables["shop.orders"].definition == replace(ORDERS.definition, include=())


def test_a_refused_change_leaves_nothing(store: DefinitionStore) -> None:
    store.change(lambda d: d.with_entry(KAFKA))

    def refuse(definitions: Definitions) -> Definitions:
        definitions.with_entry(SHOP)
        raise DefinitionError('source "shop" is still needed')

    with pytest.raises(DefinitionError):
        store.change(refuse)
    assert store.definitions() == Definitions(connections={"kafka": KAFKA})
    assert store.change(lambda d: d.without(KAFKA.definition)) == Definitions()


def make_and_change(settings: Settings, process: int, changes: int) -> None:
    """Create and change a lake, as one of several processes."""
    catalog = open_catalog(settings)
    table = IcebergState(catalog).store(OBJECTS)
    for change in range(changes):
        added = row(100 * process + change)
        table.change(lambda known, added=added: [*known, added])  # type: ignore[misc] # mypy: no defaults in a lambda
    catalog.close()


def test_processes_that_create_and_change_a_lake_at_once_lose_nothing(settings: Settings) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.contract.conftest"])
    processes = [context.Process(target=make_and_change, args=(settings, p, 6)) for p in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 8
    catalog = open_catalog(settings)
    written = {r.id for r in IcebergState(catalog).store(OBJECTS).values()}
    catalog.close()
    assert written == {f"u{100 * process + change}" for process in range(8) for change in range(6)}


def row(number: int) -> ObjectRow:
    return ObjectRow(f"u{number}", "table", None, "t", "{}", "CREATE TABLE …", number)


def test_a_change_whose_base_moved_is_applied_again_to_the_newest_rows(settings: Settings, catalog: Catalog) -> None:
    other = IcebergState(open_catalog(settings)).store(OBJECTS)
    seen: list[int] = []

    def interrupted(known: tuple[ObjectRow, ...]) -> list[ObjectRow]:
        seen.append(len(known))
        if len(seen) == 1:
            other.change(lambda theirs: [*theirs, row(1)])
        return [*known, row(2)]

    table = IcebergState(catalog).store(OBJECTS)
    assert table.change(interrupted) == (row(1), row(2))
    assert seen == [0, 1]
    assert table.values() == other.values() == (row(1), row(2))


@pytest.mark.parametrize("committed", [True, False], ids=["it was committed", "it was not committed"])
def test_a_commit_with_an_unknown_outcome_counts_once(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    table, commit_table = IcebergState(catalog).store(OBJECTS), catalog.commit_table
    failures = iter([True])

    def failing_once(*arguments: Any) -> Any:
        failing = next(failures, False)
        response = commit_table(*arguments) if committed or not failing else None
        if failing:
            raise connection_lost(catalog)
        return response

    monkeypatch.setattr(catalog, "commit_table", failing_once)
    assert table.change(lambda known: [*known, row(1)]) == (row(1),)
    assert table.values() == (row(1),)
    assert table.change(lambda known: [*known, row(2)]) == (row(1), row(2))


def test_a_catalog_that_remains_unavailable_is_a_readable_error(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> Any:
        raise connection_lost(catalog)

    table = IcebergState(catalog).store(OBJECTS)
    for method in ("commit_table", "load_table"):
        with monkeypatch.context() as patch:
            patch.setattr(catalog, method, failing)
            with pytest.raises(UpstreamUnavailable, match="does not answer") as error:
                table.change(lambda known: [*known, row(1)])
        assert "server closed the connection unexpectedly" in error.value.detail
    with monkeypatch.context() as patch:
        patch.setattr(catalog, "load_table", failing)
        for read in (table.values, lambda: DataTables(catalog).table_state(OBJECTS.table)):
            with pytest.raises(UpstreamUnavailable, match="does not answer"):
                read()
    assert table.values() == ()


def test_the_first_output_tables_of_a_namespace_are_created_at_once(catalog: Catalog) -> None:
    columns, at_once = pa.schema([(TIME_COLUMN, pa.int64())]), Barrier(4)

    def create(name: str) -> None:
        at_once.wait()
        create_table(catalog, name, columns, {})

    with ThreadPoolExecutor(at_once.parties) as threads:
        for number in range(10):
            names = [f"shop{number}.t{table}" for table in range(at_once.parties)]
            deque(threads.map(create, names), maxlen=0)
            assert len(catalog.list_tables(f"shop{number}")) == len(names)


def test_tables_of_nested_namespaces_are_listed(catalog: Catalog) -> None:
    listed = DataTables(catalog).namespaces()
    for namespace in ("shop", "shop.orders", "shop.orders.old", "shop_x", "shop_x.orders"):
        catalog.create_namespace(namespace)
    columns, names = pa.schema([("id", pa.int64())]), ["shop.orders", "shop.orders.archive", "shop.orders.old.a"]
    for name in names:
        catalog.create_table(name, columns)
    tables = DataTables(catalog)
    assert tables.namespaces() == sorted([*listed, "shop", "shop.orders", "shop.orders.old", "shop_x", "shop_x.orders"])
    assert [name for name in tables.all_names() if not name.startswith("mz_catalog.")] == names


def test_a_change_to_equal_rows_commits_nothing(catalog: Catalog) -> None:
    table = IcebergState(catalog).store(OBJECTS)
    table.change(lambda _: [row(1)])
    before = catalog.load_table(OBJECTS.table).metadata_location
    table.change(list)
    assert catalog.load_table(OBJECTS.table).metadata_location == before
    assert table.change(lambda _: []) == ()
    assert IcebergState(catalog).store(OBJECTS).values() == ()


def test_many_changes_leave_few_files(settings: Settings, catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    table = IcebergState(catalog).store(OBJECTS)
    for number in range(2 * expiry.SNAPSHOTS_MOST):
        table.change(lambda _, number=number: [row(number)])  # type: ignore[misc] # mypy takes no default in a lambda
    assert IcebergState(catalog).store(OBJECTS).values() == (row(2 * expiry.SNAPSHOTS_MOST - 1),)

    metadata = catalog.load_table(OBJECTS.table).metadata
    assert expiry.SNAPSHOTS_KEPT <= len(metadata.snapshots) <= expiry.SNAPSHOTS_MOST
    io, location = PyArrowFileIO(catalog.properties), f"{settings.warehouse}/mz_catalog/mz_objects"
    scheme, bucket, path = io.parse_location(location)
    names = [found.path for found in io.fs_by_scheme(scheme, bucket).get_file_info(FileSelector(path, recursive=True))]
    per_snapshot = {suffix: sum(name.endswith(suffix) for name in names) for suffix in (".parquet", ".avro")}
    assert per_snapshot[".parquet"] <= len(metadata.snapshots) + 1
    assert per_snapshot[".avro"] <= 2 * len(metadata.snapshots)
    for snapshot in metadata.snapshots:
        assert catalog.load_table(OBJECTS.table).scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows == 1
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_history_keeps_every_row_in_order_in_few_files(catalog: Catalog) -> None:
    log = IcebergState(catalog).log(OBJECTS)
    count = MANIFESTS_MOST + expiry.SNAPSHOTS_MOST + 5
    for number in range(count):
        log.append(row(number))
    assert log.values() == tuple(row(number) for number in range(count))
    table = catalog.load_table(OBJECTS.table)
    assert table.scan().to_arrow().num_rows == count
    assert len(table.inspect.files()) < count - MANIFESTS_MOST + 2
    assert len(table.metadata.snapshots) <= expiry.SNAPSHOTS_MOST


def test_a_new_column_of_a_system_table_appears_when_the_lake_is_opened(
    settings: Settings, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    IcebergState(catalog).store(OBJECTS).change(lambda _: [row(1)])

    def with_owner() -> list[Any]:
        field = NestedField(100, "owner", StringType(), doc="Who created it.")
        return [
            replace(table, schema=Schema(*table.schema.fields, field)) if table.table == OBJECTS.table else table
            for table in system_tables()
        ]

    monkeypatch.setattr(catalog_opening, "system_tables", with_owner)
    monkeypatch.setattr(rows, "system_tables", with_owner)
    owned = Rows(OBJECTS.table, OwnedRow)
    later = IcebergState(open_catalog(settings)).store(owned)
    later.change(lambda known: [*known, OwnedRow("u2", "table", None, "t", "{}", "CREATE TABLE …", 2, "me")])
    assert [of.owner for of in IcebergState(catalog).store(owned).values()] == [None, "me"]
    open_catalog(settings).close()
    assert catalog.load_table(OBJECTS.table).schema().find_field("owner").doc == "Who created it."


def test_the_system_tables_exist_and_are_empty_from_the_start(catalog: Catalog) -> None:
    names = {f"mz_catalog.{name}" for _, name in catalog.list_tables("mz_catalog")}
    assert names == {table.table for table in system_tables()}
    assert {"mz_catalog.mz_batches", "mz_catalog.mz_source_errors"} <= names
    for name in names:
        table = catalog.load_table(name)
        assert table.format_version == 2
        assert table.scan().to_arrow().num_rows == 0
        assert all(field.doc for field in table.schema().fields)
