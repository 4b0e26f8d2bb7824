"""Decodes records in one pass for several readers with different requests.

A *reader* here is a table, or several with equal needs, that takes the records of one topic (`ingest/shared_topic.py`). Texts
that several readers parse are parsed once. Of bare JSON, whose columns each reader declares, the columns of all readers are
parsed together, and each takes its own. A value that one of them cannot hold would then be an error of all, so records in error
are decoded again as each reader declares them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import DataFrame

from lakehold.ingest.decode.decoded import (
    COMMON,
    DEFAULT_MAX_RECORD_BYTES,
    Decoded,
    ReaderSql,
    Wanted,
    barrier,
    decode,
    parsed_and_checked,
)
from lakehold.ingest.decode.record_schemas import JsonDeclared
from lakehold.spark_sql import quoted, struct_of

_OWN = ("topic", "partition", "offset", "timestamp_ms", "headers", "key_bytes")
_ROWS = ("value", "before", "after")


@dataclass(frozen=True)
class DecodedTogether:
    """The records, decoded for several readers.

    Args:
        frame: The records, a column `reader0` and so on for each of `done`, and `value_bytes` of those in error.
        wanted: The requests of the readers.
        done: The requests that were decoded, each once: for declared columns those of all readers.
        results: The decoded parts for each of `done`.
        numbers: For each of `wanted` the index of the request in `done` that serves it.
        max_record_bytes: See `decode`.
    """

    frame: DataFrame
    wanted: Sequence[Wanted]
    done: Sequence[Wanted]
    results: Sequence[Decoded]
    numbers: Sequence[int]
    max_record_bytes: int

    def of(self, wanted: Wanted) -> Decoded | None:
        """Return the records for a reader as `decode` returns them, perhaps with more columns in rows; None for an unknown one.

        If a reader requests fewer columns than were decoded, Spark searches once for records in error.
        """
        if wanted not in self.wanted:
            return None
        number = self.numbers[self.wanted.index(wanted)]
        found, value = self.results[number], wanted.schemas.value
        if self.done[number] == wanted or not isinstance(value, JsonDeclared):
            return found
        names = [column.name for column in value.columns]
        found = replace(found, columns=tuple(column for column in found.columns if column.name in names))
        return replace(found, frame=self._decoded_again(number, wanted, names)) if number in self._in_error else found

    @cached_property
    def _in_error(self) -> frozenset[int]:
        """Return which of `done` have records in error."""
        counts = (f"count_if(reader{number}.error IS NOT NULL)" for number, _ in enumerate(self.done))
        found = self.frame.selectExpr(*counts).first()
        return frozenset(number for number, count in enumerate(found or ()) if count)

    def _decoded_again(self, number: int, wanted: Wanted, names: Sequence[str]) -> DataFrame:
        """Return the records with the columns `names` in rows, those in error decoded as `wanted`."""
        whole = self.results[number].frame
        right = whole.filter("error IS NULL").selectExpr(
            *(_with_columns(row, names) if row in _ROWS else row for row in whole.columns)
        )
        raw = self.frame.filter(f"reader{number}.error IS NOT NULL").selectExpr(
            *_OWN[:-1], "key_bytes AS key", "value_bytes AS value"
        )
        again = decode(raw, wanted, max_record_bytes=self.max_record_bytes)
        return right.union(again.frame)


def decode_together(
    raw: DataFrame,
    wanted: Sequence[Wanted],
    kept: Callable[[DataFrame], DataFrame] = lambda decoded: decoded,
    *,
    max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES,
) -> DecodedTogether:
    """Decode the raw records of one topic for several readers.

    Args:
        raw: As `decode` takes them.
        wanted: The requests of the readers.
        kept: Caches decoded records, so that reading them for the next reader does not decode them again.
        max_record_bytes: As for `decode`.

    Raises:
        TypeConflict: Two schemas of one reader give a column types that do not fit together.
    """
    done: list[Wanted] = []
    numbers = [_added(each, done) for each in wanted]
    readers = [ReaderSql.of(each, number, max_record_bytes) for number, each in enumerate(done)]
    results = {f"reader{number}": reader.result() for number, reader in enumerate(readers)}
    results["value_bytes"] = f"CASE WHEN {' OR '.join(reader.has_error for reader in readers)} THEN value END"
    frame = kept(parsed_and_checked(raw, readers).selectExpr(*COMMON, barrier(struct_of(results))))
    of_each = (frame.selectExpr(*_OWN, f"reader{number}.*") for number, _ in enumerate(readers))
    found = [reader.decoded(own) for reader, own in zip(readers, of_each, strict=True)]
    return DecodedTogether(frame, wanted, done, found, numbers, max_record_bytes)


def _added(wanted: Wanted, done: list[Wanted]) -> int:
    """Add a request to the first of `done` that can serve it, or to the end. Returns its index."""
    for number, other in enumerate(done):
        if (joined := _joined(other, wanted)) is not None:
            done[number] = joined
            return number
    done.append(wanted)
    return len(done) - 1


def _joined(one: Wanted, other: Wanted) -> Wanted | None:
    """Return the union of two requests that differ only in declared columns; None if they cannot be joined."""
    if one == other:
        return one
    value, of_other = one.schemas.value, other.schemas.value
    if not (
        isinstance(value, JsonDeclared) and isinstance(of_other, JsonDeclared) and value.columns and of_other.columns
    ):
        return None
    if (joined := value.joined(of_other)) is None:
        return None
    both = replace(one, schemas=replace(one.schemas, value=joined))
    return both if both == replace(other, schemas=replace(other.schemas, value=joined)) else None


def _with_columns(row: str, names: Sequence[str]) -> str:
    fields = struct_of({name: f"{row}.{quoted(name)}" for name in names})
    return f"CASE WHEN {row} IS NOT NULL THEN {fields} END AS {row}"
