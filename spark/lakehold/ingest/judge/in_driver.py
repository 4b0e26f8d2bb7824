"""Judging in the driver: the rules of `lakehold.ingest.judge` over rows that are here already."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from lakehold.definitions import Envelope
from lakehold.ingest.changes import (
    BEFORE_MISSING,
    CONNECTOR,
    ERROR,
    KEPT,
    KEYLESS,
    OFFSET,
    OP,
    PARTITION,
    PHASE,
    POSITION,
    SOURCE_MS,
    Changes,
    Op,
    Phase,
)
from lakehold.ingest.decode.problems import UNKNOWN_SCHEMA
from lakehold.ingest.judge.arrivals import Arrivals, Bounds, WentBack, bounded
from lakehold.ingest.judge.judging import COUNTS, SNAPSHOT_PHASES, WINS, Judging
from lakehold.ingest.marks import Marks, Position

_LOWEST: Position = (-(2**63), 0, 0, 0)


@dataclass
class _Change:
    """One change, and what is found of it."""

    row: int
    key: tuple[object, ...]
    partition: int
    offset: int
    op: str | None
    position: Position | None
    phase: str
    source_ms: int | None
    counts: bool = False
    wins: bool = False

    @property
    def of_row(self) -> bool:
        return self.op in (Op.UPSERT, Op.DELETE)

    @property
    def in_snapshot(self) -> bool:
        return self.phase in SNAPSHOT_PHASES

    @property
    def is_comparable(self) -> bool:
        """Whether its place is known for sure: of a connector's first transaction the last commit is not."""
        return self.in_snapshot or (self.position is not None and self.position[0] != self.position[1])

    def lies_above(self, mark: Position | None) -> bool:
        """Whether it lies above `mark`, or on it as a row of the same snapshot; true where either is not known."""
        if self.position is None or mark is None:
            return True
        return self.position > mark or (self.in_snapshot and self.position == mark)


class InDriver(Judging):
    """Judges changes that are few.

    Args:
        changes: The changes; they are decoded by one Spark job.
        envelope: The table's envelope.
        marks: Of the table before the batch.
    """

    def __init__(self, changes: Changes, envelope: Envelope, marks: Marks) -> None:
        self._changes = changes
        self._envelope = envelope
        self._marks = marks
        self._rows: pa.Table = changes.frame.toArrow()
        self._kept: list[list[str] | None] = self._rows[KEPT].to_pylist()
        self._read = self._as_changes()

    def judge(self, *, after: Position | None = None, not_below: Position | None = None) -> Arrivals:
        """See `Judging`."""
        for key in self._by_key():
            highest: Position | None = None
            deciding: _Change | None = None
            for change in key:
                change.wins = False
                change.counts = self._is_candidate(change, after, not_below) and (
                    self._envelope is not Envelope.DEBEZIUM or self._is_unpassed(change)
                )
                position = change.position if change.counts else None
                if self._envelope is Envelope.DEBEZIUM:
                    change.counts = change.counts and change.lies_above(highest)
                if position is not None and (highest is None or position > highest):
                    highest = position
                if change.counts and change.of_row:
                    deciding = change
            if deciding is not None:
                deciding.wins = True
        return self._arrivals()

    def fill(self) -> None:
        """See `Judging`."""
        names = [c.name for c in self._changes.columns if c.name not in self._changes.key]
        taken: dict[str, list[int | None]] = {name: list(range(self._rows.num_rows)) for name in names}
        kept = [list(of_row or ()) for of_row in self._kept]
        for key in self._by_key():
            known: dict[str, int] = {}
            for change in key:
                unavailable = set(kept[change.row])
                if change.counts:
                    known.update((name, change.row) for name in names if name not in unavailable)
                for name in unavailable.intersection(names):
                    taken[name][change.row] = known.get(name)
                kept[change.row] = [name for name in kept[change.row] if name not in known]
        for name, rows in taken.items():
            at = self._rows.schema.get_field_index(name)
            self._rows = self._rows.set_column(
                at, self._rows.field(at), self._rows[name].take(pa.array(rows, pa.int64()))
            )
        at = self._rows.schema.get_field_index(KEPT)
        self._rows = self._rows.set_column(at, KEPT, pa.array(kept, pa.list_(pa.string())))

    def frame(self) -> DataFrame:
        """See `Judging`."""
        found = sorted(self._read, key=lambda change: change.row)
        judged = self._rows.append_column(COUNTS, pa.array([c.counts for c in found], pa.bool_()))
        judged = judged.append_column(WINS, pa.array([c.wins for c in found], pa.bool_()))
        schema = self._changes.frame.schema.add(COUNTS, "boolean").add(WINS, "boolean")
        return self._changes.frame.sparkSession.createDataFrame(judged, schema)

    def release(self) -> None:
        """Nothing is held."""

    def _as_changes(self) -> list[_Change]:
        def column(name: str) -> list[Any]:
            return list(self._rows[name].to_pylist())

        # Without a key all are errors, each of its own.
        names = self._changes.key or (PARTITION, OFFSET)
        keys = zip(*(map(_comparable, _values(self._rows[name])) for name in names), strict=True)
        internal = zip(*(column(n) for n in (PARTITION, OFFSET, OP, POSITION, PHASE, SOURCE_MS)), strict=True)
        found = [
            _Change(
                row,
                key,
                partition,
                offset,
                op,
                None if position is None else (position["a"], position["b"], position["c"], position["d"]),
                phase,
                source_ms,
            )
            for row, (key, (partition, offset, op, position, phase, source_ms)) in enumerate(
                zip(keys, internal, strict=True)
            )
        ]
        return sorted(found, key=lambda change: (change.offset, change.partition))

    def _by_key(self) -> Iterable[Sequence[_Change]]:
        by_key: defaultdict[tuple[object, ...], list[_Change]] = defaultdict(list)
        for change in self._read:
            by_key[change.key].append(change)
        if self._changes.by_position:
            return [_by_position(key) for key in by_key.values()]
        return by_key.values()

    def _is_candidate(self, change: _Change, after: Position | None, not_below: Position | None) -> bool:
        if not (change.of_row or change.op == Op.TRUNCATE):
            return False
        if change.position is None:
            return True
        return (after is None or change.position > after) and (not_below is None or change.position >= not_below)

    def _is_unpassed(self, change: _Change) -> bool:
        """Whether it lies above its partition's mark, and is not of a snapshot older than the one the table shows."""
        shown = self._marks.snapshot
        if (
            shown is not None
            and change.in_snapshot
            and change.position is not None
            and change.position < shown.position
        ):
            return False
        return change.lies_above(self._marks.passed.get(change.partition))

    def _arrivals(self) -> Arrivals:
        read = self._read
        counted = [c for c in read if c.counts]
        wins = [c for c in read if c.wins]
        before_missing = self._rows[BEFORE_MISSING].to_pylist()
        missing = [c.offset for c in read if before_missing[c.row]]
        errors = self._rows[ERROR].drop_null().to_pylist()
        return Arrivals(
            records=len(read),
            errors=len(errors),
            unknown_schemas=errors.count(UNKNOWN_SCHEMA),
            keyless=errors.count(KEYLESS),
            upserts=sum(c.op == Op.UPSERT for c in wins),
            deletes=sum(c.op == Op.DELETE for c in wins),
            repeated=sum(c.of_row and not c.counts for c in read),
            null_key_parts=sum(None in c.key for c in wins),
            kept=sum(bool(self._kept[c.row]) for c in wins),
            truncates=sum(c.op == Op.TRUNCATE for c in counted),
            truncate_position=_highest(c for c in counted if c.op == Op.TRUNCATE),
            streamed_position=_highest(c for c in counted if c.phase == Phase.STREAM),
            lowest_position=min((c.position for c in counted if c.position is not None), default=None),
            before_missing=len(missing),
            before_missing_offset=min(missing, default=None),
            connectors=frozenset(self._rows[CONNECTOR].drop_null().to_pylist()),
            passed=_highest_by_partition(counted),
            snapshot_position=_highest(c for c in counted if c.in_snapshot),
            snapshot_ends=_highest_by_partition(c for c in counted if c.phase == Phase.SNAPSHOT_END),
            key_bounds=self._key_bounds(wins),
            latest_ms=max(
                (c.source_ms for c in read if c.position is not None and c.source_ms is not None), default=None
            ),
            went_back=self._went_back(),
        )

    def _went_back(self) -> WentBack | None:
        passed = dict(self._marks.passed)
        latest_ms: dict[int, int] = {}
        for change in self._read:
            position, source_ms, partition = change.position, change.source_ms, change.partition
            if position is None or source_ms is None:
                continue
            highest = passed.get(partition, position)
            known_ms = [ms for ms in (self._marks.latest_ms, latest_ms.get(partition)) if ms is not None]
            if position < highest and change.is_comparable and known_ms and source_ms > max(known_ms):
                return WentBack(partition, change.offset, position, highest)
            passed[partition] = max(position, highest)
            latest_ms[partition] = max(source_ms, latest_ms.get(partition, source_ms))
        return None

    def _key_bounds(self, wins: Sequence[_Change]) -> dict[str, Bounds]:
        found = {}
        for column in bounded(self._changes):
            at = self._changes.key.index(column.name)
            values: list[Any] = [c.key[at] for c in wins if c.key[at] is not None]
            if values:
                found[column.name] = Bounds(column.type, min(values), max(values))
        return found


def _by_position(changes: Sequence[_Change]) -> Sequence[_Change]:
    """Changes of one key by their positions where they are in several partitions; one without stands behind its neighbour."""
    if len({change.partition for change in changes}) == 1:
        return changes
    last: dict[int, Position] = {}
    placed: list[tuple[Position, _Change]] = []
    for change in changes:
        if change.position is not None:
            last[change.partition] = change.position
        placed.append((last.get(change.partition, _LOWEST), change))
    return [change for _, change in sorted(placed, key=lambda each: each[0])]


def _highest(changes: Iterable[_Change]) -> Position | None:
    return max((c.position for c in changes if c.position is not None), default=None)


def _highest_by_partition(changes: Iterable[_Change]) -> dict[int, Position]:
    found: dict[int, Position] = {}
    for change in changes:
        if change.position is not None:
            found[change.partition] = max(change.position, found.get(change.partition, change.position))
    return found


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values in Python, dates and timestamps as whole numbers: Python has no years before 1 or after 9999."""
    return list(column.cast(_with_numbers(column.type)).to_pylist())


def _with_numbers(kind: pa.DataType) -> pa.DataType:
    """Return a type with whole numbers instead of dates and timestamps, however deep they are nested."""
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_numbers(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_numbers(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_with_numbers(kind.key_type), _with_numbers(kind.item_type))
    return kind


def _comparable(value: object) -> object:
    """A key's value as Python can look it up, equal where Spark groups it: NaN with NaN, nested values by content."""
    if isinstance(value, list | dict) or value != value:  # noqa: PLR0124 - that is what NaN is
        return repr(value)
    return value
