"""Decoding records in one pass for readers who want different things of them.

What several of them parse is parsed once. Of bare JSON, of which each reader declares the columns that it wants, the columns of
all are read at once, and each takes its own. A value that one of them cannot hold would be an error of all then, so records in
error are decoded again as each reader declares them.
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
    Shape,
    Wanted,
    barrier,
    decode,
    judged,
)
from lakehold.ingest.decode.schemas import JsonDeclared, PartSchemas
from lakehold.spark_sql import quoted, struct_of

_OWN = ("topic", "partition", "offset", "timestamp_ms", "headers", "key_bytes")
_ROWS = ("value", "before", "after")


@dataclass(frozen=True)
class DecodedTogether:
    """Records decoded for several readers.

    Args:
        frame: The records, a column `reader0` and so on for each of `done`, and `value_bytes` of those in error.
        wanted: What the readers want.
        done: What was decoded for them, each once: of declared columns those of all readers.
        results: What there is of each of `done`.
        max_record_bytes: See `decode`.
    """

    frame: DataFrame
    wanted: tuple[Wanted, ...]
    done: tuple[Wanted, ...]
    results: tuple[Decoded, ...]
    max_record_bytes: int

    def of(self, wanted: Wanted) -> Decoded | None:
        """The records for a reader, as `decode` gives them, perhaps with more columns in rows; None for one that is unknown.

        What asks for fewer columns than were decoded makes Spark look for records in error, once.
        """
        if wanted not in self.wanted:
            return None
        number = self.done.index(_with_columns_of_all(wanted, self.wanted))
        found = self.results[number]
        if self.done[number] == wanted:
            return found
        names = _declared(wanted)
        columns = tuple(column for column in found.columns if column.name in names)
        if number not in self._in_error:
            return replace(found, columns=columns)
        return replace(found, columns=columns, frame=self._decoded_again(number, wanted, names))

    @cached_property
    def _in_error(self) -> frozenset[int]:
        """Which of `done` have records in error."""
        counts = (f"count_if(reader{number}.error IS NOT NULL)" for number, _ in enumerate(self.done))
        found = self.frame.selectExpr(*counts).first()
        return frozenset(number for number, count in enumerate(found or ()) if count)

    def _decoded_again(self, number: int, wanted: Wanted, names: Sequence[str]) -> DataFrame:
        """The records with the columns `names` in rows, those in error decoded as `wanted`."""
        whole = self.results[number].frame
        right = whole.filter("error IS NULL").selectExpr(
            *(_with_columns(row, names) if row in _ROWS else row for row in whole.columns)
        )
        raw = self.frame.filter(f"reader{number}.error IS NOT NULL").selectExpr(
            *_OWN[:-1], "key_bytes AS key", "value_bytes AS value"
        )
        again = decode(
            raw, wanted.schemas, wanted.shape, has_heads=wanted.has_heads, max_record_bytes=self.max_record_bytes
        )
        return right.union(again.frame)


def decode_together(
    raw: DataFrame,
    wanted: Sequence[Wanted],
    kept: Callable[[DataFrame], DataFrame] = lambda decoded: decoded,
    *,
    max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES,
) -> DecodedTogether:
    """Decodes the raw records of one topic for several readers.

    Args:
        raw: As `decode` takes them.
        wanted: By each of them.
        kept: Gives decoded records once more, so that reading them for the next of the readers does not decode them again.
        max_record_bytes: As for `decode`.

    Raises:
        TypeConflict: Two of the schemas that one of them knows give a column types that do not fit together.
    """
    done: list[Wanted] = []
    for each in wanted:
        if (with_all := _with_columns_of_all(each, wanted)) not in done:
            done.append(with_all)
    readers = [ReaderSql.of(each, number, max_record_bytes) for number, each in enumerate(done)]
    results = {f"reader{number}": reader.result() for number, reader in enumerate(readers)}
    results["value_bytes"] = f"CASE WHEN {' OR '.join(reader.has_error for reader in readers)} THEN value END"
    frame = kept(judged(raw, readers).selectExpr(*COMMON, barrier(struct_of(results))))
    of_each = (frame.selectExpr(*_OWN, f"reader{number}.*") for number, _ in enumerate(readers))
    found = tuple(reader.decoded(own) for reader, own in zip(readers, of_each, strict=True))
    return DecodedTogether(frame, tuple(wanted), tuple(done), found, max_record_bytes)


def _with_columns_of_all(wanted: Wanted, all_: Sequence[Wanted]) -> Wanted:
    """The same with the declared columns of all who can be given the same rows."""
    for value in _joined(wanted.shape, all_):
        if wanted.schemas.value == value or _has(value, wanted.schemas.value):
            return replace(wanted, schemas=replace(wanted.schemas, value=value))
    return wanted


def _joined(shape: Shape, all_: Sequence[Wanted]) -> list[JsonDeclared]:
    """The columns that readers of one shape declare, those together that can be."""
    found: list[JsonDeclared] = []
    for reader in all_:
        value = reader.schemas.value
        if reader.shape is not shape or not isinstance(value, JsonDeclared) or not value.columns:
            continue
        for number, others in enumerate(found):
            if (both := others.joined(value)) is not None:
                found[number] = both
                break
        else:
            found.append(value)
    return found


def _has(all_: JsonDeclared, own: PartSchemas) -> bool:
    return isinstance(own, JsonDeclared) and bool(own.columns) and all_.joined(own) == all_


def _declared(wanted: Wanted) -> list[str]:
    value = wanted.schemas.value
    return [column.name for column in value.columns] if isinstance(value, JsonDeclared) else []


def _with_columns(row: str, names: Sequence[str]) -> str:
    fields = struct_of({name: f"{row}.{quoted(name)}" for name in names})
    return f"CASE WHEN {row} IS NOT NULL THEN {fields} END AS {row}"
