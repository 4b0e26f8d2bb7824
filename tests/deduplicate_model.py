"""The rules of `lakehold.ingest.deduplicate` in plain Python, one change after the other: the engine's reference model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.types import LongType, StringType

from lakehold.ingest.deduplicate.engine import Rule
from lakehold.ingest.deduplicate.statistics import BatchStatistics, WentBack
from lakehold.ingest.envelope.change_columns import SNAPSHOT_PHASES, Op, Phase
from lakehold.model.high_water_marks import HighWaterMarks, Position
from lakehold.tables.bounds import Bounds
from lakehold.tables.column_types import ColumnType

KEY = ("id", "part")
COLUMNS = (ColumnType("id", LongType()), ColumnType("part", StringType()), ColumnType("v", StringType()))


@dataclass
class Change:
    """A change of a table with the key `(id, part)` and the column `v`, and its outcome."""

    partition: int
    offset: int
    op: str | None
    position: Position | None
    source_ms: int | None
    phase: str
    kept: list[str] | None
    connector: str | None
    before_missing: bool
    error: str | None
    id: int | None
    part: str | None
    v: str | None
    counts: bool = False
    applied: bool = False
    giver: Change | None = None

    @property
    def key(self) -> tuple[int | None, str | None]:
        return (self.id, self.part)

    @property
    def changes_row(self) -> bool:
        return self.op in (Op.UPSERT, Op.DELETE)

    @property
    def in_snapshot(self) -> bool:
        return self.phase in SNAPSHOT_PHASES

    def lies_above(self, mark: Position | None) -> bool:
        if self.position is None or mark is None:
            return True
        return self.position > mark or (self.in_snapshot and self.position == mark)


def deduplicate(changes: Sequence[Change], rule: Rule, truncates: Sequence[Change], not_below: Position | None) -> None:
    """Set `counts`, `applied` and `giver` of each change."""
    candidates = [change for change in changes if is_candidate(change, changes, rule, truncates, not_below)]
    for key in {change.key for change in changes}:
        of_key = _in_order([change for change in changes if change.key == key], by_position=rule.by_position)
        highest: Position | None = None
        for change in of_key:
            change.applied, change.giver = False, None
            change.counts = change in candidates
            if rule.skips_applied:
                is_above_high_water_mark = change.counts and exceeds_high_water_mark(change, rule.high_water_marks)
                change.counts = is_above_high_water_mark and change.lies_above(highest)
                if is_above_high_water_mark and change.position is not None:
                    highest = max(change.position, highest or change.position)
        for last in [change for change in of_key if change.counts and change.changes_row][-1:]:
            last.applied = True
            if "v" in (last.kept or ()):
                before = of_key[: of_key.index(last)]
                knowing = [change for change in before if change.counts and "v" not in (change.kept or ())]
                last.giver = knowing[-1] if knowing else None


def _in_order(of_key: list[Change], *, by_position: bool) -> list[Change]:
    by_offset = sorted(of_key, key=lambda change: (change.offset, change.partition))
    if not by_position or len({change.partition for change in of_key}) == 1:
        return by_offset
    last: dict[int, Position] = {}
    positions = []
    for change in by_offset:
        if change.position is not None:
            last[change.partition] = change.position
        positions.append(last.get(change.partition, (-(2**63), 0, 0, 0)))
    return [change for _, change in sorted(zip(positions, by_offset, strict=True), key=lambda placed: placed[0])]


def is_candidate(
    change: Change, changes: Sequence[Change], rule: Rule, truncates: Sequence[Change], not_below: Position | None
) -> bool:
    """Return whether a change writes or deletes rows and follows the TRUNCATEs and the re-snapshot."""
    if not (change.changes_row or change.op == Op.TRUNCATE):
        return False
    last, at = _highest(truncates), change.position
    if at is not None:
        return (last is None or at > last) and (not_below is None or at >= not_below)
    of_partition = [other for other in changes if other.partition == change.partition]
    reached = _highest(other for other in of_partition if other.offset < change.offset)
    known = [p for p in (reached, rule.high_water_marks.positions.get(change.partition)) if p is not None]
    is_reached = all(limit is None or (known and max(known) >= limit) for limit in (last, not_below))
    return is_reached and not any(other in of_partition and other.offset > change.offset for other in truncates)


def exceeds_high_water_mark(change: Change, high_water_marks: HighWaterMarks) -> bool:
    is_of_older = (
        high_water_marks.snapshot is not None
        and change.in_snapshot
        and change.position is not None
        and change.position < high_water_marks.snapshot.position
    )
    return not is_of_older and change.lies_above(high_water_marks.positions.get(change.partition))


def statistics(changes: Sequence[Change], high_water_marks: HighWaterMarks) -> BatchStatistics:
    """Return the batch statistics of deduplicated changes."""
    counted, applied = [c for c in changes if c.counts], [c for c in changes if c.applied]
    errors = [c.error for c in changes if c.error is not None]
    missing = [c.offset for c in changes if c.before_missing]
    return BatchStatistics(
        records=len(changes),
        reasons=Counter(errors),
        upserts=sum(c.op == Op.UPSERT for c in applied),
        deletes=sum(c.op == Op.DELETE for c in applied),
        repeated=sum(c.changes_row and not c.counts for c in changes),
        null_key_parts=sum(None in c.key for c in applied),
        kept=sum(bool(c.kept) for c in applied),
        truncates=sum(c.op == Op.TRUNCATE for c in counted),
        streamed_position=_highest(c for c in counted if c.phase == Phase.STREAM),
        lowest_position=min((c.position for c in counted if c.position is not None), default=None),
        before_missing=len(missing),
        before_missing_offset=min(missing, default=None),
        connectors=frozenset(c.connector for c in changes if c.connector is not None),
        highest_positions=_highest_by_partition(counted),
        snapshot_position=_highest(c for c in counted if c.in_snapshot),
        snapshot_ends=_highest_by_partition([c for c in counted if c.phase == Phase.SNAPSHOT_END]),
        key_bounds={c.name: found for c in COLUMNS[:2] if (found := _bounds(c, [getattr(w, c.name) for w in applied]))},
        latest_ms=max(
            (c.source_ms for c in changes if c.position is not None and c.source_ms is not None), default=None
        ),
        went_back=went_back(changes, high_water_marks),
    )


def went_back(changes: Sequence[Change], high_water_marks: HighWaterMarks) -> WentBack | None:
    """Find the first change that shows an older log, with the changes of all partitions in the order of their offsets."""
    positions, latest_ms = dict(high_water_marks.positions), dict.fromkeys(range(9), high_water_marks.latest_ms)
    for change in sorted(changes, key=lambda change: (change.offset, change.partition)):
        partition, position, source_ms = change.partition, change.position, change.source_ms
        if position is None or source_ms is None:
            continue
        highest, latest = positions.get(partition, position), latest_ms[partition]
        is_comparable = change.in_snapshot or position[0] != position[1]
        if position < highest and is_comparable and latest is not None and source_ms > latest:
            return WentBack(partition, change.offset, position, highest)
        positions[partition] = max(position, highest)
        latest_ms[partition] = source_ms if latest is None else max(source_ms, latest)
    return None


def _bounds(column: ColumnType, values: Iterable[Any]) -> Bounds | None:
    known = [value for value in values if value is not None]
    return Bounds(column.type, min(known), max(known)) if known else None


def _highest(changes: Iterable[Change]) -> Position | None:
    return max((c.position for c in changes if c.position is not None), default=None)


def _highest_by_partition(changes: Sequence[Change]) -> dict[int, Position]:
    found = {p: _highest(c for c in changes if c.partition == p) for p in {c.partition for c in changes}}
    return {partition: position for partition, position in found.items() if position is not None}
