"""Fixtures that contract tests share: the catalogs of new lakes of every kind, which need no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from sqlalchemy.exc import OperationalError

from lakehold.settings import Settings, load_settings
from lakehold.state.catalog_opening import open_catalog
from lakehold.state.iceberg_state import IcebergState
from lakehold.state.store import MemoryState, State
from tests.catalog_servers import NewLake, new_lake, postgres_server, rest_server, s3_server

__all__ = ["new_lake", "postgres_server", "rest_server", "s3_server"]

_POSTGRESQL = pytest.param("postgresql", marks=pytest.mark.stack)
_REST = pytest.param("rest", marks=pytest.mark.stack)
_S3 = pytest.param("s3", marks=pytest.mark.stack)

STORES = ["memory", "sqlite", _REST, _S3]
"""The places for the state of a lake; stores and logs do not distinguish databases."""

START_MS = 1_000_000

CatalogOf = Callable[[str], Catalog]
"""A function that opens the catalog of a new lake of a kind."""


@pytest.fixture
def catalog_of(new_lake: NewLake) -> Iterator[CatalogOf]:
    """Return a function that opens a catalog of each kind in `STORES`."""
    with ExitStack() as opened:
        yield lambda kind: opened.enter_context(closing(open_catalog(load_settings(**new_lake(kind)))))


@pytest.fixture(params=STORES)
def state(request: pytest.FixtureRequest, catalog_of: CatalogOf) -> State:
    """Return the state of a new lake."""
    return MemoryState() if request.param == "memory" else IcebergState(catalog_of(request.param))


class Clock:
    """A clock of epoch milliseconds that a test moves by hand."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["sqlite", _POSTGRESQL, _REST, _S3])
def settings(request: pytest.FixtureRequest, new_lake: NewLake) -> Settings:
    """Return the settings of a new lake."""
    return load_settings(**new_lake(request.param))


@pytest.fixture
def catalog(settings: Settings) -> Iterator[Catalog]:
    """Return the catalog of a new lake."""
    with closing(open_catalog(settings)) as catalog:
        yield catalog


def connection_lost(catalog: Catalog) -> Exception:
    """Return the error of a client whose server ends the connection before it answers."""
    reason = "server closed the connection unexpectedly"
    return ConnectionError(reason) if isinstance(catalog, RestCatalog) else OperationalError("…", {}, Exception(reason))
