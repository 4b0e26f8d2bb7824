"""Iceberg's procedures, as lakehold calls them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from lakehold.maintenance.layout import DELETED_SHARE, SMALL_FILES_MOST, Rewrite
from lakehold.spark_sql import alter_table, literal, map_of, quoted, quoted_table, table_properties

CallProcedure = Callable[[str], Sequence[Mapping[str, Any]]]
"""Runs one statement and gives its rows by column; it raises `LakeholdError`."""

ORPHANS_SEARCHED_PROPERTY = "lakehold.orphans-searched-ms"
"""The property of a table that says when its orphans were last searched, epoch milliseconds as text."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_CONFLICT = re.compile(
    r"conflicted with another|CommitFailed|ValidationException|found new (delete|conflicting)"
    r"|metadata location \S+ has changed|requirement failed|missing required files",
    re.IGNORECASE,
)
_GONE = re.compile(
    r"failed to open (input stream for )?file|failed to get status for file|NotFoundException"
    r"|file does not exist|cannot read manifest list file",
    re.IGNORECASE,
)


def is_conflict(message: str) -> bool:
    """Whether a procedure failed because another writer came first; nothing was changed then."""
    return _CONFLICT.search(message) is not None


def is_file_gone(message: str) -> bool:
    """Whether a procedure failed because a file is not there: another maintenance has deleted it, or the table is damaged."""
    return _GONE.search(message) is not None


@dataclass(frozen=True)
class Procedures:
    """Calls procedures on the tables of one lake.

    Args:
        call: Runs a statement.
        catalog_name: Spark's name of the lake's catalog.
    """

    call: CallProcedure
    catalog_name: str

    def expire_snapshots(self, full_name: str, snapshot_ids: Sequence[int]) -> int:
        """Expire exactly these snapshots and delete what only they refer to. Returns how many files were deleted.

        By itself the procedure takes every snapshot of the last branch that is older than five days as well, so that it is told
        of a time before all of them. It refuses when a tag or a branch refers to one of them.
        """
        ids = ", ".join(f"{snapshot_id}L" for snapshot_id in snapshot_ids)
        rows = self._run(
            "expire_snapshots", full_name, f"snapshot_ids => array({ids}), older_than => {literal(_EPOCH)}"
        )
        return sum(count for row in rows for name, count in row.items() if name.startswith("deleted_") and count)

    def rewrite_data_files(self, full_name: str, rewrite: Rewrite, *, in_order: bool) -> int:
        """Gather small data files and write those without much of their rows anew. Returns how many were rewritten.

        Args:
            full_name: The table.
            rewrite: What is worth it.
            in_order: Whether rows are sorted as the table says.
        """
        options = {
            "min-input-files": SMALL_FILES_MOST,
            "min-file-size-bytes": rewrite.small_below_bytes,
            "delete-ratio-threshold": DELETED_SHARE,
        }
        strategy = "strategy => 'sort', " if in_order else ""
        rows = self._run("rewrite_data_files", full_name, f"{strategy}options => {map_of(options)}")
        return sum(row["rewritten_data_files_count"] for row in rows)

    def rewrite_position_delete_files(self, full_name: str) -> int:
        """Gather small files of position deletes, which format version 2 has. Returns how many were rewritten."""
        options = map_of({"min-input-files": SMALL_FILES_MOST})
        rows = self._run("rewrite_position_delete_files", full_name, f"options => {options}")
        return sum(row["rewritten_delete_files_count"] for row in rows)

    def rewrite_manifests(self, full_name: str) -> None:
        """Gather small manifests."""
        self._run("rewrite_manifests", full_name)

    def rewrites_manifests_safely(self, format_version: int) -> bool:
        """Whether the Iceberg that runs keeps row ids when it gathers manifests: 1.11 loses those of format version 3."""
        if format_version < 3:  # noqa: PLR2004 - the first with row ids
            return True
        (row,) = self.call(f"SELECT {quoted_table(self.catalog_name, 'system.iceberg_version')}() AS version")
        found = re.match(r"(\d+)\.(\d+)", str(row["version"]))
        return found is not None and (int(found[1]), int(found[2])) >= (1, 12)

    def remove_orphan_files(self, full_name: str, before_ms: int, *, dry_run: bool) -> int:
        """Delete the files under the table's location that it does not refer to. Returns how many there were.

        Args:
            full_name: The table.
            before_ms: Files made at or after this time stay, epoch milliseconds: somebody may be about to commit them.
            dry_run: Only count them.
        """
        arguments = (
            f"older_than => {literal(_EPOCH + timedelta(milliseconds=before_ms))}, dry_run => {str(dry_run).lower()}"
        )
        return len(self._run("remove_orphan_files", full_name, arguments))

    def note_orphan_search(self, full_name: str, at_ms: int) -> None:
        """Write down on the table that orphans were searched at a time, epoch milliseconds."""
        name = quoted_table(self.catalog_name, full_name)
        properties = table_properties({ORPHANS_SEARCHED_PROPERTY: str(at_ms)})
        self.call(alter_table(name, f"SET TBLPROPERTIES {properties}"))

    def delete_rows(self, full_name: str, where: str) -> None:
        """Delete the rows of a table that are `where`."""
        self.call(f"DELETE FROM {quoted_table(self.catalog_name, full_name)} WHERE {where}")

    def _run(self, procedure: str, full_name: str, arguments: str = "") -> Sequence[Mapping[str, Any]]:
        name = ".".join(quoted(part) for part in full_name.split("."))
        called = quoted_table(self.catalog_name, f"system.{procedure}")
        return self.call(f"CALL {called}(table => {literal(name)}{arguments and ', '}{arguments})")
