"""Batch statistics: the counts and extremes that decide how a batch is applied to its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakehold.model.high_water_marks import Position
from lakehold.tables.bounds import Bounds


@dataclass(frozen=True)
class WentBack:
    """A change which shows that the database's log went back.

    Its position is lower than the high-water mark, or than an earlier one in the batch, of its partition. But it was committed
    later than all changes before it. A repeat also has a lower position, but no later commit time.

    Attributes:
        partition: Partition of the change.
        offset: Offset of the change.
        position: Position of the change.
        earlier: The higher position that was seen before.
    """

    partition: int
    offset: int
    position: Position
    earlier: Position


@dataclass(frozen=True)
class BatchStatistics:
    """The counts and extremes over the changes of one batch to one table.

    A change *counts* if it is neither a repeat nor an error; the last one of its key is *applied* (`deduplicate/engine.py`).

    Attributes:
        records: All changes, one for each message.
        reasons: How many changes cannot be applied, by the code of their error.
        upserts: Applied changes that write a row.
        deletes: Applied changes that delete a row.
        repeated: Repeats: upserts and deletes that do not count. Errors and TRUNCATEs are not among them.
        null_key_parts: Applied changes whose key has a null.
        kept: Applied changes that lack a value, because Debezium omits it when it did not change.
        truncates: TRUNCATEs that count.
        streamed_position: The highest position of a streamed change that counts.
        lowest_position: The lowest position of a change that counts.
        before_missing: Updates without the row before, repeats among them; in a table without a key all events that lack a row.
        before_missing_offset: The lowest offset of such an event.
        connectors: The kinds of the connectors that sent the changes, as Debezium names them: `postgresql`.
        highest_positions: By partition, the highest position that counts.
        snapshot_position: The highest position of a connector snapshot whose rows count.
        snapshot_ends: By partition that has the last row of a connector snapshot, the position of that snapshot.
        key_bounds: By key column, the smallest and largest value of applied changes.
        latest_ms: The latest commit time of changes with a position, repeats among them.
        went_back: A change which shows that the upstream log went back.
        restarted_offset: The lowest offset at which rows without a key begin a snapshot again that they, or the table, have, so
            that nothing distinguishes the two; None: there is none.
    """

    records: int
    reasons: Mapping[str, int]
    upserts: int
    deletes: int
    repeated: int
    null_key_parts: int
    kept: int
    truncates: int
    streamed_position: Position | None
    lowest_position: Position | None
    before_missing: int
    before_missing_offset: int | None
    connectors: frozenset[str]
    highest_positions: Mapping[int, Position]
    snapshot_position: Position | None
    snapshot_ends: Mapping[int, Position]
    key_bounds: Mapping[str, Bounds]
    latest_ms: int | None = None
    went_back: WentBack | None = None
    restarted_offset: int | None = None

    @property
    def errors(self) -> int:
        """Return how many changes cannot be applied."""
        return sum(self.reasons.values())

    @property
    def changes_rows(self) -> bool:
        """Return whether any row of the table may change."""
        return self.upserts + self.deletes + self.truncates > 0
