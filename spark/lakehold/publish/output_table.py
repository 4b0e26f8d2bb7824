"""The table that a subscription publishes to: an ordinary Iceberg table whose history records how far it is complete.

Each commit of a publisher stores in its snapshot's summary the subscription, its position (all output below it is in the table)
and the publisher's epoch. A commit names the position that it continues from, and is a compare-and-set. So no output is appended
twice, even if others commit to the table in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import VoidTransform

from lakehold.errors import CommitConflict, DefinitionError
from lakehold.iceberg.attempts import changing
from lakehold.iceberg.compare_and_set import Rewrite, change, live_entries
from lakehold.model.summary_keys import (
    EPOCH_PROPERTY,
    POSITION_PROPERTY,
    PUBLISHER_PROPERTY,
    RESTARTED_PROPERTY,
    SUBSCRIPTION_PROPERTY,
)
from lakehold.object_names import full_name_text, object_text
from lakehold.publish.derived_table import OutputOfSubscription, Published
from lakehold.publish.output_columns import DAY_MS, TIME_COLUMN, check_has, create_table, evolve_table, unfit_refused
from lakehold.subscribe.query_columns import QUERY_COLUMNS, QueryColumns, to_text

MANIFESTS_MOST = 100
"""Number of manifests at which the next commit merges the small ones."""

SMALL_MANIFEST_FILES = 1_000
"""Number of data files below which a manifest is small."""


@dataclass(frozen=True)
class Publication:
    """The content of one commit to an output table.

    Attributes:
        files: Data files with the new rows.
        after: The progress that the commit continues from; None if nothing has been published.
        position_ms: The position after the commit.
        columns: The columns of tables that the output comes from.
        restarted_at_ms: Time of a new snapshot that replaces all existing rows; None for other commits.
    """

    files: tuple[DataFile, ...]
    after: Published | None
    position_ms: int
    columns: QueryColumns
    restarted_at_ms: int | None = None


class OutputTable(OutputOfSubscription):
    """The output of one subscription."""

    owner_property = SUBSCRIPTION_PROPERTY
    hint = "Choose another one: CREATE SUBSCRIPTION … INTO namespace.table; or drop the table."

    def published(self, table: Table | None = None) -> Published | None:
        """Return how far the output is complete; None if nothing has been published."""
        table = table or self.table()
        if table is None:
            return None
        for snapshot in _ancestors(table):
            summary = snapshot.summary.additional_properties if snapshot.summary else {}
            # A history, whose text may be unknown here, records its position in properties of the table alone.
            if summary.get(SUBSCRIPTION_PROPERTY) == self._object_id and POSITION_PROPERTY in summary:
                return _published(summary)
        # The snapshots with the position have been expired; the table's properties repeat it.
        return _published(table.properties) if POSITION_PROPERTY in table.properties else None

    def prepare(self, columns: pa.Schema) -> Table:
        """Return the table with at least `columns`, creating or extending it if necessary.

        Raises:
            DefinitionError: A table cannot have a column's type, or cannot change to it; or the table lost its column of time, or
                is partitioned by another one.
        """
        table = self.table()
        with unfit_refused(self.full_name):
            if table is not None:
                check_has(self.full_name, table.schema().column_names, [TIME_COLUMN])
                _check_partitions(self.full_name, table)
                return evolve_table(table, columns)
            return create_table(self._catalog, self.full_name, columns, {SUBSCRIPTION_PROPERTY: self._object_id})

    def publish(self, publication: Publication, epoch: int, publisher: str) -> int:
        """Commit `publication` to the table, and return the id of the new snapshot.

        Args:
            publication: The content of the commit.
            epoch: The epoch of the process that publishes.
            publisher: Names that process.

        Raises:
            LeaseLost: Another publisher has published more, or has taken over.
        """

        def plan(table: Table) -> Rewrite:
            self.check_continues(table, publication.after, epoch)
            progress = {POSITION_PROPERTY: str(publication.position_ms), EPOCH_PROPERTY: str(epoch)}
            summary = {SUBSCRIPTION_PROPERTY: self._object_id, PUBLISHER_PROPERTY: publisher, **progress}
            properties = {**progress, QUERY_COLUMNS: to_text(publication.columns)}
            if publication.restarted_at_ms is None:
                return _appended(table, publication.files, summary, properties)
            restarted = {RESTARTED_PROPERTY: str(publication.restarted_at_ms)}
            return _replaced(table, publication.files, {**summary, **restarted}, {**properties, **restarted})

        written = change(self._catalog, self.full_name, plan)
        assert written is not None
        return written.snapshot.snapshot_id

    def remove_rows_before(self, before_ms: int, confirm: Callable[[], None]) -> bool:
        """Remove the rows of days that end at or before `before_ms`; return false if a concurrent commit prevented it."""
        row_filter = f"mz_timestamp < {before_ms - before_ms % DAY_MS}"
        try:
            with changing(self.full_name):
                if self._has(row_filter) and (table := self.table()) is not None:
                    confirm()
                    table.delete(row_filter)
        except CommitConflict:
            return False
        return True


def _check_partitions(full_name: str, table: Table) -> None:
    """Check that a table is partitioned by time alone: a file has the rows of one timestamp or of several, in one partition.

    Raises:
        DefinitionError: Somebody partitioned it by another column.
    """
    time_id = table.schema().find_field(TIME_COLUMN).field_id
    for field in table.spec().fields:
        if field.source_id != time_id and not isinstance(field.transform, VoidTransform):
            raise DefinitionError(
                f'table "{full_name}" is partitioned by another column than {TIME_COLUMN}',
                code="output-partition",
                detail=f"Its partition field {field.name} is of {table.schema().find_column_name(field.source_id)}. Output is "
                "written in the order of its timestamps.",
                hint=f"ALTER TABLE {full_name_text(full_name)} DROP PARTITION FIELD {object_text(field.name)}; publish again.",
            )


def _ancestors(table: Table) -> Iterator[Snapshot]:
    """Yield the remaining snapshots of main, newest first."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = table.snapshot_by_id(parent) if parent is not None else None


def _published(properties: Mapping[str, str]) -> Published:
    return Published(
        int(properties[POSITION_PROPERTY]),
        int(properties[EPOCH_PROPERTY]),
        properties.get(PUBLISHER_PROPERTY, "another"),
    )


def _appended(
    table: Table, files: tuple[DataFile, ...], summary: Mapping[str, str], properties: Mapping[str, str]
) -> Rewrite:
    """Plan a commit that adds files; now and then it also merges small manifests."""
    manifests = _manifests(table)
    small = tuple(m for m in manifests if _is_small(m, table)) if len(manifests) >= MANIFESTS_MOST else ()
    return Rewrite(
        existing=live_entries(table, small),
        kept=tuple(m for m in manifests if m not in small),
        files=files,
        summary=summary,
        properties=properties,
        expires=False,
    )


def _replaced(
    table: Table, files: tuple[DataFile, ...], summary: Mapping[str, str], properties: Mapping[str, str]
) -> Rewrite:
    """Plan a commit that replaces all files: readers see either the rows before it or those after it."""
    removed = live_entries(table, tuple(manifest for manifest in _manifests(table) if _is_own(manifest, table)))
    return Rewrite(removed=removed, files=files, summary=summary, properties=properties, expires=False)


def _manifests(table: Table) -> tuple[ManifestFile, ...]:
    snapshot = table.current_snapshot()
    return tuple(snapshot.manifests(table.io)) if snapshot is not None else ()


def _is_small(manifest: ManifestFile, table: Table) -> bool:
    files = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
    return _is_own(manifest, table) and files < SMALL_MANIFEST_FILES


def _is_own(manifest: ManifestFile, table: Table) -> bool:
    """Return whether the manifest's entries can be moved to a new manifest.

    They must not be deletes, nor belong to an earlier partition spec.
    """
    return manifest.content == ManifestContent.DATA and manifest.partition_spec_id == table.metadata.default_spec_id
