"""What a batch brought to one table: all that deciding how to apply it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.types import DateType, DecimalType, IcebergType, IntegerType, LongType, StringType

from lakehold.ingest.changes import Changes
from lakehold.ingest.decode.types import ColumnType
from lakehold.ingest.marks import Position

BOUNDED_TYPES = (IntegerType, LongType, StringType, DateType, DecimalType)
"""Key types whose smallest and largest value are worth a predicate: exact as SQL literals and kept by Iceberg per file."""


@dataclass(frozen=True)
class Bounds:
    """The smallest and largest value of a key column among the deciding changes, both inclusive; dates as days since 1970."""

    type: IcebergType
    lowest: Any
    highest: Any


@dataclass(frozen=True)
class WentBack:
    """A change that stands before one of its partition that came earlier, though it was committed later.

    Changes that are sent again are no newer than what was seen; so the database's log has gone back.
    """

    partition: int
    offset: int
    position: Position
    passed: Position


@dataclass(frozen=True)
class Arrivals:
    """Counts and extremes over the changes of one batch to one table."""

    records: int
    errors: int
    unknown_schemas: int
    keyless: int
    upserts: int
    deletes: int
    repeated: int
    null_key_parts: int
    kept: int
    truncates: int
    truncate_position: Position | None
    streamed_position: Position | None
    lowest_position: Position | None
    before_missing: int
    before_missing_offset: int | None
    connectors: frozenset[str]
    passed: Mapping[int, Position]
    snapshot_position: Position | None
    snapshot_ends: Mapping[int, Position]
    """By partition that has the last row of a snapshot, where that snapshot stands."""
    key_bounds: Mapping[str, Bounds]
    latest_ms: int | None = None
    went_back: WentBack | None = None

    @property
    def changes_rows(self) -> bool:
        """Whether any row of the table may change."""
        return self.upserts + self.deletes + self.truncates > 0


def bounded(changes: Changes) -> list[ColumnType]:
    """The key columns that have bounds."""
    return [c for c in changes.columns if c.name in changes.key and isinstance(c.type, BOUNDED_TYPES)]
