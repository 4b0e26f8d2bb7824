"""Decodes the bytes of a topic's records to typed columns, in one pass of built-in functions.

The records of a batch come from `ingest/read`; `ingest/envelope` turns the decoded ones into changes of rows. A *reader* here is
a table, or several with equal needs, that takes decoded records; it is not the `Reader` of `ingest/read`.

Each stage is one projection: parse every part with the schema it was written with; convert it to the columns of the
table, which are the same for all versions of the schema; find problems; assemble the result. Each parser call is in
one projection and is then referred to by name, so that it runs once per record. The last stage is a generator, because
no filter of a later stage is pushed through a generator: otherwise Spark would run the parsers again to evaluate the filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import DataFrame

from lakehold.ingest.decode import debezium, flattened
from lakehold.ingest.decode.connect_schema import LeftOut
from lakehold.ingest.decode.message_parts import Part, is_small_value, part
from lakehold.ingest.decode.parsers import AvroParser, Call, CallForAll, calls_for_all
from lakehold.ingest.decode.record_problems import UNKNOWN_SCHEMA, problem
from lakehold.ingest.decode.record_schemas import TopicSchemas, declared_envelope
from lakehold.ingest.decode.structures import Structure, structure
from lakehold.spark_sql import literal, struct_of
from lakehold.tables.column_types import ColumnType

DEFAULT_MAX_RECORD_BYTES = 64 * 1024 * 1024

COMMON = ("topic", "partition", "offset", "timestamp_ms", "headers", "key AS key_bytes")
"""The columns of the result that are the same for all readers, in SQL over raw records."""


class Shape(StrEnum):
    """The shape of a topic's values: whether they contain rows, or are rows."""

    DEBEZIUM = "debezium"
    """A value is a change event of Debezium, with rows in `before` and `after`."""
    FLATTENED = "flattened"
    """A value is a row that Debezium flattened, which says whether it was deleted."""
    FLAT = "flat"
    """A value is a row."""


@dataclass(frozen=True)
class Decoded:
    """The decoded records of one topic, for one reader.

    `frame` has `topic, partition, offset, timestamp_ms, headers, key_bytes, key struct<key_columns>, error, error_detail` and

    - DEBEZIUM: `before struct<columns>, after struct<columns>, unavailable array<string>` (columns of `after` that
      hold Debezium's placeholder for a value it does not have, null if none); and, also for records with errors, `op, source
      struct<connector, snapshot, sequence, lsn, file, pos, row, ts_ms>, transaction struct<id, total_order, collection_order>,
      is_readable` (false for a value that exists and that no schema reads);
    - FLATTENED: `value struct<columns>, deleted boolean, unavailable array<string>`, the last one as above, of `value`;
    - FLAT: `value struct<columns>`;

    and `absent array<string>`, the columns that the schema of a record lacks, if there are several `versions`.

    A tombstone (null value) has null everywhere and no error. A record with an error has no value; it has its key if
    that could be read. Errors: `oversized, empty-value, undecodable-key, undecodable-value, unknown-schema,
    unsupported-schema, not-debezium, not-null-violated`. Structures without columns (no schema given, or none usable)
    are of type `void`; those of records that were decoded for several readers may have columns of the others besides.

    Reading `frame` needs the JVM options of `lakehold.session`: without them a corrupt record that claims to be
    2 GiB long takes the JVM down.

    Args:
        frame: The records, see above.
        key_columns: The columns of `key`.
        columns: The columns of `value`, or of `before` and `after`.
        keys: The names of the key's columns, once for each schema with which keys were written.
        left_out: Parts of keys and rows that no table can hold.
        lacks_before: Whether a schema of the values has no `before`.
        names_may_differ_in_case: Whether a record is decoded whose fields have names that differ in case only. In Avro it is an
            error, because Spark finds fields of Avro whatever their case.
        has_heads: See `Wanted`.
        has_declared_keys: Whether keys are JSON without a schema, which may be bare, or lack columns.
        versions: The names of the rows' columns, for each schema with which rows were written, oldest first.
    """

    frame: DataFrame
    key_columns: tuple[ColumnType, ...]
    columns: tuple[ColumnType, ...]
    keys: frozenset[frozenset[str]] = frozenset()
    left_out: tuple[LeftOut, ...] = ()
    lacks_before: bool = False
    names_may_differ_in_case: bool = True
    has_heads: bool = False
    has_declared_keys: bool = False
    versions: tuple[frozenset[str], ...] = ()

    @property
    def partial(self) -> frozenset[str]:
        """Return the columns of rows that some versions have and others lack, because they were added or dropped."""
        return frozenset(c.name for c in self.columns if any(c.name not in version for version in self.versions))


@dataclass(frozen=True)
class Wanted:
    """The columns that a reader wants from a topic's records.

    Args:
        schemas: The schemas of keys and values. A record with another schema is an error `unknown-schema`.
        shape: The shape of values.
        has_heads: Whether changes made of Debezium's values must show their transaction (`_lh_transaction`), as the source has a
            transaction topic. The fields for that are decoded in any case.
        stored: Columns of the Iceberg table, for schemas that contradict each other. The types of the table come before theirs:
            they may fit the table, as in the batches before.
        row_key: The columns that identify a row, if rows may have them all. Keys that are no records are no errors of such rows.
        knows_all: Whether records name no other schemas than these.
    """

    schemas: TopicSchemas
    shape: Shape
    has_heads: bool = False
    stored: tuple[ColumnType, ...] = ()
    row_key: tuple[str, ...] = ()
    knows_all: bool = True


def decode(raw: DataFrame, wanted: Wanted, *, max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES) -> Decoded:
    """Decode the raw records of one topic.

    Args:
        raw: Columns as in `lakehold.ingest.read.reader.RAW_DDL`.
        wanted: The schemas and the shape.
        max_record_bytes: A record whose key and value are longer together is an error `oversized`.

    Raises:
        TypeConflict: Two of the schemas give a column types that do not fit together.
    """
    reader = ReaderSql.of(wanted, 0, max_record_bytes)
    frame = parsed_and_checked(raw, [reader]).selectExpr(*COMMON, barrier(reader.result()))
    return reader.decoded(frame)


@dataclass(frozen=True)
class ReaderSql:
    """The SQL of one reader: the parts of a record (key and value), and the structures of columns that they become.

    Args:
        key: The key, with a version for each schema.
        value: The value, with a version for each schema.
        of_key: The structure `key`.
        rows: The structures made of the value: `value`, or `before` and `after`; the last one has the columns of rows.
        shape: See `Wanted`.
        has_heads: See `Wanted`.
        is_excused: The condition that a problem of the key is none of the record, as the row identifies itself; see `Wanted`.
    """

    key: Part
    value: Part
    of_key: Structure
    rows: tuple[Structure, ...]
    shape: Shape
    has_heads: bool
    is_excused: str = "false"

    @classmethod
    def of(cls, wanted: Wanted, number: int, max_bytes: int) -> ReaderSql:
        """Make the SQL for a request; `number` keeps its columns apart from those of other readers of the same records."""
        schemas = wanted.schemas
        empty = Part("value", is_small_value(max_bytes), number)
        key = part(Part("key", f"length(key) <= {max_bytes}", number), schemas.key)
        rows: tuple[Structure, ...]
        match wanted.shape:
            case Shape.DEBEZIUM:
                value = debezium.only_envelopes(part(empty, schemas.value, declared_envelope, debezium.FIELDS))
                after = structure("after", value, "after", stored=wanted.stored)
                rows = (structure("before", value, "before", after.columns), after)
            case Shape.FLATTENED:
                value = flattened.only_flattened(part(empty, schemas.value, flattened.with_deleted))
                rows = (flattened.without_deleted(structure("value", value, stored=wanted.stored)),)
            case Shape.FLAT:
                value = part(empty, schemas.value)
                rows = (structure("value", value, stored=wanted.stored),)
        of_key = structure("key", key, stored=wanted.stored)
        has_heads = wanted.has_heads and wanted.shape is Shape.DEBEZIUM
        return cls(key, value, of_key, rows, wanted.shape, has_heads, _excuse(wanted, key, value, rows[-1]))

    @property
    def has_error(self) -> str:
        """Write the condition that a record is an error."""
        return f"({self.key.problem} IS NOT NULL OR {self.value.problem} IS NOT NULL)"

    def calls(self) -> list[tuple[str, Call]]:
        """Return the names of the columns of parser results, each with the call that fills it."""
        return [*self.key.calls(), *self.value.calls()]

    def conversions(self) -> list[str]:
        """Write the columns of converted structures."""
        return [column for each in (self.of_key, *self.rows) for column in each.conversions()]

    def problems(self) -> list[str]:
        """Write the columns that describe why a record's key or value cannot be decoded."""
        value = self.value
        match self.shape:
            case Shape.DEBEZIUM:
                of_value = problem(value, self.rows, debezium.problems(value), debezium.documents(value))
            case Shape.FLATTENED:
                of_value = problem(value, self.rows, flattened.problems(value))
            case Shape.FLAT:
                of_value = problem(value, self.rows)
        return [f"{problem(self.key, [self.of_key])} AS {self.key.problem}", f"{of_value} AS {value.problem}"]

    def result(self) -> str:
        """Write a structure of the decoded parts of a record."""
        value = self.value.problem
        key = f"(CASE WHEN NOT ({self.is_excused}) THEN {self.key.problem} END)"
        found = {row.name: row.value() for row in self.rows}
        head = {}
        if self.shape is not Shape.FLAT:
            found["unavailable"] = debezium.unavailable(self.rows[-1])
        if self.shape is Shape.FLATTENED:
            found["deleted"] = flattened.is_deleted(self.value)
        if self.shape is Shape.DEBEZIUM:
            head = debezium.head(self.value)
        if len(self.rows[-1].versions) > 1:
            found["absent"] = self._absent()
        fields = {
            "key": f"CASE WHEN {self.key.problem} IS NULL THEN {self.of_key.value()} END",
            "error": f"coalesce({key}.code, {value}.code)",
            "error_detail": f"coalesce({key}.detail, {value}.detail)",
            **{name: f"CASE WHEN {key} IS NULL AND {value} IS NULL THEN {sql} END" for name, sql in found.items()},
            **head,
        }
        return struct_of(fields)

    def _absent(self) -> str:
        """List the columns that the row of a record lacks; of a delete that is the row before it."""
        *before, row = self.rows
        if not before:
            return row.absent()
        return f"CASE WHEN {row.value()} IS NOT NULL THEN {row.absent()} ELSE {before[0].absent()} END"

    def decoded(self, frame: DataFrame) -> Decoded:
        """Return the reader's decoded records, from a `frame` with its results."""
        versions = (*self.key.versions, *self.value.versions)
        lacks_before = any(v.schema.field_named("before") is None for v in self.value.versions)
        return Decoded(
            frame,
            self.of_key.columns,
            self.rows[-1].columns,
            keys=frozenset(frozenset(f.name for f in version.schema.fields) for version in self.key.versions),
            left_out=tuple(dict.fromkeys((*self.of_key.left_out, *self.rows[-1].left_out))),
            lacks_before=self.shape is Shape.DEBEZIUM and lacks_before,
            names_may_differ_in_case=not any(isinstance(version.parser, AvroParser) for version in versions),
            has_heads=self.has_heads,
            has_declared_keys=self.key.is_bare != "false",
            versions=self.rows[-1].versions,
        )


def _excuse(wanted: Wanted, key: Part, value: Part, row: Structure) -> str:
    """Write the condition that a key is no record, and that its message does not need it."""
    if not wanted.row_key or not {c.name for c in row.columns}.issuperset(wanted.row_key):
        return "false"
    # A null value in Debezium's topics only follows a delete that has the row; in others it is the delete.
    has_row = "true" if wanted.shape is Shape.DEBEZIUM else f"{row.value()} IS NOT NULL"
    # An unknown schema may still be in the registry: the caller looks for it, and decodes again.
    codes = ("undecodable-key", *([UNKNOWN_SCHEMA] if wanted.knows_all else ()))
    is_unread = f"({key.is_unread} AND {key.problem}.code IN ({', '.join(map(literal, codes))}))"
    return f"coalesce(({key.is_bare} OR {is_unread}) AND {value.problem} IS NULL AND {has_row}, false)"


def parsed_and_checked(raw: DataFrame, readers: Sequence[ReaderSql]) -> DataFrame:
    """Parse and convert the records, and find their problems, for each reader.

    Returns:
        The raw columns, and those to which `ReaderSql.result` refers.
    """
    wanted = [each for reader in readers for each in reader.calls()]
    own = [call for _, call in wanted]
    # The versions of one reader are for different records: no call can serve two of them.
    shared = calls_for_all(own) if len(readers) > 1 else [CallForAll(call.parser, (call,)) for call in own]
    number_of = {call: number for number, each in enumerate(shared) for call in each.calls}
    results = {column: shared[number_of[call]].result(f"_call{number_of[call]}", call) for column, call in wanted}
    stages = [
        [f"{each.sql} AS _call{number}" for number, each in enumerate(shared)],
        [f"{sql} AS {column}" for column, sql in results.items()],
        [column for reader in readers for column in reader.conversions()],
        [column for reader in readers for column in reader.problems()],
    ]
    for stage in filter(None, stages):
        raw = raw.selectExpr("*", *stage)
    return raw


def barrier(structure_: str) -> str:
    """Write the fields of a structure as columns, after a generator, through which no filter is pushed."""
    return f"inline_outer(array({structure_}))"
