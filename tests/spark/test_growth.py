"""Requests of work on one table do not grow with the tables beside it, neither in the lake nor in its source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.counted_lake import CountedPlace, Requests, counted_place
from tests.growing_lake import GrowingLake

pytestmark = [pytest.mark.spark, pytest.mark.stack]

ON_ONE_TABLE = ("batch", "SUBSCRIBE of a change", "SELECT", "maintain of a table")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CountedPlace]:
    with counted_place(tmp_path_factory.mktemp("servers")) as place:
        yield place


def requests(place: CountedPlace, of: GrowingLake) -> dict[str, tuple[dict[str, int], int]]:
    """Count the requests to the store and to the catalog of all work, each in a lake that was just opened."""
    found = {}
    for name in ON_ONE_TABLE:
        work = of.works[name]
        of.record()
        if work != of.ingest:
            with of.opened() as writer:
                of.ingest(writer)
        with of.opened() as lake, place.counted() as counted:
            work(lake)
        found[name] = _without_expiry(counted), counted.catalog
    return found


def _without_expiry(counted: Requests) -> dict[str, int]:
    """Return the requests to the store, without those with which every fifteenth commit to `mz_catalog` expires snapshots."""
    return {kind: count for kind, count in counted.store.items() if kind not in {"GET state", "DELETE state"}}


@pytest.mark.parametrize(
    "grow", [GrowingLake.add_tables, GrowingLake.add_neighbours], ids=["of the lake", "of its source"]
)
def test_work_on_one_table_costs_the_same_beside_few_and_many_tables(
    place: CountedPlace, spark: SparkSession, tmp_path: Path, grow: Callable[[GrowingLake, int], None]
) -> None:
    found = []
    for beside in (2, 10):
        of = GrowingLake(spark, place.new_lake(tmp_path), tmp_path / str(beside))
        grow(of, beside)
        found.append(requests(place, of))
    few, many = found
    assert many == few


def test_a_page_of_an_open_lake_takes_no_requests_for_what_did_not_change(
    place: CountedPlace, spark: SparkSession, tmp_path: Path
) -> None:
    of = GrowingLake(spark, place.new_lake(tmp_path), tmp_path / "source")
    for _ in range(3):
        of.record()
        with of.opened() as writer:
            of.ingest(writer)
    with of.opened() as lake:
        of.works["maintain"](lake)  # it deletes what nothing needs
        for name in ("status page", "maintain"):
            of.works[name](lake)
            with place.counted() as counted:
                of.works[name](lake)
            # Maintenance lists the pages of checks, which other processes may have written.
            assert set(counted.store) <= ({"GET several"} if name == "maintain" else set()), name
