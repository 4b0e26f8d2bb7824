"""lakehold reads the metadata of many small steps concurrently, because remote storage answers slowly."""

from __future__ import annotations

from threading import Event
from typing import ClassVar

import pytest
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from tests.conftest import LakeFactory

pytestmark = pytest.mark.spark

NAME = "shop.t"
ANSWERS_WITHIN_S = 30


class Together(PyArrowFileIO):
    """A file system that returns the first manifest list only after the second one was requested."""

    locations: ClassVar[set[str]] = set()
    second: ClassVar[Event] = Event()

    def new_input(self, location: str) -> PyArrowFile:
        if "/metadata/snap-" in location:
            self.locations.add(location)
            if len(self.locations) > 1:
                self.second.set()
            assert self.second.wait(ANSWERS_WITHIN_S), "manifest lists are requested one at a time"
        return super().new_input(location)


def test_manifest_lists_of_several_steps_are_requested_concurrently(make_lake: LakeFactory) -> None:
    lake = make_lake()
    lake.sql(f"CREATE NAMESPACE shop; CREATE TABLE {NAME} (id BIGINT) USING iceberg")
    for number in range(4):
        lake.sql(f"INSERT INTO {NAME} VALUES ({number})")
    snapshots = lake.catalog.load_table(NAME).metadata.snapshots
    reader = make_lake(
        lake.settings.warehouse,
        catalog_name=lake.settings.catalog_name,
        catalog_uri=lake.settings.catalog_uri,
        catalog_properties={"py-io-impl": f"{__name__}.{Together.__name__}"},
    )
    changes = reader.sql(f"SUBSCRIBE {NAME} WITH (SNAPSHOT = false) AS OF {snapshots[0].timestamp_ms}").rows
    assert [row[-1] for row in changes] == [1, 2, 3]
