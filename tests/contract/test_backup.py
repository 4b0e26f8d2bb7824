"""Backups of a lake: the copy of all of it, and a catalog without the files of its time; see `docs/operate/backup.md`."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from lakehold.errors import LakeholdError, SettingsError
from lakehold.settings import Settings, load_settings
from lakehold.state import catalog_opening, rows
from lakehold.state.catalog_opening import open_catalog
from lakehold.state.iceberg_state import IcebergState
from lakehold.state.objects import OBJECTS, ObjectRow
from lakehold.state.rows import Rows
from lakehold.state.schema_files import TableSchema, system_tables
from tests.runnable_pages import checked

COPY, RESTORE = checked("docs/operate/backup.md", __file__)

COMMITS = 40
"""More than the metadata files and snapshots that a system table keeps."""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Open a lake in the working directory, as the page does."""
    monkeypatch.chdir(tmp_path)
    return load_settings()


def row(number: int) -> ObjectRow:
    return ObjectRow(f"u{number}", "table", None, f"t{number}", "{}", "CREATE TABLE …", number)


def add(settings: Settings, *numbers: int) -> None:
    with closing(open_catalog(settings)) as catalog:
        for added in map(row, numbers):
            IcebergState(catalog).store(OBJECTS).change(partial(_with_row, added))


def _with_row(added: ObjectRow, known: tuple[ObjectRow, ...]) -> list[ObjectRow]:
    return [*known, added]


def names(settings: Settings) -> list[str]:
    with closing(open_catalog(settings)) as catalog:
        return [each.name for each in IcebergState(catalog).store(OBJECTS).values()]


def run(program: str) -> None:
    exec(compile(program, "docs/operate/backup.md", "exec"), {})


def test_a_restored_copy_is_the_lake_of_that_time(settings: Settings) -> None:
    add(settings, 1)
    run(COPY)
    add(settings, *range(2, COMMITS))
    assert len(names(settings)) == COMMITS - 1
    run(RESTORE)
    assert names(settings) == ["t1"]
    add(settings, 2)
    assert names(settings) == ["t1", "t2"]


def test_an_old_catalog_does_not_find_its_files(settings: Settings) -> None:
    add(settings, 1)
    catalog = Path("lake/catalog.db")
    old = catalog.read_bytes()
    add(settings, *range(2, COMMITS))
    catalog.write_bytes(old)
    with pytest.raises(SettingsError) as refused:
        open_catalog(settings)
    assert refused.value.code == "lake-unreachable"


def test_a_new_catalog_does_not_find_files_that_were_restored(settings: Settings) -> None:
    add(settings, 1)
    run(COPY)
    add(settings, 2)
    new = Path("lake/catalog.db").read_bytes()
    run(RESTORE)
    Path("lake/catalog.db").write_bytes(new)
    with pytest.raises(SettingsError) as refused:
        open_catalog(settings)
    assert refused.value.code == "lake-unreachable"


def test_a_lost_catalog_is_an_empty_lake_over_the_old_files(settings: Settings) -> None:
    add(settings, 1)
    for file in Path("lake").glob("catalog.db*"):
        file.unlink()
    assert names(settings) == []
    with closing(open_catalog(settings)) as catalog:
        assert catalog.load_table(OBJECTS.table).location().endswith("/lake/mz_catalog/mz_objects")


@pytest.mark.parametrize(
    ("lost", "code"),
    [("*.metadata.json", "lake-unreachable"), ("snap-*.avro", "table-unreadable"), ("*.parquet", "table-unreadable")],
)
def test_a_file_that_a_power_cut_left_empty_is_named_and_a_backup_brings_it_back(
    settings: Settings, lost: str, code: str
) -> None:
    add(settings, 1)
    run(COPY)
    add(settings, 2)
    newest = max(Path("lake/mz_catalog/mz_objects").rglob(lost), key=lambda file: file.stat().st_mtime_ns)
    newest.write_bytes(b"")
    with pytest.raises(LakeholdError, match=r'mz_catalog\.mz_objects" (is damaged|cannot be read)') as refused:
        names(settings)
    assert refused.value.code == code
    run(RESTORE)
    assert names(settings) == ["t1"]


@dataclass(frozen=True)
class LaterRow(ObjectRow):
    """A row of `mz_catalog.mz_objects` with a column of a later version."""

    owner: str | None = None


def test_an_earlier_version_loses_what_a_later_one_stored(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    add(settings, 1)

    def of_later() -> tuple[TableSchema, ...]:
        field = NestedField(100, "owner", StringType(), required=False)
        return tuple(_with(table, field) if table.table == OBJECTS.table else table for table in system_tables())

    later: Rows[Any] = Rows(OBJECTS.table, LaterRow)
    with monkeypatch.context() as patched:
        patched.setattr(catalog_opening, "system_tables", of_later)
        patched.setattr(rows, "system_tables", of_later)
        with closing(open_catalog(settings)) as catalog:
            store = IcebergState(catalog).store(later)
            store.change(lambda _: [LaterRow("u1", "table", None, "t1", "{}", "CREATE TABLE …", 1, "me")])
            assert [each.owner for each in store.values()] == ["me"]
    add(settings, 2)
    with closing(open_catalog(settings)) as catalog:
        assert [each.owner for each in IcebergState(catalog).store(later).values()] == [None, None]


def _with(table: TableSchema, field: NestedField) -> TableSchema:
    return TableSchema(
        table.table, table.key, Schema(*table.schema.fields, field), table.partition_spec, table.properties
    )
