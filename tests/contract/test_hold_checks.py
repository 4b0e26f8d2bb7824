"""What every store of the checks of holds does: keeps them whole and in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lakehold.settings import load_settings
from lakehold.state.hold_checks import HoldCheck, HoldCheckStore, PyIcebergHoldChecks
from lakehold.state.memory import MemoryHoldChecks
from lakehold.state.opening import open_catalog

CHECK = HoldCheck(
    hold_id="h1",
    table="shop.orders",
    snapshot_id=2**62,
    at_ms=1_700_000_000_000,
    suite="shop.orders.json",
    success=False,
    statistics={"evaluated": 2, "successful": 1, "failed": 1},
    failures=('expect_x (größe): expected "a", found 1 row',),
    html_path="/lake/_checks/shop.orders/1.html",
    checked_at_ms=1_700_000_000_001,
)


def in_lake(directory: Path) -> HoldCheckStore:
    return PyIcebergHoldChecks(open_catalog(load_settings(warehouse=str(directory))))


@pytest.mark.parametrize("make", [in_lake, lambda _: MemoryHoldChecks()], ids=["lake", "memory"])
def test_checks_are_kept_whole_and_in_order(make: Callable[[Path], HoldCheckStore], tmp_path: Path) -> None:
    store = make(tmp_path)
    assert store.checks() == ()
    empty = replace(CHECK, snapshot_id=None, success=True, failures=(), hold_id="h0")
    for check in (CHECK, empty, CHECK):
        store.record(check)
    assert store.checks() == (CHECK, empty, CHECK)


@pytest.mark.parametrize("make", [in_lake, lambda _: MemoryHoldChecks()], ids=["lake", "memory"])
def test_old_checks_go_except_those_of_holds_that_are_there(
    make: Callable[[Path], HoldCheckStore], tmp_path: Path
) -> None:
    store = make(tmp_path)
    checks = [replace(CHECK, hold_id=f"h{number % 3}", checked_at_ms=number) for number in range(9)]
    for check in checks:
        store.record(check)
    left = tuple(check for check in checks if check.checked_at_ms >= 7 or check.hold_id == "h1")
    assert store.forget(7, {"h1"}, dry_run=True) == 5
    assert store.checks() == tuple(checks)
    assert store.forget(7, {"h1"}) == 5
    assert store.checks() == left
    assert store.forget(7, {"h1"}) == 0
    store.record(CHECK)
    assert store.checks() == (*left, CHECK)
