"""A lake is restored from a backup while its connector went on: what was requested from the connector since deletes no rows."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.captured_shop import Shop
from tests.captured_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.live_source import execute

pytestmark = [pytest.mark.stack, pytest.mark.spark]

_CATALOG = "catalog.db"
_MISSED = (
    "ALTER PUBLICATION lake DROP TABLE orders",
    "INSERT INTO orders VALUES (900, 9, 'unseen')",
    "DELETE FROM orders WHERE id BETWEEN 100 AND 120",
)
"""Somebody takes a table from the publication, so that lakehold requests a snapshot of it."""


def _back_up(shop: Shop, backup: Path) -> None:
    shutil.copytree(_directory(shop), backup)
    _copy_catalog(_directory(shop), backup)


def _restore(shop: Shop, backup: Path) -> None:
    """Put the backup back. The catalog gets its rows in place, because the session that the tests share has it open."""
    shutil.copytree(backup, _directory(shop), dirs_exist_ok=True, ignore=shutil.ignore_patterns(f"{_CATALOG}*"))
    _copy_catalog(backup, _directory(shop))
    shop.reopen()


def _directory(shop: Shop) -> Path:
    path = shop.lake.settings.warehouse_path
    assert path is not None
    return path


def _copy_catalog(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source / _CATALOG)) as old, closing(sqlite3.connect(target / _CATALOG)) as new:
        old.backup(new)


@pytest.mark.parametrize(
    "is_pending", [pytest.param(False, id="finished", marks=pytest.mark.soak), pytest.param(True, id="pending")]
)
def test_a_snapshot_requested_after_the_backup_deletes_no_rows_of_the_restored_lake(
    shop: Shop, tmp_path: Path, *, is_pending: bool
) -> None:
    shop.upstream("orders")
    shop.lake.sql(shop.creating("orders"))
    shop.follow_until_equal("orders")
    backup = tmp_path / "backup"
    _back_up(shop, backup)

    for n in range(3):
        execute(shop.database, [f"UPDATE orders SET n = {n} WHERE id < 20"])
        shop.follow_until_equal("orders")
    execute(shop.database, _MISSED)
    if is_pending:
        shop.lake.sql("ALTER SOURCE shop REPAIR")
    else:
        shop.reopen()
        shop.follow_until_equal("orders")
        shop.follow_until_nothing_is_reported()
    _restore(shop, backup)

    shop.follow_until_equal("orders")
    shop.follow_until_nothing_is_reported()
    assert shop.rows("orders") == shop.wanted("orders")
