"""The state of a lake in tables of `mz_catalog`: each change is a compare-and-set on a table's current snapshot.

Read `store.py` first: it has the interfaces that are implemented here. The tables are small, and PyIceberg reads and writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Generic

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestEntry
from pyiceberg.table import Table

from lakehold.iceberg.attempts import MALFORMED, read, unreadable
from lakehold.iceberg.column_bounds import file_bounds
from lakehold.iceberg.compare_and_set import Rewrite, change, live_entries
from lakehold.iceberg.whole_files import read_whole
from lakehold.state.rows import Row, Rows, Value
from lakehold.state.store import Log, State, Store

MANIFESTS_MOST = 50
"""Manifests after which the next append compacts the small files into one."""

SMALL_FILE_RECORDS = 10_000
"""Records below which a file is compacted; larger ones stay, so that the cost of compaction does not grow."""

_READ_AT_ONCE = 16
"""Files of a log that are read side by side: an object store takes tens of milliseconds for each."""


class IcebergState(State):
    """The state of the lake behind `catalog`, whose tables exist."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def store(self, rows: Rows[Value]) -> Store[Value]:
        """Return the store of a table."""
        return _IcebergStore(self._catalog, rows)

    def log(self, rows: Rows[Value]) -> Log[Value]:
        """Return the log that a table is."""
        return _IcebergLog(self._catalog, rows)


@dataclass(frozen=True)
class _Snapshot(Generic[Value]):
    """The content of one snapshot. A snapshot never changes, so the last one is not read again."""

    snapshot_id: int | None
    entries: tuple[ManifestEntry, ...]
    rows: tuple[Row, ...]
    values: tuple[Value, ...]


class _IcebergStore(Store[Value]):
    """A table whose every change rewrites all of its rows in one commit.

    The newest snapshot is one file, so that the cost of reading does not grow with the number of changes.
    """

    def __init__(self, catalog: Catalog, rows: Rows[Value]) -> None:
        self._catalog = catalog
        self._rows = rows
        self._seen: _Snapshot[Value] = _Snapshot(None, (), (), ())

    def values(self) -> tuple[Value, ...]:
        return read(self._catalog, self._rows.table, self._newest).values

    def change(self, apply: Callable[[tuple[Value, ...]], Iterable[Value]]) -> tuple[Value, ...]:
        before = self._seen

        def plan(table: Table) -> Rewrite | None:
            nonlocal before
            before = self._newest(table)
            rows = _to_arrow(table, map(self._rows.to_row, apply(before.values)))
            return None if tuple(rows.to_pylist()) == before.rows else Rewrite(rows=rows, removed=before.entries)

        written = change(self._catalog, self._rows.table, plan)
        if written is None:
            return before.values
        return self._see(written.snapshot.snapshot_id, written.added, written.rows.to_pylist()).values

    def _newest(self, table: Table) -> _Snapshot[Value]:
        snapshot, seen = table.current_snapshot(), self._seen
        if snapshot is not None and snapshot.snapshot_id == seen.snapshot_id:
            return seen
        entries = _current_entries(table)
        return self._see(snapshot.snapshot_id if snapshot else None, entries, _read_rows(table, entries))

    def _see(
        self, snapshot_id: int | None, entries: tuple[ManifestEntry, ...], rows: Sequence[Row]
    ) -> _Snapshot[Value]:
        seen = _Snapshot(snapshot_id, entries, tuple(rows), tuple(map(self._rows.from_row, rows)))
        self._seen = seen
        return seen


@dataclass(frozen=True)
class _SeenFiles:
    """The files of one snapshot of a log, and the rows of those that are small, by path. None of it ever changes."""

    snapshot_id: int | None
    entries: tuple[ManifestEntry, ...]
    rows: Mapping[str, pa.Table]


class _IcebergLog(Log[Value]):
    """A table of few files to which rows are appended; what was seen of them is not read again."""

    def __init__(self, catalog: Catalog, rows: Rows[Value]) -> None:
        self._catalog = catalog
        self._rows = rows
        self._seen = _SeenFiles(None, (), {})

    def values(self) -> tuple[Value, ...]:
        rows = read(self._catalog, self._rows.table, lambda table: self._read(table, self._entries(table)))
        return tuple(map(self._rows.from_row, rows))

    def recent(self, field: str, from_ms: int) -> tuple[Value, ...]:
        def rows(table: Table) -> list[Row]:
            young = [e for e in self._entries(table) if _may_be_young(table, e, field, from_ms)]
            return [row for row in self._read(table, young) if row[field] >= from_ms]

        return tuple(map(self._rows.from_row, read(self._catalog, self._rows.table, rows)))

    def _entries(self, table: Table) -> tuple[ManifestEntry, ...]:
        """Return the files of the current snapshot in the order in which they were appended."""
        snapshot, seen = table.current_snapshot(), self._seen
        if snapshot is None or snapshot.snapshot_id != seen.snapshot_id:
            entries = _by_age(_current_entries(table))
            rows = {_path(e): seen.rows[_path(e)] for e in entries if _path(e) in seen.rows}
            self._seen = seen = _SeenFiles(snapshot.snapshot_id if snapshot else None, entries, rows)
        return seen.entries

    def _read(self, table: Table, entries: Sequence[ManifestEntry]) -> list[Row]:
        """Read the rows of some files, and remember those of small ones."""
        seen = self._seen
        unread = [e for e in entries if _path(e) not in seen.rows]
        rows = {
            **seen.rows,
            **dict(zip(map(_path, unread), _read_files(table, unread, self._rows.columns), strict=True)),
        }
        small = {path: found for path, found in rows.items() if found.num_rows < SMALL_FILE_RECORDS}
        self._seen = replace(seen, rows=small)
        return list(chain.from_iterable(rows[_path(e)].to_pylist() for e in entries))

    def append(self, value: Value) -> None:
        row = self._rows.to_row(value)
        change(self._catalog, self._rows.table, lambda table: _with_row(table, _to_arrow(table, [row])))

    def forget(
        self, field: str, before_ms: int, keeps: Callable[[Value], bool] = lambda _: False, *, dry_run: bool = False
    ) -> int:
        if dry_run:
            return sum(getattr(value, field) < before_ms and not keeps(value) for value in self.values())
        gone = 0

        def stays(row: Row) -> bool:
            return row[field] >= before_ms or keeps(self._rows.from_row(row))

        def plan(table: Table) -> Rewrite | None:
            nonlocal gone
            entries = self._entries(table)
            left = {
                e.data_file.file_path: [row for row in _read_rows(table, [e]) if stays(row)]
                for e in entries
                if _may_be_old(table, e, field, before_ms)
            }
            rewrite = _with_rows_left(table, entries, left)
            gone = sum(e.data_file.record_count for e in rewrite.removed) - rewrite.rows.num_rows
            return rewrite if gone else None

        change(self._catalog, self._rows.table, plan)
        return gone


@contextmanager
def _damage_named(table: Table) -> Iterator[None]:
    """Raise `DefinitionError` if a file of a table is damaged, such as one that a power cut left empty."""
    try:
        yield
    except OSError:
        raise
    except MALFORMED as error:
        raise unreadable(".".join(table.name()), error) from error


def _current_entries(table: Table) -> tuple[ManifestEntry, ...]:
    """Return the live data files of the current snapshot."""
    snapshot = table.current_snapshot()
    with _damage_named(table):
        return live_entries(table, snapshot.manifests(table.io)) if snapshot else ()


def _read_rows(table: Table, entries: Iterable[ManifestEntry]) -> list[Row]:
    """Read the rows of the files of `entries`, file after file, with all columns."""
    return list(chain.from_iterable(rows.to_pylist() for rows in _read_files(table, entries)))


def _read_files(
    table: Table, entries: Iterable[ManifestEntry], columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """Read files side by side, with all columns, or those of `columns` that a file has: system tables never rename one."""
    with ThreadPoolExecutor(_READ_AT_ONCE, thread_name_prefix="lakehold-state") as threads:
        yield from threads.map(partial(_read_file, table, columns), entries)


def _read_file(table: Table, columns: Sequence[str] | None, entry: ManifestEntry) -> pa.Table:
    with _damage_named(table), table.io.new_input(_path(entry)).open() as file:
        # Read whole: Parquet's reader would make a request for each part of a file that is small.
        # `pq.read_table` and Arrow's filters would import pandas.
        return pq.ParquetFile(read_whole(file)).read(columns)


def _path(entry: ManifestEntry) -> str:
    return str(entry.data_file.file_path)


def _to_arrow(table: Table, rows: Iterable[Row]) -> pa.Table:
    """Convert `rows` to Arrow data in the table's schema; a column that a row lacks is null."""
    return pa.Table.from_pylist(list(rows), schema=table.schema().as_arrow())


def _may_be_old(table: Table, entry: ManifestEntry, column: str, before_ms: int) -> bool:
    bounds = file_bounds(entry.data_file, table.schema().find_field(column))
    return bounds is None or bounds.lower is None or bool(bounds.lower < before_ms)


def _may_be_young(table: Table, entry: ManifestEntry, column: str, from_ms: int) -> bool:
    bounds = file_bounds(entry.data_file, table.schema().find_field(column))
    return bounds is None or bounds.upper is None or bool(bounds.upper >= from_ms)


def _with_rows_left(table: Table, entries: Sequence[ManifestEntry], left: Mapping[str, list[Row]]) -> Rewrite:
    """Plan a rewrite that removes files without remaining rows.

    If a small file keeps only some of its rows, all small files become one, which keeps the order.
    """
    rows_of = {e.data_file.file_path: left.get(e.data_file.file_path) for e in entries}
    emptied = [e for e in entries if rows_of[e.data_file.file_path] == []]
    staying = [e for e in entries if rows_of[e.data_file.file_path] != []]
    small = [e for e in staying if _is_small(e)]
    if all(len(rows_of[e.data_file.file_path] or ()) in (0, e.data_file.record_count) for e in small):
        small = []
    gathered = [row for e in small for row in rows_of[e.data_file.file_path] or _read_rows(table, [e])]
    existing = tuple(e for e in staying if e not in small)
    return Rewrite(rows=_to_arrow(table, gathered), removed=(*emptied, *small), existing=existing)


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
    gathered = _to_arrow(table, _read_rows(table, small))
    return Rewrite(rows=pa.concat_tables([gathered, added]), removed=small, existing=large)


def _by_age(entries: tuple[ManifestEntry, ...]) -> tuple[ManifestEntry, ...]:
    return tuple(sorted(entries, key=lambda e: e.sequence_number or 0))
