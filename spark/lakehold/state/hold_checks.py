"""What checks found, of holds and of tables, as rows of `mz_catalog.mz_hold_checks`."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyiceberg.catalog import Catalog

from lakehold.state.log_table import LogTable
from lakehold.state.state_table import Row

HOLD_CHECKS_TABLE = "mz_catalog.mz_hold_checks"


@dataclass(frozen=True)
class HoldCheck:
    """What a suite found on one table.

    Attributes:
        hold_id: The hold that it was checked for; empty: none.
        table: Full name of the table.
        snapshot_id: The snapshot that was checked; None: the table had none.
        at_ms: The time it was read at: where the hold stood, or was to stand; epoch milliseconds.
        suite: The suite's file, or `generated`.
        success: Whether everything was as expected.
        statistics: How many expectations there were, and how they went.
        failures: One sentence's part for each that was not met.
        html_path: The page that shows it.
        checked_at_ms: When the suite ran, epoch milliseconds.
    """

    hold_id: str
    table: str
    snapshot_id: int | None
    at_ms: int
    suite: str
    success: bool
    statistics: Mapping[str, int]
    failures: tuple[str, ...]
    html_path: str
    checked_at_ms: int


class HoldCheckStore(ABC):
    """Keeps what checks found."""

    @abstractmethod
    def checks(self) -> tuple[HoldCheck, ...]:
        """All of them, in the order in which they were recorded."""

    @abstractmethod
    def record(self, check: HoldCheck) -> None:
        """Add one."""

    @abstractmethod
    def forget(self, before_ms: int, hold_ids: Collection[str], *, dry_run: bool = False) -> int:
        """Take those away that were made before a time (exclusive), except those of some holds; returns how many.

        Args:
            before_ms: Epoch milliseconds.
            hold_ids: Of the holds that are there.
            dry_run: Only count them.
        """


class PyIcebergHoldChecks(HoldCheckStore):
    """The checks in the lake behind `catalog`."""

    def __init__(self, catalog: Catalog) -> None:
        self._rows = LogTable(catalog, HOLD_CHECKS_TABLE)

    def checks(self) -> tuple[HoldCheck, ...]:
        """All of them, in the order in which they were recorded."""
        return tuple(map(_from_row, self._rows.rows()))

    def record(self, check: HoldCheck) -> None:
        """Add one."""
        self._rows.append(_to_row(check))

    def forget(self, before_ms: int, hold_ids: Collection[str], *, dry_run: bool = False) -> int:
        """Take those away that were made before a time, except those of some holds."""
        act = self._rows.count_old if dry_run else self._rows.forget
        return act("checked_at_ms", before_ms, lambda row: row["hold_id"] in hold_ids)


def _to_row(check: HoldCheck) -> Row:
    return {
        "hold_id": check.hold_id,
        "table_name": check.table,
        "snapshot_id": check.snapshot_id,
        "at": check.at_ms,
        "suite": check.suite,
        "success": check.success,
        "statistics": json.dumps(dict(check.statistics)),
        "failures": json.dumps(check.failures, ensure_ascii=False),
        "html_path": check.html_path,
        "checked_at_ms": check.checked_at_ms,
    }


def _from_row(row: Row) -> HoldCheck:
    return HoldCheck(
        hold_id=row["hold_id"],
        table=row["table_name"],
        snapshot_id=row["snapshot_id"],
        at_ms=row["at"],
        suite=row["suite"],
        success=row["success"],
        statistics=json.loads(row["statistics"]),
        failures=tuple(json.loads(row["failures"])),
        html_path=row["html_path"],
        checked_at_ms=row["checked_at_ms"],
    )
