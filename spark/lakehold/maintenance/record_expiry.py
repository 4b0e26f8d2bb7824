"""Expiry of lakehold's own records that nothing needs any more: batches, healed errors, verdicts of checks and their pages.

An error is healed when a later good message sets the row of its key (`ingest/write/error_records.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyiceberg.expressions import LessThan, Reference
from pyiceberg.expressions.literals import literal

from lakehold.holds.rules import protecting
from lakehold.iceberg.data_tables import DataTables
from lakehold.iceberg.deletion import Refusal
from lakehold.maintenance.procedures import Procedures
from lakehold.model.lake_definitions import DefinitionReader
from lakehold.quality.pages import Pages
from lakehold.state.batch_protocol import BATCHES, Batch
from lakehold.state.hold_checks import HOLD_CHECKS, HoldCheck
from lakehold.state.holds import HoldStore
from lakehold.state.schema_files import SYSTEM_NAMESPACE
from lakehold.state.store import Log

SOURCE_ERRORS = f"{SYSTEM_NAMESPACE}.mz_source_errors"

KEPT_MS = 30 * 24 * 60 * 60 * 1000
"""The age, in milliseconds, at which `lakehold maintain` deletes records."""


@dataclass(frozen=True)
class Forgotten:
    """A count of what was deleted: rows of a system table, and files that belong to them.

    Attributes:
        rows: The rows.
        files: The files.
        refusal: Further files that the store refused to delete.
    """

    rows: int = 0
    files: int = 0
    refusal: Refusal = field(default_factory=Refusal)


@dataclass(frozen=True)
class Records:
    """The records of one lake.

    Args:
        batches: The history of batches; readers themselves keep the position and progress of a source.
        checks: The verdicts of checks, `mz_hold_checks`.
        pages: The HTML pages of checks, which their verdicts link.
        tables: The tables, among them `mz_source_errors`.
        holds: The holds: verdicts on an existing hold stay.
        definitions: The definitions, which show which holds exist.
        procedures: Deletes errors.
    """

    batches: Log[Batch]
    checks: Log[HoldCheck]
    pages: Pages
    tables: DataTables
    holds: HoldStore
    definitions: DefinitionReader
    procedures: Procedures

    def forget(self, full_name: str, before_ms: int, *, dry_run: bool = False) -> Forgotten:
        """Delete the rows of a system table that nothing needs and that are older than a time (exclusive); skip other tables.

        Open errors stay, however old, and so do verdicts on existing holds.

        Args:
            full_name: `namespace.table`.
            before_ms: Epoch milliseconds.
            dry_run: Only count what would be deleted.
        """
        if full_name == BATCHES.table:
            return Forgotten(self.batches.forget("committed_at_ms", before_ms, dry_run=dry_run))
        if full_name == HOLD_CHECKS.table:
            return self._forget_checks(before_ms, dry_run=dry_run)
        if full_name == SOURCE_ERRORS:
            return Forgotten(self._forget_healed(before_ms, dry_run=dry_run))
        return Forgotten()

    def _forget_checks(self, before_ms: int, *, dry_run: bool) -> Forgotten:
        # Read the holds before the checks: a hold that is created in between has no old check.
        kept = {hold.hold_id for hold in protecting(self.holds.holds(), self.definitions.definitions())}
        checks = self.checks.values()
        linked = {check.html_path for check in checks if check.hold_id in kept or check.checked_at_ms >= before_ms}
        pages = self.pages.unneeded(before_ms, {check.html_path for check in checks} - linked)
        refusal = Refusal() if dry_run else self.pages.delete(pages)
        # Verdicts go after their pages: they name them to the next maintenance.
        rows = (
            0
            if refusal
            else self.checks.forget("checked_at_ms", before_ms, lambda check: check.hold_id in kept, dry_run=dry_run)
        )
        return Forgotten(rows, len(pages) - refusal.files, refusal)

    def _forget_healed(self, before_ms: int, *, dry_run: bool) -> int:
        """Delete errors that were healed before a time, and return how many; `healed_at` of an open error is null."""
        state = self.tables.table_state(SOURCE_ERRORS)
        if state is None or state.snapshot_id is None:
            return 0
        is_old = LessThan(term=Reference("healed_at"), value=literal(before_ms))
        healed = int(state.table.scan(is_old, selected_fields=("offset",)).to_arrow().num_rows)
        if healed and not dry_run:
            self.procedures.delete_rows(SOURCE_ERRORS, f"healed_at < {before_ms}")
        return healed
