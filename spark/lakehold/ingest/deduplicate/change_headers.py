"""Headers: the facts that deduplication needs about each change, without its row. Pure: NumPy arrays from an Arrow table.

A header takes about 100 bytes and its key's values. Keys are compared by value: two keys are never mistaken for one. Keys have
single values (`lakehold.ingest.envelope.keys`), equal where Spark groups them: null with null, NaN with NaN, -0.0 with 0.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import IcebergType

from lakehold.ingest.deduplicate.positions import Booleans, Integers, RankedPositions
from lakehold.ingest.envelope.change_columns import (
    BEFORE_MISSING,
    CONNECTOR,
    ERROR,
    KEPT,
    OFFSET,
    OP,
    PARTITION,
    PHASE,
    POSITION,
    SNAPSHOT_PHASES,
    SOURCE_MS,
    Op,
    Phase,
)
from lakehold.ingest.envelope.position import MYSQL
from lakehold.tables.bounds import BOUNDED_TYPES

if TYPE_CHECKING:
    from lakehold.ingest.envelope.change_columns import Changes
    from lakehold.tables.column_types import ColumnType

_BEFORE_ANY_ATTEMPT = -(2**62)
"""Added to `source.ts_ms` it tells attempts at one snapshot apart: below any streamed change, and later for later attempts.

A connector asks the database for this time once for each table and attempt, before it reads rows. MySQL and MariaDB answer in
whole seconds.
"""

INTERNAL = (PARTITION, OFFSET, OP, POSITION, SOURCE_MS, PHASE, KEPT, CONNECTOR, BEFORE_MISSING, ERROR)
"""The columns of changes that headers need besides the key's."""


@dataclass(frozen=True)
class KeptColumns:
    """Columns whose values Debezium did not send, so that the stored row keeps its own: an entry per change and column.

    Args:
        rows: `(k,)`: The change, ascending.
        codes: `(k,)`: The column, an index into `names`.
        names: Names of columns.
    """

    rows: Integers
    codes: Integers
    names: tuple[str, ...]

    def lists(self, selected: Booleans, length: int) -> pa.ListArray:
        """List, for each of `length` changes, the names of its columns among the `selected` entries, shape `(k,)`."""
        offsets = np.concatenate(([0], np.cumsum(np.bincount(self.rows[selected], minlength=length))))
        names = pa.array(self.names, pa.string()).take(pa.array(self.codes[selected]))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), names)


@dataclass(frozen=True)
class Headers:
    """The changes of one batch to one table: arrays of shape `(n,)`, in the order of the Arrow table.

    Args:
        partition: Partition of the message.
        offset: Offset of the message.
        is_multiset: Whether the table has no key: its rows are a multiset.
        key: Numbers from 0, equal for equal keys. Changes of a table without a key have one each.
        key_has_null: Some part of the key is null.
        bounded: The key's columns of `BOUNDED_TYPES` and their values, dates as days since 1970.
        positions: The changes' positions in the upstream's log.
        is_upsert: The change writes a row.
        is_delete: It deletes one.
        is_truncate: It deletes all rows.
        in_snapshot: It is a row of a snapshot that the connector took by itself, rather than of one that a signal requested.
        starts_snapshot: It is marked as the first row of the table in such a snapshot.
        ends_snapshot: It is the last row of the table in such a snapshot.
        is_streamed: It is a row of neither kind of snapshot.
        source_ms: When it was committed upstream, epoch milliseconds.
        has_source_ms: Whether `source_ms` is known.
        before_missing: It is an update without the row before it.
        kept: The columns whose values it lacks.
        errors: How many changes cannot be applied, by the code of their error.
        connectors: The kinds of the connectors that sent the changes, as Debezium names them: `postgresql`.
    """

    partition: Integers
    offset: Integers
    is_multiset: bool
    key: Integers
    key_has_null: Booleans
    bounded: Mapping[str, tuple[IcebergType, pa.Array]]
    positions: RankedPositions
    is_upsert: Booleans
    is_delete: Booleans
    is_truncate: Booleans
    in_snapshot: Booleans
    starts_snapshot: Booleans
    ends_snapshot: Booleans
    is_streamed: Booleans
    source_ms: Integers
    has_source_ms: Booleans
    before_missing: Booleans
    kept: KeptColumns
    errors: Mapping[str, int]
    connectors: frozenset[str]

    def __len__(self) -> int:
        return len(self.offset)

    @property
    def changes_row(self) -> Booleans:
        """Mark changes that write or delete a row."""
        return self.is_upsert | self.is_delete

    @classmethod
    def of(cls, table: pa.Table, changes: Changes) -> Headers:
        """Read headers.

        Args:
            table: The columns `INTERNAL` and the key's; others are ignored.
            changes: The changes, which name the key's columns.
        """
        keys = {name: _whole(table[name]) for name in changes.key}
        position = _whole(table[POSITION])
        in_snapshot, source_ms = _is_any(table[PHASE], *SNAPSHOT_PHASES), _integers(table[SOURCE_MS])
        a, b, c, d = map(_integers, position.flatten())
        if changes.is_multiset:
            c = np.where(in_snapshot & _is_any(table[CONNECTOR], *MYSQL), _BEFORE_ANY_ATTEMPT + source_ms, c)
        reasons = _whole(table[ERROR]).drop_null().value_counts().to_pylist()
        return cls(
            partition=_integers(table[PARTITION]),
            offset=_integers(table[OFFSET]),
            is_multiset=changes.is_multiset,
            key=_key_numbers(keys.values(), table.num_rows),
            key_has_null=np.logical_or.reduce([np.zeros(table.num_rows, bool), *map(_is_null, keys.values())]),
            bounded={c.name: (c.type, _in_order(keys[c.name])) for c in bounded(changes)},
            positions=RankedPositions.of([a, b, c, d], ~_is_null(position)),
            is_upsert=_is_any(table[OP], Op.UPSERT),
            is_delete=_is_any(table[OP], Op.DELETE),
            is_truncate=_is_any(table[OP], Op.TRUNCATE),
            in_snapshot=in_snapshot,
            starts_snapshot=_is_any(table[PHASE], Phase.SNAPSHOT_START),
            ends_snapshot=_is_any(table[PHASE], Phase.SNAPSHOT_END),
            is_streamed=_is_any(table[PHASE], Phase.STREAM),
            source_ms=source_ms,
            has_source_ms=~_is_null(table[SOURCE_MS]),
            before_missing=_booleans(pc.fill_null(_whole(table[BEFORE_MISSING]), False)),
            kept=_kept(_whole(table[KEPT])),
            errors={reason["values"]: reason["counts"] for reason in reasons},
            connectors=frozenset(table[CONNECTOR].unique().drop_null().to_pylist()),
        )


def bounded(changes: Changes) -> list[ColumnType]:
    """Return the key columns of `BOUNDED_TYPES`: by their bounds in a batch, a write skips files."""
    return [c for c in changes.columns if c.name in changes.key and isinstance(c.type, BOUNDED_TYPES)]


def _key_numbers(columns: Iterable[pa.Array], length: int) -> Integers:
    numbers: Integers | None = None
    for column in columns:
        values = _numbers(_comparable(column))
        both = None if numbers is None else numbers * (values.max(initial=0) + 1) + values
        numbers = values if both is None else _numbers(pa.array(both))
    return np.arange(length) if numbers is None else numbers


def _numbers(column: pa.Array) -> Integers:
    """Enumerate values from 0: equal values, and all nulls, share a number."""
    return _integers(column.dictionary_encode(null_encoding="encode").indices)


def _comparable(column: pa.Array) -> pa.Array:
    """Make floats equal bit by bit where Spark groups them: Arrow distinguishes NaNs, and -0.0 from 0.0."""
    if not pa.types.is_floating(column.type):
        return column
    values = column.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0
    values[np.isnan(values)] = np.nan
    return pa.array(values.view(np.int64), mask=_is_null(column))


def _in_order(column: pa.Array) -> pa.Array:
    """Convert dates to days: Python has none before year 1 or after 9999."""
    return column.cast(pa.int32()) if pa.types.is_date32(column.type) else column


def _kept(column: pa.Array) -> KeptColumns:
    names = column.flatten().dictionary_encode()
    return KeptColumns(
        _integers(pc.list_parent_indices(column)), _integers(names.indices), tuple(names.dictionary.to_pylist())
    )


def _is_any(column: pa.ChunkedArray, *values: str) -> Booleans:
    return _booleans(pc.is_in(_whole(column), value_set=pa.array(values, column.type)))


def _is_null(column: pa.ChunkedArray | pa.Array) -> Booleans:
    return _booleans(_whole(column).is_null())


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _integers(column: pa.ChunkedArray | pa.Array) -> Integers:
    """Return whole numbers, with 0 for null."""
    values: Integers = pc.fill_null(_whole(column), 0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return values


def _booleans(column: pa.Array) -> Booleans:
    values: Booleans = column.to_numpy(zero_copy_only=False).astype(bool, copy=False)
    return values
