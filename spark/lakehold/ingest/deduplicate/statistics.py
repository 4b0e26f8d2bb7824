"""Batch statistics: the counts and extremes that decide how a batch is applied to its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.types import DateType, DecimalType, IcebergType, IntegerType, LongType, StringType

from lakehold.model.high_water_marks import Position

BOUNDED_TYPES = (IntegerType, LongType, StringType, DateType, DecimalType)
"""Key types whose smallest and largest value are worth a predicate: exact as SQL literals and kept by Iceberg per file."""


@dataclass(frozen=True)
class Bounds:
    """The smallest and largest value of a key column among the winners, both inclusive; dates as days since 1970."""

    type: IcebergType
    lowest: Any
    highest: Any


@dataclass(frozen=True)
class WentBack:
    """A change below an earlier one of its partition, though it was committed later.

    Changes that are sent again are no newer than those seen before; so the database's log has gone back.
    """

    partition: int
    offset: int
    position: Position
    passed: Position


@dataclass(frozen=True)
class BatchStatistics:
    """The counts and extremes over the changes of one batch to one table.

    `passed` has the highest position applied per partition; `snapshot_ends`, by partition with the last row of a connector
    snapshot, the position of that snapshot.
    """

    records: int
    errors: int
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
    key_bounds: Mapping[str, Bounds]
    latest_ms: int | None = None
    went_back: WentBack | None = None

    @property
    def changes_rows(self) -> bool:
        """Return whether any row of the table may change."""
        return self.upserts + self.deletes + self.truncates > 0
