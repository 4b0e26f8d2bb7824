"""The catalog caches the metadata of as many tables as their size allows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError

from lakehold.iceberg import sql_catalog
from lakehold.lake import Lake, connect

SCHEMA = pa.schema([("k", pa.int64())])
TABLES = 120


def loaded(lake: Lake) -> list[str]:
    """Return the tables of the namespace `shop` that can be loaded, and load them."""
    found = []
    for namespace, name in sorted(lake.catalog.list_tables("shop")):
        try:
            found.append(lake.catalog.load_table((namespace, name)).name()[1])
        except (FileNotFoundError, NoSuchTableError):
            continue
    return found


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Return a lake with the tables `shop.t000`, `shop.t001`, ..., none of which is cached."""
    with connect(str(tmp_path)) as writer:
        writer.catalog.create_namespace("shop")
        for number in range(TABLES):
            writer.catalog.create_table(f"shop.t{number:03}", SCHEMA)
    return connect(str(tmp_path))


def test_the_metadata_of_many_small_tables_is_read_once(lake: Lake, tmp_path: Path) -> None:
    names = loaded(lake)
    shutil.rmtree(tmp_path / "shop")
    assert len(names) == TABLES
    assert loaded(lake) == names


@pytest.mark.usefixtures("lake")
def test_metadata_beyond_the_size_of_the_cache_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_catalog, "REMEMBERED_BYTES", 1)
    with connect(str(tmp_path)) as small:
        names = loaded(small)
        shutil.rmtree(tmp_path / "shop")
        assert loaded(small) == names[-1:], "even metadata larger than the cache is kept until another is read"
