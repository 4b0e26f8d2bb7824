"""Small tables held as one file of rows: the current state of something, changed as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestEntry
from pyiceberg.table import Table

from lakehold.iceberg.attempts import read
from lakehold.iceberg.compare_and_set import Rewrite, change, live_entries

Row = Mapping[str, Any]
"""A row of a system table: column name to value; a column added later may be missing."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class _Snapshot:
    """What one snapshot holds. A snapshot never changes, so the last one seen need not be read again."""

    snapshot_id: int | None
    entries: tuple[ManifestEntry, ...]
    rows: tuple[Row, ...]


class StateTable:
    """A table whose every change rewrites all of its rows in one commit.

    Reading costs the same however many changes there were: the newest snapshot is one file.

    Args:
        catalog: The lake's catalog.
        name: Full name of the table, which exists.
    """

    def __init__(self, catalog: Catalog, name: str) -> None:
        self._catalog = catalog
        self._name = name
        self._seen = _Snapshot(None, (), ())

    def rows(self) -> tuple[Row, ...]:
        """All rows now, in the order in which they were written."""
        return read(self._catalog, self._name, self._newest).rows

    def change(self, apply: Callable[[tuple[Row, ...]], Iterable[Row]]) -> tuple[Row, ...]:
        """Replace the rows by `apply(rows)` in one commit and return them; equal rows commit nothing.

        `apply` runs again on the newest rows when another writer came between; it raises to refuse.

        Raises:
            CommitConflict: Others came first each time.
        """
        before = self._seen

        def plan(table: Table) -> Rewrite | None:
            nonlocal before
            before = self._newest(table)
            rows = to_arrow(table, apply(before.rows))
            return None if tuple(rows.to_pylist()) == before.rows else Rewrite(rows=rows, removed=before.entries)

        written = change(self._catalog, self._name, plan)
        if written is None:
            return before.rows
        after = _Snapshot(written.snapshot.snapshot_id, written.added, tuple(written.rows.to_pylist()))
        self._seen = after
        return after.rows

    def _newest(self, table: Table) -> _Snapshot:
        snapshot = table.current_snapshot()
        seen = self._seen
        if snapshot is None or snapshot.snapshot_id != seen.snapshot_id:
            entries = current_entries(table)
            seen = _Snapshot(snapshot.snapshot_id if snapshot else None, entries, read_rows(table, entries))
            self._seen = seen
        return seen


class StateValues(Generic[Value]):
    """A `StateTable` whose rows are values of a program: holds, roles, readers.

    Args:
        catalog: The lake's catalog.
        name: Full name of the table, which exists.
        from_row: The value that a row keeps.
        to_row: Its inverse.
    """

    def __init__(
        self, catalog: Catalog, name: str, from_row: Callable[[Row], Value], to_row: Callable[[Value], Row]
    ) -> None:
        self._table = StateTable(catalog, name)
        self._from_row = from_row
        self._to_row = to_row
        self._seen: tuple[tuple[Row, ...], tuple[Value, ...]] = (), ()

    def values(self) -> tuple[Value, ...]:
        """All of them now; the same objects as long as nobody changes the table."""
        return self._of(self._table.rows())

    def change(self, apply: Callable[[tuple[Value, ...]], Iterable[Value]]) -> tuple[Value, ...]:
        """Replace them by `apply(values)` in one commit and return them, as `StateTable.change` does."""
        return self._of(self._table.change(lambda rows: map(self._to_row, apply(self._of(rows)))))

    def _of(self, rows: tuple[Row, ...]) -> tuple[Value, ...]:
        known, values = self._seen
        if rows is not known:
            values = tuple(map(self._from_row, rows))
            self._seen = rows, values
        return values


def current_entries(table: Table) -> tuple[ManifestEntry, ...]:
    """The live data files of the current snapshot."""
    snapshot = table.current_snapshot()
    return live_entries(table, snapshot.manifests(table.io)) if snapshot else ()


def read_rows(table: Table, entries: Iterable[ManifestEntry]) -> tuple[Row, ...]:
    """The rows of the files of `entries`, file after file; columns by name, as system tables never rename one."""
    rows: list[Row] = []
    for entry in entries:
        with table.io.new_input(entry.data_file.file_path).open() as file:
            rows += pq.read_table(file).to_pylist()
    return tuple(rows)


def to_arrow(table: Table, rows: Iterable[Row]) -> pa.Table:
    """`rows` as Arrow data in the table's schema; a column that a row lacks is null."""
    return pa.Table.from_pylist(list(rows), schema=table.schema().as_arrow())
