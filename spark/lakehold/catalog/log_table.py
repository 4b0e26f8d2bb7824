"""Tables that only grow: history, appended a row at a time and kept in few files."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestEntry
from pyiceberg.table import Table

from lakehold.catalog.compare_and_set import Rewrite, change, live_entries, read
from lakehold.catalog.state_table import Row, current_entries, read_rows, to_arrow

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


def _with_row(table: Table, added: pa.Table) -> Rewrite:
    snapshot = table.current_snapshot()
    manifests = tuple(snapshot.manifests(table.io)) if snapshot else ()
    if len(manifests) < MANIFESTS_MOST:
        return Rewrite(rows=added, kept=manifests)
    entries = _by_age(live_entries(table, manifests))
    small = tuple(e for e in entries if e.data_file.record_count < SMALL_FILE_RECORDS)
    large = tuple(e for e in entries if e.data_file.record_count >= SMALL_FILE_RECORDS)
    gathered = to_arrow(table, read_rows(table, small))
    return Rewrite(rows=pa.concat_tables([gathered, added]), removed=small, existing=large)


def _by_age(entries: tuple[ManifestEntry, ...]) -> tuple[ManifestEntry, ...]:
    return tuple(sorted(entries, key=lambda e: e.sequence_number or 0))
