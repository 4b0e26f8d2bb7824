"""The properties of a table that are known without Spark: its schema, its batches, and the bounds of its values."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from uuid import UUID

from cachetools import LRUCache
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import NestedField

from lakehold.errors import CommitConflict
from lakehold.iceberg.attempts import NO_SUCH_TABLE, answering, read
from lakehold.iceberg.column_bounds import ColumnBounds, around_all, file_bounds
from lakehold.iceberg.dropped_tables import drop, drop_own
from lakehold.iceberg.namespaces import all_namespaces, create_namespace
from lakehold.iceberg.new_columns import add_columns
from lakehold.iceberg.refs import RefChanges, change_refs
from lakehold.iceberg.sql_catalog import RememberingSqlCatalog
from lakehold.iceberg.table_properties import set_property
from lakehold.iceberg.views import is_view, view_locations, views_in
from lakehold.model.summary_keys import SOURCE_PROPERTY, TIMESTAMP_PROPERTY

MANIFESTS_REMEMBERED = 20_000
"""Most pairs of a manifest and a column whose bounds are kept in memory: a manifest never changes."""


@dataclass(frozen=True)
class SnapshotState:
    """One snapshot: `committed_at_ms` is the writer's clock (epoch milliseconds), `summary` has all of its properties."""

    snapshot_id: int
    sequence_number: int
    committed_at_ms: int
    summary: Mapping[str, str]

    def is_of(self, source: str) -> bool:
        """Return whether a batch of `source` made the snapshot."""
        return self.summary.get(SOURCE_PROPERTY) == source and TIMESTAMP_PROPERTY in self.summary


@dataclass(frozen=True)
class TableState:
    """A table in the state of its current metadata."""

    full_name: str
    format_version: int
    schema: Schema
    properties: Mapping[str, str]
    table: Table = field(repr=False, compare=False)

    @cached_property
    def history(self) -> tuple[SnapshotState, ...]:
        """Return the remaining snapshots of main, newest first: there are thousands if holds keep them."""
        return tuple(self.branch(MAIN_BRANCH))

    @cached_property
    def current(self) -> SnapshotState | None:
        """Return the current snapshot; None before the first."""
        snapshot = self.table.current_snapshot()
        return _as_state(snapshot) if snapshot is not None else None

    @property
    def snapshots(self) -> tuple[SnapshotState, ...]:
        """Return all remaining snapshots, those of branches and staged ones among them."""
        return tuple(map(_as_state, self.table.metadata.snapshots))

    @property
    def snapshot_id(self) -> int | None:
        """Return the current snapshot's id."""
        return self.current.snapshot_id if self.current else None

    @property
    def row_count(self) -> int | None:
        """Return the number of rows by the table's summary, at most: equality deletes may hide some.

        None if the summary does not have it.
        """
        if self.current is None:
            return 0
        summary = self.current.summary
        if "total-records" not in summary:
            return None
        return int(summary["total-records"]) - int(summary.get("total-position-deletes", 0))

    def of_batch(self, source: str, mz_timestamp: int) -> Iterator[SnapshotState]:
        """Yield the snapshots that the batch of `source` at `mz_timestamp` made, newest first."""
        for snapshot in self.branch(MAIN_BRANCH):
            if snapshot.is_of(source):
                # A source's timestamps only grow: snapshots before an earlier batch cannot match.
                if int(snapshot.summary[TIMESTAMP_PROPERTY]) < mz_timestamp:
                    return
                if int(snapshot.summary[TIMESTAMP_PROPERTY]) == mz_timestamp:
                    yield snapshot

    def staged(self, wap_id: str) -> SnapshotState | None:
        """Find the newest snapshot staged as `wap_id` on top of the current one; None if there is none."""
        found = [
            _as_state(snapshot)
            for snapshot in self.table.metadata.snapshots
            if snapshot.parent_snapshot_id == self.snapshot_id
        ]
        named = (snapshot for snapshot in found if snapshot.summary.get("wap.id") == wap_id)
        return max(named, key=lambda snapshot: snapshot.sequence_number, default=None)

    def branch(self, name: str) -> Iterator[SnapshotState]:
        """Yield the snapshots of a branch, newest first; none if it does not exist."""
        snapshot = self.table.snapshot_by_name(name)
        known = {snapshot.snapshot_id: snapshot for snapshot in self.table.metadata.snapshots}
        while snapshot is not None:
            yield _as_state(snapshot)
            parent = snapshot.parent_snapshot_id
            snapshot = known.get(parent) if parent is not None else None


def state_of(full_name: str, table: Table) -> TableState:
    """Return the state of `table`, which was loaded as `full_name`."""
    return TableState(
        full_name=full_name,
        format_version=table.metadata.format_version,
        schema=table.schema(),
        properties=table.properties,
        table=table,
    )


class DataTables:
    """The Iceberg tables with data of the catalog, read and changed without Spark.

    They may have any format version, and need not be lakehold's. Its own tables, `mz_catalog`, have a store: `lakehold.state`.

    Args:
        catalog: The lake's catalog.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._remembered: LRUCache[tuple[str, int], ColumnBounds | None] = LRUCache(MANIFESTS_REMEMBERED)
        self._last_bounds: LRUCache[tuple[UUID, int], ColumnBounds | None] = LRUCache(MANIFESTS_REMEMBERED)
        self._remembering = threading.Lock()

    def read_ahead(self, full_names: Collection[str]) -> None:
        """Read the metadata of several tables at once where that saves time, before each of them is loaded."""
        if isinstance(self._catalog, RememberingSqlCatalog):
            self._catalog.read_ahead(full_names)

    def table_state(self, full_name: str) -> TableState | None:
        """Load the table `full_name`; None if it does not exist.

        Raises:
            DefinitionError: Its metadata cannot be read.
            UpstreamUnavailable: The catalog does not answer.
        """
        try:
            table = read(self._catalog, full_name, lambda table: table)
        except NO_SUCH_TABLE:
            return None
        return state_of(full_name, table)

    def all_names(self) -> list[str]:
        """Return the full names of all tables of the catalog, also of those that other programs write.

        Raises:
            UpstreamUnavailable: The catalog does not answer.
        """
        return sorted(f"{space}.{name}" for space in self.namespaces() for name in self.names_in(space))

    def namespaces(self) -> list[str]:
        """Return the namespaces of the catalog, nested ones included. Raises as `all_names` does."""
        with answering("Listing its tables"):
            return sorted(".".join(parts) for parts in all_namespaces(self._catalog))

    def names_in(self, namespace: str) -> list[str]:
        """Return the names of the tables in a namespace. Raises as `all_names` does."""
        with answering("Listing its tables"):
            return sorted(name for *_, name in self._catalog.list_tables(namespace))

    def has_namespace(self, name: str) -> bool:
        """Return whether the namespace `name` exists."""
        return self._catalog.namespace_exists(name)

    def create_namespace(self, name: str) -> None:
        """Create the namespace `name`, unless it exists. Raises as `all_names` does."""
        with answering(f'Creating namespace "{name}"'):
            create_namespace(self._catalog, name)

    def views_in(self, namespace: str) -> list[str]:
        """Return the names of the views in a namespace. Raises as `all_names` does."""
        with answering("Listing its tables"):
            return sorted(views_in(self._catalog, namespace))

    def view_locations(self) -> dict[str, str | None]:
        """Return the location of each view by its full name; None if the view cannot be read. Raises as `all_names` does."""
        with answering("Listing its views"):
            return view_locations(self._catalog)

    def is_view(self, full_name: str) -> bool:
        """Return whether `full_name` is a view."""
        return is_view(self._catalog, full_name)

    def column_bounds(
        self, state: TableState, columns: Iterable[str], *, added_by: int | None = None
    ) -> dict[str, ColumnBounds | None]:
        """Return the bounds of `columns` over all live data files of `state`; None if they are unknown.

        The bounds contain all values, and may be wider: rows that a delete file hides still count, and long texts are cut.

        Args:
            state: The table.
            columns: Names of columns.
            added_by: Use only the manifests that this snapshot wrote: they contain all data files that it added. The snapshot may
                be a staged one.
        """
        wanted = {column: state.schema.find_field(column) for column in columns}
        snapshot = state.table.current_snapshot() if added_by is None else state.table.snapshot_by_id(added_by)
        manifests = snapshot.manifests(state.table.io) if snapshot else []
        with self._remembering:
            of_manifests = [
                self._manifest_bounds(state.table, manifest, wanted.values())
                for manifest in manifests
                if manifest.content == ManifestContent.DATA and added_by in (None, manifest.added_snapshot_id)
            ]
            found = {
                column: around_all(bounds[field.field_id] for bounds in of_manifests)
                for column, field in wanted.items()
            }
            if added_by is None:
                table = state.table.metadata.table_uuid
                self._last_bounds.update({(table, field.field_id): found[column] for column, field in wanted.items()})
        return found

    def last_column_bounds(self, state: TableState, columns: Iterable[str]) -> dict[str, ColumnBounds | None] | None:
        """Return the bounds of an earlier state of the table, as `column_bounds` read them last; None if it did not."""
        keys = {
            column: (state.table.metadata.table_uuid, state.schema.find_field(column).field_id) for column in columns
        }
        with self._remembering:
            known = all(key in self._last_bounds for key in keys.values())
            return {column: self._last_bounds[key] for column, key in keys.items()} if known else None

    def nulls_added(self, state: TableState, column: str, snapshot_id: int) -> int | None:
        """Count the nulls of `column` in the data files that a snapshot added; None if some file has no count.

        With it a direct load tests whether a staged append brought rows without a key, before it publishes them.

        The files are those of the manifests that the snapshot wrote. If Spark merged older manifests into these, their files
        count too: the number may be too high, never too low. It is 0 for an unknown snapshot.
        """
        field_id = state.schema.find_field(column).field_id
        snapshot = state.table.snapshot_by_id(snapshot_id)
        counts = [
            (entry.data_file.null_value_counts or {}).get(field_id)
            for manifest in (snapshot.manifests(state.table.io) if snapshot else [])
            if manifest.content == ManifestContent.DATA and manifest.added_snapshot_id == snapshot_id
            for entry in manifest.fetch_manifest_entry(state.table.io)
        ]
        return None if None in counts else sum(count for count in counts if count is not None)

    def make_branch(self, state: TableState, branch: str, removed: Callable[[str], bool]) -> None:
        """Make a branch at the current snapshot of `state`.

        Args:
            state: The table.
            branch: The name of the branch.
            removed: A predicate over the names of refs: those for which it is true are removed in the same commit.

        Raises:
            CommitConflict: The table has another current snapshot by now.
        """

        def plan(table: Table) -> RefChanges:
            if state.snapshot_id is None or table.metadata.current_snapshot_id != state.snapshot_id:
                raise _moved(state)
            gone = frozenset(name for name in table.metadata.refs if removed(name))
            return RefChanges(branches={branch: state.snapshot_id}, removed=gone)

        change_refs(self._catalog, state.full_name, plan)

    def fast_forward(
        self,
        state: TableState,
        snapshot_id: int,
        tag: str | None,
        branch: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Make `snapshot_id`, a snapshot on top of the current one of `state`, the table's current one.

        Args:
            state: The table.
            snapshot_id: The snapshot.
            tag: A tag to put on it in the same commit; None for none.
            branch: A branch to remove in the same commit; None for none.
            properties: Properties of the table to set in the same commit.

        Raises:
            CommitConflict: The table has another current snapshot by now.
        """

        def plan(table: Table) -> RefChanges | None:
            if table.metadata.current_snapshot_id == snapshot_id != state.snapshot_id:
                return None
            if table.metadata.current_snapshot_id != state.snapshot_id:
                raise _moved(state)
            tags = {} if tag is None else {tag: snapshot_id}
            main = snapshot_id if snapshot_id != state.snapshot_id else None
            removed = frozenset({branch} if branch is not None else ())
            return RefChanges(main=main, tags=tags, removed=removed, properties=properties or {})

        change_refs(self._catalog, state.full_name, plan)

    def add_columns(self, full_name: str, columns: Sequence[NestedField]) -> None:
        """Add columns with initial defaults: see `lakehold.iceberg.new_columns`."""
        add_columns(self._catalog, full_name, columns)

    def set_property(self, full_name: str, name: str, value: str | None) -> None:
        """Set a property of a table, or remove it: see `lakehold.iceberg.table_properties`."""
        set_property(self._catalog, full_name, name, value)

    def drop_table(self, full_name: str, *, purge: bool = True) -> bool:
        """Drop the table and, with `purge`, its files: see `lakehold.iceberg.dropped_tables`."""
        return drop(self._catalog, full_name, purge=purge)

    def drop_own(self, full_name: str, owner_property: str, owner: str) -> bool:
        """Drop the table unless it is another's: see `lakehold.iceberg.dropped_tables`."""
        return drop_own(self._catalog, full_name, owner_property, owner)

    def _manifest_bounds(
        self, table: Table, manifest: ManifestFile, fields: Collection[NestedField]
    ) -> dict[int, ColumnBounds | None]:
        path = manifest.manifest_path
        missing = [field for field in fields if (path, field.field_id) not in self._remembered]
        if missing:
            files = [entry.data_file for entry in manifest.fetch_manifest_entry(table.io)]
            for field in missing:
                self._remembered[path, field.field_id] = around_all(file_bounds(file, field) for file in files)
        return {field.field_id: self._remembered[path, field.field_id] for field in fields}


def _moved(state: TableState) -> CommitConflict:
    return CommitConflict(
        f'another writer moved "{state.full_name}" first', hint="Ingest again: nothing was published."
    )


def _as_state(snapshot: Snapshot) -> SnapshotState:
    return SnapshotState(
        snapshot_id=snapshot.snapshot_id,
        sequence_number=snapshot.sequence_number or 0,
        committed_at_ms=snapshot.timestamp_ms,
        summary=_summary(snapshot.summary),
    )


def _summary(summary: Any) -> dict[str, str]:
    return {"operation": summary.operation.value, **summary.additional_properties} if summary is not None else {}


def removed_rows(summary: Mapping[str, str]) -> int:
    """Count the rows that a snapshot removed: with their files, of which deletes had hidden some, or in files that stay."""
    counts = (
        summary.get(name, "0") for name in ("deleted-records", "added-position-deletes", "removed-position-deletes")
    )
    with_files, hidden, hidden_before = map(int, counts)
    return with_files + hidden - hidden_before
