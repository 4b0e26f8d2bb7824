"""Tables of history: appended a row at a time, kept in few files, and forgotten when it is old."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestEntry
from pyiceberg.table import Table

from lakehold.iceberg.attempts import read
from lakehold.iceberg.column_bounds import file_bounds
from lakehold.iceberg.compare_and_set import Rewrite, change, live_entries
from lakehold.state.state_table import Row, current_entries, read_rows, to_arrow

MANIFESTS_MOST = 50
"""Appends after which the next one gathers the small files into one."""

SMALL_FILE_RECORDS = 10_000
"""Records below which a file is gathered; larger ones stay, so that gathering costs the same for ever."""


class LogTable:
    """A table to which rows are appended.

    Args:
        catalog: The lake's catalog.
        name: Full name of the table, which exists.
    """

    def __init__(self, catalog: Catalog, name: str) -> None:
        self._catalog = catalog
        self._name = name

    def rows(self) -> tuple[Row, ...]:
        """All rows, in the order in which they were appended."""
        return read(self._catalog, self._name, lambda table: read_rows(table, _by_age(current_entries(table))))

    def append(self, row: Row) -> None:
        """Add `row` in one commit. An append conflicts with nothing, but after an open outcome it may stand twice.

        Raises:
            CommitConflict: Others came first each time.
        """
        change(self._catalog, self._name, lambda table: _with_row(table, to_arrow(table, [row])))

    def forget(self, column: str, before_ms: int, keeps: Callable[[Row], bool] = lambda _: False) -> int:
        """Take away rows whose `column` is before a time (exclusive); returns how many.

        Of a large file all rows go or none, so that it costs little: some thousands stay until the others of their file are old.

        Args:
            column: Epoch milliseconds, about in the order in which rows were appended.
            before_ms: What is older goes.
            keeps: Tells of an old row whether it stays.

        Raises:
            CommitConflict: Others came first each time.
        """
        gone = 0

        def plan(table: Table) -> Rewrite | None:
            nonlocal gone
            entries = _by_age(current_entries(table))
            left = {
                e.data_file.file_path: [r for r in read_rows(table, [e]) if r[column] >= before_ms or keeps(r)]
                for e in entries
                if _may_be_old(table, e, column, before_ms)
            }
            rewrite = _with_rows_left(table, entries, left)
            gone = sum(e.data_file.record_count for e in rewrite.removed) - rewrite.rows.num_rows
            return rewrite if gone else None

        change(self._catalog, self._name, plan)
        return gone

    def count_old(self, column: str, before_ms: int, keeps: Callable[[Row], bool] = lambda _: False) -> int:
        """How many rows `forget` would take away at most."""
        return sum(row[column] < before_ms and not keeps(row) for row in self.rows())


def _may_be_old(table: Table, entry: ManifestEntry, column: str, before_ms: int) -> bool:
    bounds = file_bounds(entry.data_file, table.schema().find_field(column))
    return bounds is None or bounds.lower is None or bool(bounds.lower < before_ms)


def _with_rows_left(table: Table, entries: Sequence[ManifestEntry], left: Mapping[str, list[Row]]) -> Rewrite:
    """Files of which no row is left go. Where a small one has some rows left, all small ones become one, so that order stays."""
    rows_of = {e.data_file.file_path: left.get(e.data_file.file_path) for e in entries}
    emptied = [e for e in entries if rows_of[e.data_file.file_path] == []]
    staying = [e for e in entries if rows_of[e.data_file.file_path] != []]
    small = [e for e in staying if _is_small(e)]
    if all(len(rows_of[e.data_file.file_path] or ()) in (0, e.data_file.record_count) for e in small):
        small = []
    gathered = [row for e in small for row in rows_of[e.data_file.file_path] or read_rows(table, [e])]
    existing = tuple(e for e in staying if e not in small)
    return Rewrite(rows=to_arrow(table, gathered), removed=(*emptied, *small), existing=existing)


def _is_small(entry: ManifestEntry) -> bool:
    return bool(entry.data_file.record_count < SMALL_FILE_RECORDS)


def _with_row(table: Table, added: pa.Table) -> Rewrite:
    snapshot = table.current_snapshot()
    manifests = tuple(snapshot.manifests(table.io)) if snapshot else ()
    if len(manifests) < MANIFESTS_MOST:
        return Rewrite(rows=added, kept=manifests)
    entries = _by_age(live_entries(table, manifests))
    small = tuple(e for e in entries if _is_small(e))
    large = tuple(e for e in entries if not _is_small(e))
    gathered = to_arrow(table, read_rows(table, small))
    return Rewrite(rows=pa.concat_tables([gathered, added]), removed=small, existing=large)


def _by_age(entries: tuple[ManifestEntry, ...]) -> tuple[ManifestEntry, ...]:
    return tuple(sorted(entries, key=lambda e: e.sequence_number or 0))
