"""A lake that an earlier lakehold wrote goes on, and one that a later lakehold wrote is refused.

`kept/lake.tar.xz` was written before lakes had a version of their format. Files of a lake name each other by absolute paths, so
it is unpacked where it was written.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakehold.errors import SettingsError
from lakehold.lake import Lake
from lakehold.settings import Settings
from lakehold.state.catalog_opening import open_catalog
from lakehold.state.format_version import FORMAT_VERSION, KEEPER, PROPERTY
from lakehold.state.schema_files import schemas_directory
from tests import recorded_files
from tests.conftest import LakeFactory

pytestmark = pytest.mark.spark

KEPT = Path(__file__).parents[1] / "kept" / "lake.tar.xz"
HOME = Path("/tmp/lakehold-kept-lake")
"""The place that its files name."""

SYSTEM_TABLES = {1: "7711475d74a15ea3", 2: "7711475d74a15ea3", 3: "6e4c0c5b9cb16d6a", 4: "f6ce9bb4fe04502d"}
"""The digest of the files of `iceberg_schemas/` by the format's version."""


@pytest.fixture
def kept_lake(make_lake: LakeFactory) -> Iterator[Lake]:
    """Unpack the lake, one test on this machine at a time, and open it."""
    with HOME.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(HOME, ignore_errors=True)
        with tarfile.open(KEPT) as archive:
            archive.extractall(HOME.parent, filter="data")
        lake = make_lake(HOME / "lake", catalog_name="kept_lake")
        yield lake
        lake.close()
        shutil.rmtree(HOME)


def test_a_lake_of_an_earlier_format_is_read_ingested_held_and_published(kept_lake: Lake) -> None:
    lake = kept_lake
    assert lake.catalog.load_table(KEEPER).properties[PROPERTY] == str(FORMAT_VERSION)
    assert lake.sql("SELECT * FROM shop.orders").rows == [(1, "a"), (3, "C")]
    held_at = next(row[2] for row in lake.sql("SHOW HOLDS").rows if row[1] == "start")
    assert lake.sql(f"SELECT * FROM shop.orders AS OF {held_at}").rows == [(1, "a"), (2, "b"), (3, "c")]

    key, value = ({"id": 4}, {"id": 4, "v": "d"})
    line = recorded_files.line("orders", 0, 6, json.dumps(value).encode(), json.dumps(key).encode(), 1_800_000_000_000)
    recorded_files.append(HOME / "feed" / "1.jsonl", [line])
    (report,) = lake.ingest("feed")
    assert not report.stopped
    lake.publish("changes")
    lake.publish("shop.letters")
    assert lake.sql("SELECT v, mz_diff FROM bi.changes ORDER BY v").rows == [("C", 1), ("a", 1), ("d", 1)]
    assert lake.sql("SELECT * FROM shop.letters ORDER BY v").rows == [("C", 1), ("a", 1), ("d", 1)]
    assert lake.sql("SELECT topic, `offset`, reason FROM mz_catalog.mz_source_errors").rows == [
        ("orders", 5, "undecodable-value")
    ]


def test_a_lake_of_a_later_format_is_refused_unchanged(tmp_path: Path) -> None:
    settings = Settings(warehouse=str(tmp_path / "lake"))
    catalog = open_catalog(settings)
    with catalog.load_table(KEEPER).transaction() as transaction:
        transaction.set_properties({PROPERTY: str(FORMAT_VERSION + 1)})
    catalog.drop_table("mz_catalog.mz_roles")
    with pytest.raises(SettingsError) as refused:
        open_catalog(settings)
    assert refused.value.code == "lake-newer"
    assert str(tmp_path / "lake") in refused.value.message
    assert f"format {FORMAT_VERSION + 1}" in refused.value.detail
    assert "mz_roles" not in [name for _, name in catalog.list_tables("mz_catalog")]
    catalog.close()


def test_a_change_of_the_system_tables_is_a_new_format() -> None:
    # An earlier lakehold would drop new columns: a lake that has them must have a version that it refuses.
    digest = hashlib.sha256()
    for path in sorted(schemas_directory().glob("mz_catalog.*.json")):
        digest.update(json.dumps(json.loads(path.read_text())["schema"], sort_keys=True).encode())
    assert {FORMAT_VERSION: digest.hexdigest()[:16]} == {FORMAT_VERSION: SYSTEM_TABLES[FORMAT_VERSION]}
