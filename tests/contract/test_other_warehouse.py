"""A catalog of any kind refuses settings with another warehouse, opens its own lake again, and creates none unasked."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from lakehold.errors import SettingsError
from lakehold.settings import Settings
from lakehold.state.catalog_opening import open_catalog


def test_a_lake_that_must_exist_is_not_created(settings: Settings) -> None:
    for _ in range(2):
        with pytest.raises(SettingsError) as missing:
            open_catalog(settings, must_exist=True)
        assert missing.value.code == "lake-missing"
    open_catalog(settings).close()
    with closing(open_catalog(settings, must_exist=True)) as catalog:
        assert catalog.table_exists("mz_catalog.mz_objects")


def test_a_catalog_opens_with_the_warehouse_of_its_lake_only(settings: Settings, tmp_path: Path) -> None:
    for _ in range(2):
        with closing(open_catalog(settings)) as catalog:
            assert catalog.table_exists("mz_catalog.mz_objects")
    scratch = settings.model_copy(update={"warehouse": f"file://{tmp_path}/scratch"})
    with pytest.raises(SettingsError) as refused:
        open_catalog(scratch)
    assert refused.value.code == "warehouse-differs"
