"""Shapes diffs as a SUBSCRIBE requests, and adds progress rows: rows that only say how far the output is complete."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np
import pyarrow as pa

from lakehold.errors import DefinitionError
from lakehold.spark_sql import literal, quoted
from lakehold.subscribe.envelope import debezium, upsert
from lakehold.subscribe.output_batches import OutputChunk
from lakehold.subscribe.resume_token import Fingerprint, ResumeToken
from lakehold.subscribe.sorting import Sorting, SortItem
from lakehold.subscribe.statement import (
    DebeziumEnvelope,
    HistoryEnvelope,
    OrderedWithin,
    OrderItem,
    OutputShape,
    Raw,
    UpsertEnvelope,
    find_column,
)

_PROGRESSED = pa.field("mz_progressed", pa.bool_())
_RESUME = pa.field("mz_resume", pa.string())


@dataclass(frozen=True)
class Output:
    """The rows that a reader gets.

    Args:
        shape: The requested output option.
        row: The columns of the relation.
        progress: Whether to add progress rows.
        up_to_ms: Exclusive upper bound of progress rows; None for no bound.
        tokens_of: Makes the fingerprint of the output's columns, if progress rows have the tokens that continue after them.

    Attributes:
        key: Zero-based positions of an envelope's key among the columns of the relation; empty without an envelope.
        sorting: The order within a timestamp, in which the relation has to return its diffs.
    """

    shape: OutputShape
    row: pa.Schema
    progress: bool
    up_to_ms: int | None
    tokens_of: Callable[[pa.Schema], Fingerprint] | None = None
    key: tuple[int, ...] = field(init=False)
    sorting: Sorting = field(init=False)

    def __post_init__(self) -> None:
        """Resolve the columns that the shape names.

        Raises:
            DefinitionError: A column does not exist or is ambiguous.
        """
        names = self.row.names
        key: tuple[int, ...] = ()
        sorting = Sorting()
        match self.shape:
            case UpsertEnvelope(columns) | DebeziumEnvelope(columns):
                key = tuple(find_column(name, names) for name in columns)
                leads = key == tuple(range(len(key)))  # then rows in their normal order are in key order
                sorting = Sorting() if leads else Sorting(first=key)
            case OrderedWithin(items):
                sorting = Sorting(items=tuple(_sort_item(item, names) for item in items))
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "sorting", sorting)

    @property
    def diffs(self) -> pa.Schema:
        """Return the columns of the relation's diffs."""
        return pa.schema([pa.field("mz_timestamp", pa.int64()), pa.field("mz_diff", pa.int64()), *self.row])

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the output."""
        return self._with_progressed(self._empty(self.diffs)).schema

    def _empty(self, diffs: pa.Schema) -> pa.Table:
        none = diffs.empty_table()
        if not self.key:
            return none
        values = [f for place, f in enumerate(self.row) if place not in self.key]
        if isinstance(self.shape, DebeziumEnvelope):
            values = [f.with_name(side + f.name) for side in ("before_", "after_") for f in values]
        first = [pa.field("mz_timestamp", pa.int64()), pa.field("mz_state", pa.string())]
        return pa.schema([*first, *(self.row.field(place) for place in self.key), *values]).empty_table()

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the output's columns."""
        return tuple(self.schema.names)

    def of(self, diffs: Iterable[pa.Table]) -> Iterator[OutputChunk]:
        """Convert diffs to output: one chunk per timestamp of each table.

        With PROGRESS a progress row follows the last chunk of a timestamp.
        """
        last: int | None = None
        for table in self.shaped(diffs):
            for timestamp, rows in _by_timestamp(table):
                if last is not None and timestamp > last:
                    yield from self.progressed(last, last + 1)
                yield OutputChunk(timestamp, self._with_progressed(rows))
                last = timestamp
        if last is not None:
            yield from self.progressed(last, last + 1)

    def empty_batch(self, mz_timestamp: int) -> OutputChunk:
        """Return an empty batch at `mz_timestamp`."""
        return OutputChunk(mz_timestamp, self.schema.empty_table())

    def progressed(self, batch_ms: int, mz_timestamp: int, read_below_ms: int | None = None) -> Iterator[OutputChunk]:
        """Yield a progress row, if the statement requests them: no row with a timestamp below `mz_timestamp` will follow.

        Args:
            batch_ms: The timestamp of the batch in which the reader gets the progress row.
            mz_timestamp: The timestamp of the progress row.
            read_below_ms: The position of its token, by default `mz_timestamp`; 0: nothing was read from which one could go on.
        """
        if self.progress and (self.up_to_ms is None or mz_timestamp < self.up_to_ms):
            # By position: the row may have columns of the same names.
            given: list[object] = [mz_timestamp, True]
            position_ms = mz_timestamp if read_below_ms is None else read_below_ms
            if self.tokens_of is not None and position_ms:
                given.append(str(ResumeToken(position_ms, self.tokens_of(self.schema))))
            row = [pa.array([value], field.type) for value, field in itertools.zip_longest(given, self.schema)]
            yield OutputChunk(batch_ms, pa.Table.from_arrays(row, schema=self.schema))

    def shaped(self, diffs: Iterable[pa.Table]) -> Iterable[pa.Table]:
        """Convert diffs to rows of the output, without the column of progress."""
        match self.shape:
            case Raw() | OrderedWithin():
                return diffs
            case UpsertEnvelope():
                return upsert(diffs, self.key)
            case DebeziumEnvelope():
                return debezium(diffs, self.key)
            case HistoryEnvelope():
                raise TypeError(self.shape)  # `Subscribing.open` refuses it.
            case other:
                assert_never(other)

    def _with_progressed(self, rows: pa.Table) -> pa.Table:
        if not self.progress:
            return rows
        rows = rows.add_column(1, _PROGRESSED, pa.array(np.zeros(rows.num_rows, np.bool_)))
        return rows if self.tokens_of is None else rows.add_column(2, _RESUME, pa.nulls(rows.num_rows, _RESUME.type))


def _by_timestamp(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Split `rows`, which are sorted by timestamp, into the rows of each timestamp."""
    timestamps = rows.column(0).to_numpy()
    begins = [*np.flatnonzero(np.diff(timestamps, prepend=-1)), len(timestamps)]
    for begin, end in itertools.pairwise(begins):
        yield int(timestamps[begin]), rows.slice(begin, end - begin)


def _sort_item(item: OrderItem, names: Sequence[str]) -> SortItem:
    descending = item.direction.startswith("DESC")
    nulls_first = item.direction.endswith("FIRST") or (not item.direction.endswith("LAST") and not descending)
    place = item.ordinal - 1 if item.ordinal is not None else _plain_column(item.expression, names)
    if place is not None and place > len(names):
        raise DefinitionError(
            f"ORDER BY position {item.ordinal} is not in the output",
            code="column-missing",
            detail=f"1 is mz_diff; the columns are 2 to {len(names) + 1}.",
        )
    _refuse_quoted_columns(item, names)
    return SortItem(place, item.expression, descending, nulls_first)


def _refuse_quoted_columns(item: OrderItem, names: Sequence[str]) -> None:
    """Refuse a column in double quotes inside an expression: Spark would sort by the text, which all rows share."""
    known = {name.lower() for name in ("mz_diff", *names)}
    named = next((text for text in item.texts if text.lower() in known), None)
    if named is not None:
        raise DefinitionError(
            f"WITHIN TIMESTAMP ORDER BY cannot sort by {item.expression}",
            code="order-unfit",
            detail=f'"{named}" is a text there, and the output has a column of that name.',
            hint=f"For the column write {quoted(named)}, for the text {literal(named)}.",
        )


def _plain_column(expression: str, names: Sequence[str]) -> int | None:
    """Find the position of the column that an expression names, 0 for `mz_diff`; None for any other expression."""
    name = expression.strip()
    if name[:1] == "`" == name[-1:]:
        name = name[1:-1].replace("``", "`")
    known = ["mz_diff", *names]
    found = [place for place, column in enumerate(known) if column.lower() == name.lower()]
    exact = [place for place in found if known[place] == name]
    found = exact or found
    if len(found) > 1:
        raise DefinitionError(
            f'there are {len(found)} columns "{name}"',
            code="column-ambiguous",
            detail=f"Columns: {', '.join(known)}.",
            hint=f"Order by position: {', '.join(str(place + 1) for place in found)}.",
        )
    return found[0] if found else None
