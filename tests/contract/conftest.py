"""What contract tests share: the catalogs of new lakes of every kind, which need no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from sqlalchemy.exc import OperationalError

from lakehold.settings import Settings, load_settings
from lakehold.state.opening import open_catalog
from tests.catalog_servers import NewLake, new_lake, postgres_server, rest_server

__all__ = ["new_lake", "postgres_server", "rest_server"]

_POSTGRESQL = pytest.param("postgresql", marks=pytest.mark.stack)
_REST = pytest.param("rest", marks=pytest.mark.stack)

STORES = ["memory", "sqlite", _REST]
"""Where the state of a lake is kept, as parameters of a store: to it the databases are one."""

CatalogOf = Callable[[str], Catalog]
"""Opens the catalog of a new lake of a kind."""


@pytest.fixture
def catalog_of(new_lake: NewLake) -> Iterator[CatalogOf]:
    """For the stores of `STORES`."""
    with ExitStack() as opened:
        yield lambda kind: opened.enter_context(closing(open_catalog(load_settings(**new_lake(kind)))))


@pytest.fixture(params=["sqlite", _POSTGRESQL, _REST])
def settings(request: pytest.FixtureRequest, new_lake: NewLake) -> Settings:
    """Of a new lake."""
    return load_settings(**new_lake(request.param))


@pytest.fixture
def catalog(settings: Settings) -> Iterator[Catalog]:
    """Of a new lake."""
    with closing(open_catalog(settings)) as catalog:
        yield catalog


def connection_lost(catalog: Catalog) -> Exception:
    """What a client sees whose server ends the connection before it answers."""
    reason = "server closed the connection unexpectedly"
    return ConnectionError(reason) if isinstance(catalog, RestCatalog) else OperationalError("…", {}, Exception(reason))
