"""An outage of a lake's catalog: a database that answers each question with an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import text

from lakehold.lake import Lake


@contextmanager
def catalog_outage(lake: Lake) -> Iterator[None]:
    """Let the SQLite catalog of `lake` fail until the context ends."""
    _rename(lake, "iceberg_tables", "away")
    try:
        yield
    finally:
        _rename(lake, "away", "iceberg_tables")


def _rename(lake: Lake, name: str, new: str) -> None:
    assert isinstance(lake.catalog, SqlCatalog)
    with lake.catalog.engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {name} RENAME TO {new}"))
