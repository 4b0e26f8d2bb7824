"""From the bytes of a topic's records to typed columns, in one pass of built-in functions.

Each stage is one projection: parse every part with the schema it was written with; convert it to the columns of the
table, which are the same for all versions of the schema; say what is wrong; put it together. Each parser call stands in
one projection and is then referred to by name, so that it runs once per record. The last stage is a generator, because
no filter of a later stage is pushed through one: below it Spark would run the parsers again to decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from pyspark.sql import DataFrame

from lakehold.ingest.decode import debezium
from lakehold.ingest.decode.connect_schema import LeftOut
from lakehold.ingest.decode.parsers import AvroParser, CallForAll, calls_for_all
from lakehold.ingest.decode.parts import is_small_value, part
from lakehold.ingest.decode.problems import Decoding, problem
from lakehold.ingest.decode.schemas import TopicSchemas, declared_envelope
from lakehold.ingest.decode.structures import parsing, structure
from lakehold.ingest.decode.types import ColumnType
from lakehold.spark_sql import struct_of

DEFAULT_MAX_RECORD_BYTES = 64 * 1024 * 1024

COMMON = ("topic", "partition", "offset", "timestamp_ms", "headers", "key AS key_bytes")
"""What is of the records themselves in the result, whoever reads them."""


class Shape(StrEnum):
    """What a topic's values are."""

    DEBEZIUM = "debezium"
    FLAT = "flat"


@dataclass(frozen=True)
class Decoded:
    """Decoded records.

    `frame` has `topic, partition, offset, timestamp_ms, headers, key_bytes, key struct<key_columns>, error, error_detail` and

    - DEBEZIUM: `before struct<columns>, after struct<columns>, unavailable array<string>` (columns of `after` that
      hold Debezium's placeholder for a value it does not have, null if none); and, of records with errors as well, `op, source
      struct<connector, snapshot, sequence, lsn, file, pos, row, ts_ms>, transaction struct<id, total_order, collection_order>,
      is_readable` (false of a value that exists and that no schema reads);
    - FLAT: `value struct<columns>`.

    A tombstone (null value) has null everywhere and no error. A record with an error has no value; it has its key if
    that could be read. Errors: `oversized, empty-value, undecodable-key, undecodable-value, unknown-schema,
    unsupported-schema, not-debezium, not-null-violated`. Structures without columns (no schema given, or none usable)
    are of type `void`; those of records that were decoded for several readers may have columns of the others besides.

    Reading `frame` needs the JVM options of `lakehold.session`: without them Avro believes a corrupt record that says
    it is 2 GiB long, and takes the JVM down.

    `keys` has the names of the key's columns, once for each way that keys were written. `left_out` names what keys and rows have
    and no table can hold. `lacks_before`: a schema of the values has no `before`. `tells_case`: a record whose fields have
    names that differ in case only is decoded; from Avro it is an error, because Spark finds fields of Avro whatever their case.
    """

    frame: DataFrame
    key_columns: tuple[ColumnType, ...]
    columns: tuple[ColumnType, ...]
    keys: frozenset[frozenset[str]] = frozenset()
    left_out: tuple[LeftOut, ...] = ()
    lacks_before: bool = False
    tells_case: bool = True
    has_heads: bool = False


@dataclass(frozen=True)
class Wanted:
    """Say what a reader wants of a topic's records.

    Args:
        schemas: How keys and values were written. A record with another schema is an error `unknown-schema`.
        shape: What the values are.
        has_heads: Whether `head` is wanted of Debezium's values.
    """

    schemas: TopicSchemas
    shape: Shape
    has_heads: bool = False


def decode(
    raw: DataFrame,
    schemas: TopicSchemas,
    shape: Shape,
    *,
    has_heads: bool = False,
    max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES,
) -> Decoded:
    """Decode the raw records of one topic.

    Args:
        raw: Columns as in `lakehold.ingest.read.reader.RAW_DDL`.
        schemas: See `Wanted`.
        shape: See there.
        has_heads: See there.
        max_record_bytes: A record whose key and value are longer together is an error `oversized`.

    Raises:
        TypeConflict: Two of the schemas give a column types that do not fit together.
    """
    reader = ReaderSql.of(Wanted(schemas, shape, has_heads), 0, max_record_bytes)
    frame = judged(raw, [reader]).selectExpr(*COMMON, barrier(reader.result()))
    return reader.decoded(frame)


@dataclass(frozen=True)
class ReaderSql:
    """What one reader wants, in SQL."""

    key: Decoding
    value: Decoding
    shape: Shape
    has_heads: bool

    @classmethod
    def of(cls, wanted: Wanted, number: int, max_bytes: int) -> ReaderSql:
        """Reader `number` of those that decode together."""
        key = replace(part("key", wanted.schemas.key), reader=number)
        of_key = Decoding(key, (structure("key", key),), f"length(key) <= {max_bytes}")
        has_heads = wanted.has_heads and wanted.shape is Shape.DEBEZIUM
        return cls(of_key, _decode_value(wanted, number, max_bytes), wanted.shape, has_heads)

    @property
    def parts(self) -> tuple[Decoding, Decoding]:
        """The key and the value."""
        return self.key, self.value

    @property
    def has_error(self) -> str:
        """The condition that a record is an error."""
        return f"({self.key.problem} IS NOT NULL OR {self.value.problem} IS NOT NULL)"

    def result(self) -> str:
        """Write a structure of what there is of a record."""
        key, value = self.key, self.value
        found = {s.name: s.value() for s in value.structures}
        head = {}
        if self.shape is Shape.DEBEZIUM:
            found["unavailable"] = debezium.unavailable(value.structures[-1])
            head = debezium.head(value.part)
        is_right = f"{key.problem} IS NULL AND {value.problem} IS NULL"
        fields = {
            "key": f"CASE WHEN {key.problem} IS NULL THEN {key.structures[0].value()} END",
            "error": f"coalesce({key.problem}.code, {value.problem}.code)",
            "error_detail": f"coalesce({key.problem}.detail, {value.problem}.detail)",
            **{name: f"CASE WHEN {is_right} THEN {sql} END" for name, sql in found.items()},
            **head,
        }
        return struct_of(fields)

    def decoded(self, frame: DataFrame) -> Decoded:
        """What the reader has, when `frame` holds its results."""
        keys = frozenset(frozenset(f.name for f in version.schema.fields) for version in self.key.part.versions)
        of_key, row = self.key.structures[0], self.value.structures[-1]
        lacks_before = any(v.schema.field_named("before") is None for v in self.value.part.versions)
        versions = (*self.key.part.versions, *self.value.part.versions)
        left_out = tuple(dict.fromkeys((*of_key.left_out, *row.left_out)))
        return Decoded(
            frame,
            of_key.columns,
            row.columns,
            keys,
            left_out,
            lacks_before=self.shape is Shape.DEBEZIUM and lacks_before,
            has_heads=self.has_heads,
            tells_case=not any(isinstance(version.parser, AvroParser) for version in versions),
        )


def judged(raw: DataFrame, readers: Sequence[ReaderSql]) -> DataFrame:
    """Parse and convert the records, and say what is wrong with them, for each reader."""
    parts = [decoding for reader in readers for decoding in reader.parts]
    wanted = [each for d in parts for each in parsing(d.part, d.is_small)]
    own = [call for _, call in wanted]
    # The versions of one reader are of different records.
    shared = calls_for_all(own) if len(readers) > 1 else [CallForAll(call.parser, (call,)) for call in own]
    number_of = {call: number for number, each in enumerate(shared) for call in each.calls}
    results = {column: shared[number_of[call]].result(f"_call{number_of[call]}", call) for column, call in wanted}
    stages = [
        [f"{each.sql} AS _call{number}" for number, each in enumerate(shared)],
        [f"{sql} AS {column}" for column, sql in results.items()],
        [conversion for d in parts for s in d.structures for conversion in s.conversions()],
        [
            f"{problem(d, is_debezium=reader.shape is Shape.DEBEZIUM)} AS {d.problem}"
            for reader in readers
            for d in reader.parts
        ],
    ]
    for stage in filter(None, stages):
        raw = raw.selectExpr("*", *stage)
    return raw


def barrier(structure_: str) -> str:
    """The fields of a structure as columns, behind something that no filter is pushed through."""
    return f"inline_outer(array({structure_}))"


def _decode_value(wanted: Wanted, reader: int, max_bytes: int) -> Decoding:
    is_small = is_small_value(max_bytes)
    if wanted.shape is Shape.FLAT:
        value = replace(part("value", wanted.schemas.value), reader=reader)
        return Decoding(value, (structure("value", value),), is_small)
    value = debezium.only_envelopes(part("value", wanted.schemas.value, declared_envelope, debezium.FIELDS))
    value = replace(value, reader=reader)
    after = structure("after", value, "after")
    return Decoding(value, (structure("before", value, "before", after.columns), after), is_small)
