"""The table that a subscription publishes to: an ordinary Iceberg table whose history says how far it is complete.

Each commit of a publisher carries in its snapshot's summary the subscription, its position (all output below it is in the
table) and the publisher's epoch. A commit states the position that it goes on from, and is a compare-and-set: no output is
appended twice, whoever else commits to the table in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from lakehold.errors import DefinitionError, LeaseLost
from lakehold.holds.frontiers import SUBSCRIPTION_PROPERTY
from lakehold.iceberg.compare_and_set import Rewrite, change, live_entries
from lakehold.publish.output_columns import DAY_MS, ColumnsUnfit, create_table, evolve_table

POSITION_PROPERTY = "lakehold.position"
"""In a snapshot's summary, and of the table: all output below it (exclusive, epoch milliseconds) is there."""

EPOCH_PROPERTY = "lakehold.epoch"
"""How often a publisher had taken the subscription when this one wrote: one of an earlier epoch commits nothing."""

PUBLISHER_PROPERTY = "lakehold.publisher"
"""In a snapshot's summary: the process that made it."""

RESTARTED_PROPERTY = "lakehold.restarted-at"
"""In a snapshot's summary, and of the table: the time of the last snapshot that replaced all that was there before."""

MANIFESTS_MOST = 100
"""Commits after which the next one gathers small manifests into one."""

SMALL_MANIFEST_FILES = 1_000
"""Data files below which a manifest is gathered."""


@dataclass(frozen=True)
class Published:
    """What the output table says of its subscription: `position_ms` is exclusive."""

    position_ms: int
    epoch: int
    publisher: str


@dataclass(frozen=True)
class Publication:
    """What one commit adds.

    Attributes:
        files: Data files with its rows.
        after: What the table says now; None: nothing has been published.
        position_ms: What it says then.
        restarted_at_ms: Set where all rows that are there are replaced by those of this time.
    """

    files: tuple[DataFile, ...]
    after: Published | None
    position_ms: int
    restarted_at_ms: int | None = None


class OutputTable:
    """The output of one subscription.

    Args:
        catalog: The lake's.
        full_name: The table's; it need not be there yet.
        subscription_id: Whose output it is.
    """

    def __init__(self, catalog: Catalog, full_name: str, subscription_id: str) -> None:
        self._catalog = catalog
        self.full_name = full_name
        self._subscription_id = subscription_id

    def table(self) -> Table | None:
        """The table now; None when it is not there.

        Raises:
            DefinitionError: It is somebody else's.
        """
        try:
            table = self._catalog.load_table(self.full_name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        if table.properties.get(SUBSCRIPTION_PROPERTY) != self._subscription_id:
            raise DefinitionError(
                f'table "{self.full_name}" already exists',
                code="output-exists",
                detail="It is not the output of this subscription.",
                hint="Choose another one: CREATE SUBSCRIPTION … INTO namespace.table; or drop the table.",
            )
        return table

    def is_there(self) -> bool:
        """Whether the table is there and this subscription's."""
        try:
            return self.table() is not None
        except DefinitionError:
            return False

    def drop(self) -> None:
        """Drop the table with its files."""
        self._catalog.purge_table(self.full_name)

    def published(self, table: Table | None = None) -> Published | None:
        """How far the output is complete; None when nothing has been published."""
        table = table or self.table()
        if table is None:
            return None
        for snapshot in _ancestors(table):
            summary = snapshot.summary.additional_properties if snapshot.summary else {}
            if summary.get(SUBSCRIPTION_PROPERTY) == self._subscription_id:
                return _published(summary)
        # The snapshots that said so have been expired.
        return _published(table.properties) if POSITION_PROPERTY in table.properties else None

    def prepared(self, columns: pa.Schema) -> Table:
        """The table with at least `columns`, made if it is not there.

        Raises:
            DefinitionError: A column has a type that a table cannot have, or cannot become.
        """
        table = self.table()
        try:
            if table is not None:
                return evolve_table(table, columns)
            return create_table(self._catalog, self.full_name, columns, {SUBSCRIPTION_PROPERTY: self._subscription_id})
        except ColumnsUnfit as error:
            raise DefinitionError(
                f'table "{self.full_name}" cannot take the output of its subscription',
                code="output-columns",
                detail=f"{error}.",
                hint="Name or CAST columns: SUBSCRIBE (SELECT …). Columns keep their types as long as the table is there.",
            ) from error

    def publish(self, publication: Publication, epoch: int, publisher: str) -> int:
        """Make `publication` a part of the table, and return its snapshot's id.

        Raises:
            LeaseLost: Another publisher has come further, or has taken over.
        """

        def plan(table: Table) -> Rewrite:
            self._check(table, publication.after, epoch)
            said = {POSITION_PROPERTY: str(publication.position_ms), EPOCH_PROPERTY: str(epoch)}
            summary = {SUBSCRIPTION_PROPERTY: self._subscription_id, PUBLISHER_PROPERTY: publisher, **said}
            if publication.restarted_at_ms is None:
                return _appended(table, publication.files, summary, said)
            restarted = {RESTARTED_PROPERTY: str(publication.restarted_at_ms)}
            return _replaced(table, publication.files, {**summary, **restarted}, {**said, **restarted})

        written = change(self._catalog, self.full_name, plan)
        assert written is not None
        return written.snapshot.snapshot_id

    def forget(self, before_ms: int) -> bool:
        """Remove the rows of the days that end at or before `before_ms`; false when others committed meanwhile."""
        table = self.table()
        row_filter = f"mz_timestamp < {before_ms - before_ms % DAY_MS}"
        if table is None or not any(table.scan(row_filter=row_filter).plan_files()):
            return True
        try:
            table.delete(row_filter)
        except CommitFailedException:
            return False
        return True

    def _check(self, table: Table, expected: Published | None, epoch: int) -> None:
        found = self.published(table)
        newer = found is not None and found.epoch > epoch
        if newer or (found.position_ms if found else None) != (expected.position_ms if expected else None):
            who = f'"{found.publisher}" has published up to {found.position_ms}' if found else "the output was emptied"
            raise LeaseLost(
                f'another publisher runs the subscription into "{self.full_name}"',
                detail=f"Expected its output to end at {expected.position_ms if expected else 'nothing'}; {who}.",
                hint="Nothing was published twice. Run it again when the other one has finished.",
            )


def _ancestors(table: Table) -> Iterator[Snapshot]:
    """The snapshots of main as far as they remain, newest first."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = table.snapshot_by_id(parent) if parent is not None else None


def _published(said: Mapping[str, str]) -> Published:
    return Published(int(said[POSITION_PROPERTY]), int(said[EPOCH_PROPERTY]), said.get(PUBLISHER_PROPERTY, "another"))


def _appended(
    table: Table, files: tuple[DataFile, ...], summary: Mapping[str, str], properties: Mapping[str, str]
) -> Rewrite:
    """Files beside those that are there; now and then small manifests become one."""
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
    """Files in place of all that are there: readers see the rows of before or those of after."""
    removed = live_entries(table, tuple(manifest for manifest in _manifests(table) if _is_own(manifest, table)))
    return Rewrite(removed=removed, files=files, summary=summary, properties=properties, expires=False)


def _manifests(table: Table) -> tuple[ManifestFile, ...]:
    snapshot = table.current_snapshot()
    return tuple(snapshot.manifests(table.io)) if snapshot is not None else ()


def _is_small(manifest: ManifestFile, table: Table) -> bool:
    files = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
    return _is_own(manifest, table) and files < SMALL_MANIFEST_FILES


def _is_own(manifest: ManifestFile, table: Table) -> bool:
    """Whether its entries can stand in a new manifest: they are not deletes, nor of an earlier way to partition."""
    return manifest.content == ManifestContent.DATA and manifest.partition_spec_id == table.metadata.default_spec_id
