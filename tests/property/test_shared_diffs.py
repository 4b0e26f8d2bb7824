"""Diffs read before for other subscriptions equal a new read, for any requests in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehold.lake import Lake, connect

NAME = "shop.customers"
SHAPES = (
    "",
    "ENVELOPE UPSERT (KEY (id))",
    "ENVELOPE DEBEZIUM (KEY (region))",
    "WITHIN TIMESTAMP ORDER BY mz_diff DESC",
)
VERSIONS = 9
SCHEMA = pa.schema([("id", pa.int64()), ("region", pa.string())])


@dataclass(frozen=True)
class Request:
    """A request for the changes between two versions, optionally with the rows of the first."""

    after: int
    until: int
    shape: str
    snapshot: bool


REQUESTS = st.builds(
    lambda ends, shape, snapshot: Request(min(ends), max(ends), shape, snapshot),
    st.tuples(st.integers(0, VERSIONS - 1), st.integers(0, VERSIONS - 1)),
    st.sampled_from(SHAPES),
    st.booleans(),
)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake with a table that gained rows, lost some, and alternated between the same snapshots."""
    directory = tmp_path_factory.mktemp("shared") / "lake"
    with connect(str(directory)) as lake:
        lake.catalog.create_namespace("shop")
        table = lake.catalog.create_table(NAME, SCHEMA)
        table.append(_rows(range(6)))
        table.append(_rows([6, 6, 7]))
        table.delete("id < 3")
        table.append(_rows([1, 2, 3]))
        newest, before = table.history()[-1].snapshot_id, table.history()[-2].snapshot_id
        for snapshot_id in (before, newest, before, newest):
            lake.catalog.load_table(NAME).manage_snapshots().set_current_snapshot(snapshot_id).commit()
        lake.catalog.load_table(NAME).append(_rows([8, 9, 10]))
        assert len(lake.catalog.load_table(NAME).history()) == VERSIONS
    return directory


def _rows(ids: Sequence[int]) -> pa.Table:
    """Return customers of alternating regions, so that the orders of regions and of ids differ."""
    return pa.table([pa.array(ids, pa.int64()), ["north" if id_ % 2 else "south" for id_ in ids]], schema=SCHEMA)


@settings(max_examples=25, deadline=None)
@given(requests=st.lists(REQUESTS, min_size=2, max_size=8), max_bytes=st.sampled_from([0, 3_000, 6_000, 1 << 20]))
def test_shared_diffs_equal_diffs_that_are_read_alone(warehouse: Path, requests: list[Request], max_bytes: int) -> None:
    with connect(str(warehouse), foreign_lag_ms=0, shared_diffs_max_bytes=max_bytes) as lake:
        for request in requests:
            assert _answer(lake, request) == _read_alone(warehouse, request)


@cache
def _read_alone(warehouse: Path, request: Request) -> list[tuple[Any, ...]]:
    with connect(str(warehouse), foreign_lag_ms=0, shared_diffs_max_bytes=0) as lake:
        return _answer(lake, request)


def _answer(lake: Lake, request: Request) -> list[tuple[Any, ...]]:
    times = [version.mz_timestamp for version in lake.timelines.of([NAME])[NAME].versions]
    assert len(times) == VERSIONS
    flag = str(request.snapshot).lower()
    return lake.sql(
        f"SUBSCRIBE {NAME} {request.shape} WITH (SNAPSHOT = {flag}) AS OF {times[request.after]} UP TO {times[request.until] + 1}"
    ).rows
