"""Digests of single rows of either side, selected by bucket or by key, and their comparison. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from lakehold.verify.digest import BUCKETS, Numbers, buckets_of, row_digests

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WHOLE = re.compile(r"-?[0-9]{1,18}")

ROWS_DDL = "key bigint, row bigint, version bigint, columns array<bigint>, names array<string>"
"""The columns of `Selection.rows`, in Spark SQL: `key`, `row` and `columns` are digests, `names` the texts of the key."""

_SCHEMA = pa.schema(
    [
        ("key", pa.int64()),
        ("row", pa.int64()),
        ("version", pa.int64()),
        ("columns", pa.list_(pa.int64())),
        ("names", pa.list_(pa.string())),
    ]
)


@dataclass(frozen=True)
class Selection:
    """A choice of rows by their keys.

    Attributes:
        buckets: The buckets of keys; None: all.
        keys: The digests of keys, sorted; None: all of the buckets.
        with_columns: Whether each row also gives the digests of its columns.
    """

    buckets: np.ndarray[Any, np.dtype[np.int64]] | None = None
    keys: Numbers | None = None
    with_columns: bool = False

    def rows(
        self, digests: Sequence[Numbers], names: Sequence[pa.Array], versions: Numbers | None = None
    ) -> pa.RecordBatch:
        """Return the chosen rows: the digests of their keys, of whole rows and of columns, and the texts of their keys.

        Args:
            digests: The digests of all columns, the key's first.
            names: The texts of the key's columns.
            versions: A number for each row that changes whenever the row is written; None: unknown, 0 for all.
        """
        key = row_digests(digests[: len(names)])
        places = np.flatnonzero(self._is_chosen(key))
        chosen = [column[places] for column in digests]
        shown = np.stack(chosen, axis=1) if self.with_columns else np.zeros((len(places), 0), np.uint64)
        parts = [
            pa.array(key[places].view(np.int64)),
            pa.array(row_digests(chosen).view(np.int64)),
            pa.array((np.zeros(len(key), np.uint64) if versions is None else versions)[places].view(np.int64)),
            _lists(pa.array(shown.ravel().view(np.int64)), len(places), shown.shape[1]),
            _lists(_interleaved([name.take(pa.array(places)) for name in names]), len(places), len(names)),
        ]
        return pa.RecordBatch.from_arrays(parts, schema=_SCHEMA)

    def _is_chosen(self, key: Numbers) -> np.ndarray[Any, np.dtype[np.bool_]]:
        chosen = np.ones(len(key), np.bool_)
        if self.buckets is not None:
            is_wanted = np.zeros(BUCKETS, np.bool_)
            is_wanted[self.buckets] = True
            chosen &= is_wanted[buckets_of(key)]
        if self.keys is not None:
            places = np.searchsorted(self.keys, key)
            places[places == len(self.keys)] = 0
            chosen &= (self.keys[places] == key) if len(self.keys) else False
        return chosen


@dataclass(frozen=True)
class FirstKey:
    """Values of a key's first column, to find rows by them without reading the whole table.

    Attributes:
        column: Name of the column in the database.
        type: `bigint`, `text` or `uuid`.
        values: The texts of the values.
    """

    column: str
    type: str
    values: tuple[str, ...]


def can_be_sought(text: str, kind: str) -> bool:
    """Return whether a text is a value of a type of `FirstKey`: rows that somebody else wrote into the lake may have others."""
    if kind == "uuid":
        return _UUID.fullmatch(text) is not None
    return kind == "text" or (kind == "bigint" and _WHOLE.fullmatch(text) is not None)


@dataclass(frozen=True)
class Row:
    """A row of one side: the digests of the whole row and of its columns, its version if known, and the texts of its key."""

    digest: int
    version: int = 0
    columns: tuple[int, ...] = field(default=(), repr=False)
    names: tuple[str | None, ...] = ()


def differing_keys(database: Sequence[pa.RecordBatch], lake: Sequence[pa.RecordBatch]) -> Numbers:
    """Return the digests of keys, sorted, whose rows differ between the sides, in values or in number."""
    sides = [*((batch, 1) for batch in database), *((batch, -1) for batch in lake)]
    if not sides:
        return np.zeros(0, np.uint64)
    keys, rows = (np.concatenate([batch[name].to_numpy() for batch, _ in sides]) for name in ("key", "row"))
    weights = np.concatenate([np.full(batch.num_rows, weight) for batch, weight in sides])
    order = np.lexsort((rows, keys))
    keys, rows, weights = keys[order], rows[order], weights[order]
    begins = np.flatnonzero(np.r_[True, (keys[1:] != keys[:-1]) | (rows[1:] != rows[:-1])][: len(keys)])
    if not len(begins):
        return np.zeros(0, np.uint64)
    return np.unique(keys[begins][np.add.reduceat(weights, begins) != 0].view(np.uint64))


def by_key(batches: Sequence[pa.RecordBatch], keys: Numbers) -> dict[int, tuple[Row, ...]]:
    """Return the rows of some keys by the digest of their key; a side may have several rows of one key."""
    found: dict[int, list[Row]] = defaultdict(list)
    for whole in batches:
        batch = whole.filter(pa.array(np.isin(whole["key"].to_numpy().view(np.uint64), keys)))
        for key, digest, version, columns, names in zip(
            *(batch[name].to_pylist() for name in _SCHEMA.names), strict=True
        ):
            found[key].append(Row(digest, version, tuple(columns), tuple(names)))
    return {key: tuple(rows) for key, rows in found.items()}


def key_texts(columns: Sequence[pa.Array]) -> list[pa.Array]:
    """Return the texts of the columns of a key."""
    return [_texts(column) for column in columns]


def _texts(column: pa.Array) -> pa.Array:
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return pa.array([None if value is None else value.hex() for value in column.to_pylist()], pa.string())
    if pa.types.is_nested(column.type):
        return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
    return column.cast(pa.string())


def _lists(items: pa.Array, count: int, width: int) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32) * width), items)


def _interleaved(columns: Sequence[pa.Array]) -> pa.Array:
    if len(columns) == 1:
        return columns[0]
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return pa.array([value for row in rows for value in row], pa.string())
