"""Reads that take long, as rows of `mz_catalog.mz_reads`: what maintenance must leave them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.catalog import Catalog

from lakehold.state.state_table import Row, StateValues
from lakehold.times import now_ms

READS_TABLE = "mz_catalog.mz_reads"


@dataclass(frozen=True)
class LongRead:
    """A read under way: it needs `tables` from `from_ms` on (inclusive), and counts until `until_ms` (exclusive)."""

    read_id: str
    tables: tuple[str, ...]
    from_ms: int
    until_ms: int


class LongReadStore:
    """The long reads of the lake behind `catalog`.

    Args:
        catalog: The lake's catalog.
        clock: Epoch milliseconds: a read that was not renewed in time is gone.
    """

    def __init__(self, catalog: Catalog, clock: Callable[[], int] = now_ms) -> None:
        self._reads = StateValues(catalog, READS_TABLE, _from_row, _to_row)
        self._clock = clock

    def reads(self) -> tuple[LongRead, ...]:
        """Those that are under way now."""
        return tuple(read for read in self._reads.values() if read.until_ms > self._clock())

    def put(self, read: LongRead) -> None:
        """Add a read, or put it where the one of its id is."""
        self._replace(read.read_id, [read])

    def remove(self, read_id: str) -> None:
        """Take a read away; nothing when it is not there."""
        self._replace(read_id, [])

    def _replace(self, read_id: str, with_reads: list[LongRead]) -> None:
        def apply(reads: tuple[LongRead, ...]) -> list[LongRead]:
            others = [read for read in reads if read.read_id != read_id]
            return [read for read in (*others, *with_reads) if read.until_ms > self._clock()]

        self._reads.change(apply)


def _from_row(row: Row) -> LongRead:
    return LongRead(row["id"], tuple(json.loads(row["tables"])), row["from_ms"], row["until_ms"])


def _to_row(read: LongRead) -> Row:
    return {"id": read.read_id, "tables": json.dumps(read.tables), "from_ms": read.from_ms, "until_ms": read.until_ms}
