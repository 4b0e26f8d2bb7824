"""Iceberg's Spark procedures (`CALL catalog.system.…`), as maintenance calls them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from lakehold.maintenance.file_layout import DELETED_SHARE, SMALL_FILES_MOST, Rewrite
from lakehold.spark_sql import alter_table, literal, map_of, quoted, quoted_table, table_properties

CallProcedure = Callable[[str], Sequence[Mapping[str, Any]]]
"""Runs one statement and returns its rows by column; it raises `LakeholdError`."""

ORPHANS_SEARCHED_PROPERTY = "lakehold.orphans-searched-ms"
"""The property of a table that keeps when orphans were last searched for, epoch milliseconds as text."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_GONE = re.compile(
    r"failed to open (input stream for )?file|failed to get status for file|NotFoundException"
    r"|file does not exist|cannot read manifest list file",
    re.IGNORECASE,
)


def is_file_gone(message: str) -> bool:
    """Return whether a procedure failed because a file is missing.

    Another maintenance has deleted it, or the table is damaged.
    """
    return _GONE.search(message) is not None


@dataclass(frozen=True)
class Expired:
    """A count of the files that were deleted with expired snapshots; files that the store refused to delete are not in it.

    Attributes:
        files: All files.
        manifest_lists: Manifest lists among them: each snapshot has one of its own.
    """

    files: int
    manifest_lists: int


@dataclass(frozen=True)
class Procedures:
    """The procedures that run on the tables of one lake.

    Args:
        call: Runs a statement.
        catalog_name: Spark's name of the lake's catalog.
        is_in_object_store: Whether the tables are in a store that Hadoop does not know.
    """

    call: CallProcedure
    catalog_name: str
    is_in_object_store: bool = False

    def expire_snapshots(self, full_name: str, snapshot_ids: Sequence[int]) -> Expired:
        """Expire exactly these snapshots and delete the files that only they refer to.

        By default the procedure also expires every snapshot of the last branch that is older than five days; a time before all
        snapshots prevents that. It refuses to expire a snapshot that a tag or a branch refers to.
        """
        ids = ", ".join(f"{snapshot_id}L" for snapshot_id in snapshot_ids)
        rows = self._run(
            "expire_snapshots", full_name, f"snapshot_ids => array({ids}), older_than => {literal(_EPOCH)}"
        )
        counts = {name: count or 0 for row in rows for name, count in row.items() if name.startswith("deleted_")}
        return Expired(files=sum(counts.values()), manifest_lists=counts["deleted_manifest_lists_count"])

    def rewrite_data_files(self, full_name: str, rewrite: Rewrite, *, in_order: bool) -> int:
        """Compact small data files, and rewrite files with many deleted rows without them. Returns how many were rewritten.

        Args:
            full_name: The table.
            rewrite: The files that are worth it.
            in_order: Whether rows are sorted by the table's sort order.
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
        """Compact small files of position deletes, which format version 2 has. Returns how many were rewritten."""
        options = map_of({"min-input-files": SMALL_FILES_MOST})
        rows = self._run("rewrite_position_delete_files", full_name, f"options => {options}")
        return sum(row["rewritten_delete_files_count"] for row in rows)

    def rewrite_manifests(self, full_name: str) -> int:
        """Compact small manifests. Returns 0: no data or delete file is rewritten."""
        self._run("rewrite_manifests", full_name)
        return 0

    def rewrites_manifests_safely(self, format_version: int) -> bool:
        """Return whether the running Iceberg keeps row ids when it compacts manifests.

        Iceberg 1.11 loses those of format version 3.
        """
        if format_version < 3:  # noqa: PLR2004 - the first with row ids
            return True
        (row,) = self.call(f"SELECT {quoted_table(self.catalog_name, 'system.iceberg_version')}() AS version")
        found = re.match(r"(\d+)\.(\d+)", str(row["version"]))
        return found is not None and (int(found[1]), int(found[2])) >= (1, 12)

    def remove_orphan_files(self, full_name: str, before_ms: int, *, dry_run: bool) -> list[str]:
        """Delete files below the table's location that it does not refer to. Returns them, deleted or not.

        Args:
            full_name: The table.
            before_ms: Files made at or after this time stay, epoch milliseconds: a writer may be about to commit them.
            dry_run: Only find them.
        """
        before = literal(_EPOCH + timedelta(milliseconds=before_ms))
        arguments = f"older_than => {before}, dry_run => {str(dry_run).lower()}"
        if self.is_in_object_store:
            # Iceberg's own client lists the files. In a directory it would fail when one of them goes meanwhile; Hadoop does not.
            arguments += ", prefix_listing => true"
        return [row["orphan_file_location"] for row in self._run("remove_orphan_files", full_name, arguments)]

    def record_orphan_search(self, full_name: str, at_ms: int) -> None:
        """Record on the table that orphans were searched for at a time, epoch milliseconds."""
        name = quoted_table(self.catalog_name, full_name)
        properties = table_properties({ORPHANS_SEARCHED_PROPERTY: str(at_ms)})
        self.call(alter_table(name, f"SET TBLPROPERTIES {properties}"))

    def delete_rows(self, full_name: str, where: str) -> None:
        """Delete the rows of a table that match the condition `where`."""
        self.call(f"DELETE FROM {quoted_table(self.catalog_name, full_name)} WHERE {where}")

    def _run(self, procedure: str, full_name: str, arguments: str = "") -> Sequence[Mapping[str, Any]]:
        name = ".".join(quoted(part) for part in full_name.split("."))
        called = quoted_table(self.catalog_name, f"system.{procedure}")
        return self.call(f"CALL {called}(table => {literal(name)}{arguments and ', '}{arguments})")
