"""What contract tests share: the catalog of a new lake, which needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from lakehold.catalog.opening import open_catalog
from lakehold.settings import Settings, load_settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(warehouse=str(tmp_path / "lake"))


@pytest.fixture
def catalog(settings: Settings) -> Iterator[Catalog]:
    catalog = open_catalog(settings)
    yield catalog
    catalog.close()
