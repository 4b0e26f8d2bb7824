"""Decodes a topic's part of a batch: finds out which schemas its records use, then decodes them once.

Looking up the schemas in many records would be one more pass over the topic. So they are taken from the topic's subjects in the
registry, and looked up in the records only if these turn out to be incomplete.

`shared_topic.py` uses this for the records of each topic. A schema id that the registry does not know leaves its records
undecodable: they are errors, like any other bad record.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehold.arrow_frames import frame_of
from lakehold.definitions import DeclaredColumn, FormatType, Metadata, Table
from lakehold.errors import TableStopped
from lakehold.file_names import file_name_of
from lakehold.ingest.decode.decoded import Decoded, Shape, Wanted, decode
from lakehold.ingest.decode.record_schemas import AvroIds, JsonDeclared, JsonHeads, PartSchemas, TopicSchemas
from lakehold.ingest.decode.schema_ids import SchemaIds, schema_ids_by_spark, schema_ids_in_driver
from lakehold.ingest.decode.shared_decoding import DecodedTogether, decode_together
from lakehold.ingest.read.reader import RAW_DDL
from lakehold.tables.column_types import ColumnType
from lakehold.tables.unify import TypeConflict

if TYPE_CHECKING:
    # The registry's client takes a second to import, which sources without a registry do not need.
    from lakehold.kafka.registry import Registry

_SAMPLED = 100
"""Keys and values that are inspected to find out their form, as the first ones may be broken."""

_MEMBERS = {"schema", "payload"}

_MOST_VERSIONS = 8
"""Versions of a subject up to which all are tried on each record, instead of looking them up in the records first."""


class TopicPart:
    """A topic's part of a batch; what is found out about it is found out once for all tables.

    Args:
        raw: The records as a DataFrame.
        here: The records as an Arrow table, if they are few.
        written: The source's format.
    """

    def __init__(self, raw: DataFrame, here: pa.Table | None, written: FormatType) -> None:
        self.raw = raw
        self.here = here
        self._written = written
        self._samples: dict[str, tuple[bytes, ...]] = {}
        self._subjects: TopicSchemas | None = None

    def subjects(self, registry: Registry, topic: str) -> TopicSchemas:
        """Return all schemas of a topic's subjects: those that its records most likely use."""
        if self._subjects is None:
            key, value = (_known(registry, registry.subject_ids(f"{topic}-{part}")) for part in ("key", "value"))
            self._subjects = TopicSchemas(key, value)
        return self._subjects

    @cached_property
    def ids(self) -> SchemaIds:
        """Find which schemas the records use; for many records this is one pass over them."""
        return (
            schema_ids_by_spark(self.raw, self._written)
            if self.here is None
            else schema_ids_in_driver(self.here, self._written)
        )

    def sample(self, part: str) -> tuple[bytes, ...]:
        """Return a sample of the keys or values."""
        if part not in self._samples:
            self._samples[part] = self._sampled(part, _SAMPLED)
        return self._samples[part]

    def _sampled(self, part: str, at_most: int) -> tuple[bytes, ...]:
        if self.here is not None:
            return tuple(self.here[part].drop_null().slice(0, at_most).to_pylist())
        rows = self.raw.filter(F.col(part).isNotNull()).select(part).take(at_most)
        return tuple(bytes(row[part]) for row in rows)


@dataclass(frozen=True)
class Stored:
    """The columns of an Iceberg table: those of its key, and all; none before the table's first batch."""

    key: tuple[ColumnType, ...] = ()
    columns: tuple[ColumnType, ...] = ()


@dataclass(frozen=True)
class DecodedTopic:
    """A topic's part of a batch, decoded.

    Args:
        raw: The records as a DataFrame.
        decoded: The records, decoded.
        knows_all: Whether every schema that the records name was looked up: an unknown one is unknown to the registry, too.
    """

    raw: DataFrame
    decoded: Decoded
    knows_all: bool


@dataclass(frozen=True)
class TopicDecoder:
    """The decoder of a source's topics.

    Args:
        written: The source's format.
        registry: The registry of Avro schemas; None for JSON.
        spark: Returns the session.
        max_record_bytes: Longer records are errors.
        has_heads: Whether changes show their transaction, as the source has a transaction topic; see `Wanted`.
    """

    written: FormatType
    registry: Registry | None
    spark: Callable[[], SparkSession]
    max_record_bytes: int
    has_heads: bool = False

    def part(self, records: pa.Table | DataFrame) -> TopicPart:
        """Make the part of a batch from the records of one topic."""
        if isinstance(records, pa.Table):
            return TopicPart(frame_of(records, self.spark(), RAW_DDL), records, self.written)
        return TopicPart(records, None, self.written)

    def wanted(self, table: Table, part: TopicPart, stored: Stored, *, scan_schemas: bool) -> tuple[Wanted, bool]:
        """Return the schemas and the shape in which a table wants records decoded, and whether the records name no other schemas.

        The shape is Debezium's, with the rows before and after a change, or the value is the row.

        Args:
            table: The table; it declares the columns of bare JSON.
            part: The records.
            stored: The columns of its Iceberg table.
            scan_schemas: Whether to look up in the records which schemas they use.

        Raises:
            TableStopped: The columns of the records are unknown.
        """
        subjects = None if scan_schemas or part.here is not None else self._subjects(table, part)
        shape = Shape.FLATTENED if table.envelope.is_flattened else Shape.FLAT
        if table.envelope.wraps_rows:
            shape = Shape.DEBEZIUM
        has_heads = self.has_heads and shape is Shape.DEBEZIUM
        schemas = subjects or self._found(table, part, stored)
        if not table.reads_keys:
            schemas = replace(schemas, key=JsonDeclared())
        includes_key = any(each.what is Metadata.KEY for each in table.include)
        row_key = () if includes_key else table.key
        wanted = Wanted(schemas, shape, has_heads, row_key=row_key, knows_all=subjects is None)
        return wanted, subjects is None

    def decode(self, table: Table, part: TopicPart, wanted: Wanted, stored: tuple[ColumnType, ...]) -> Decoded:
        """Decode the records of a topic for a table.

        Schemas that contradict each other may still fit the table: a column that is a double, then an int, then a double again is
        a double in it. Where a batch begins makes no difference then.

        Args:
            table: The table.
            part: The records.
            wanted: The schemas and the shape.
            stored: The columns of its Iceberg table, if it exists.

        Raises:
            TableStopped: The schemas contradict each other, or the table.
        """
        try:
            with suppress(TypeConflict):
                return decode(part.raw, wanted, max_record_bytes=self.max_record_bytes)
            return decode(part.raw, replace(wanted, stored=stored), max_record_bytes=self.max_record_bytes)
        except TypeConflict as conflict:
            raise TableStopped(
                conflict.message, table=table.full_name, code="type-changed", detail=conflict.detail, hint=conflict.hint
            ) from conflict

    def decode_together(
        self, part: TopicPart, wanted: Sequence[Wanted], kept: Callable[[DataFrame], DataFrame]
    ) -> DecodedTogether:
        """Decode the records of a topic for tables with different needs.

        Args:
            part: The records.
            wanted: The needs of the tables.
            kept: Returns the same rows, cached: the tables read them one after the other.

        Raises:
            TypeConflict: The schemas of one table contradict each other.
        """
        return decode_together(part.raw, wanted, kept, max_record_bytes=self.max_record_bytes)

    def _subjects(self, table: Table, part: TopicPart) -> TopicSchemas | None:
        """Return the schemas of the topic's subjects; None if there are none, or too many to try on each record."""
        if self.registry is None:
            return None
        found = part.subjects(self.registry, table.topic)
        parts = (found.key, found.value) if table.reads_keys else (found.value,)
        counts = [len(each.schemas) for each in parts if isinstance(each, AvroIds)]
        return found if all(0 < count <= _MOST_VERSIONS for count in counts) else None

    def _found(self, table: Table, part: TopicPart, stored: Stored) -> TopicSchemas:
        """Find in the records which schemas they use."""
        ids = part.ids
        if self.registry is not None:
            return TopicSchemas(_known(self.registry, ids.keys), _known(self.registry, ids.values))
        key: PartSchemas = _heads(ids.keys)
        value: PartSchemas = _heads(ids.values)
        # Columns called `schema` and `payload` look like a schema. One called `payload` alone, as in an outbox, does not.
        if table.columns and (not ids.values or {column.name for column in table.columns} >= _MEMBERS):
            value = JsonDeclared(table.columns)
        elif table.columns and ids.has_bare_values:
            value = replace(_heads(ids.values), declared=JsonDeclared(table.columns))
        elif not ids.values and not stored.key and any(_is_bare_record(value) for value in part.sample("value")):
            raise _columns_unknown(table)
        if not ids.keys and table.reads_keys:
            key = _declared_key(table, stored, part.sample("key"))
        elif ids.has_bare_keys and table.reads_keys and table.columns:
            # Where their columns are unknown, they are errors: a few odd keys stop no table.
            with suppress(TableStopped):
                key = replace(_heads(ids.keys), declared=_declared_key(table, stored, part.sample("key")))
        return TopicSchemas(key, value)


def _known(registry: Registry, ids: Iterable[int | str]) -> AvroIds:
    """Fetch the schemas of ids that records name, without those that the registry lacks."""
    numbers = [i for i in ids if isinstance(i, int)]
    return AvroIds(registry.schema_texts(numbers), registry.unreadable(numbers))


def _heads(found: Iterable[int | str]) -> JsonHeads:
    """Convert the texts with which JSON records begin, oldest first, up to their payload: they contain the schema."""
    return JsonHeads(tuple(map(str, found)))


def _declared_key(table: Table, stored: Stored, sample: tuple[bytes, ...]) -> JsonDeclared:
    """Return the columns of a bare JSON key: those of `KEY (…)`, else those that most keys name, of the declared types.

    A key that is not a record is a column `key`. A table keeps the key that it was created with.
    """
    declared = {c.name: c for c in table.columns}
    if table.key:
        return JsonDeclared(tuple(declared[name] for name in table.key if name in declared))
    if stored.key:
        return JsonDeclared(tuple(declared.get(c.name, DeclaredColumn(c.name, c.spark_type)) for c in stored.key))
    names = _most_common(sample)
    if names is None or _includes_bare(table, stored, names):
        return JsonDeclared((_single_key(table, declared),), is_bare=True) if sample else JsonDeclared()
    unknown = [name for name in names if name not in declared]
    if unknown:
        raise TableStopped(
            f'the message key of table "{table.full_name}" has a column that is not declared: "{unknown[0]}"',
            table=table.full_name,
            code="columns-unknown",
            detail="The messages are JSON without a schema, which does not say its type.",
            hint="Add it to the table's column list, or change the table's KEY (…) or INCLUDE KEY.",
        )
    return JsonDeclared(tuple(declared[name] for name in names))


def _includes_bare(table: Table, stored: Stored, names: tuple[str, ...]) -> bool:
    """Return whether a table has the column of a bare key, as earlier keys were, which records of these fields cannot fill."""
    listed = {c.name for c in table.columns}
    is_single = len(names) == 1 and names[0] in listed
    added = {c.name: c.type for c in stored.columns if c.name == "key" or not is_single}
    return any(name in added and added[name].is_primitive for name in table.single_key_names if name not in listed)


def _most_common(sample: tuple[bytes, ...]) -> tuple[str, ...] | None:
    """Return the names of the fields that most keys have; None if most are no records. A few odd ones are errors."""
    records = ((key, _record(key)) for key in sample)
    found = Counter(
        None if record is None else tuple(record)
        for key, record in records
        if record is not None or not key.lstrip().startswith(b"{")
    )
    return max(found, key=lambda names: (found[names], names is not None), default=None)


def _single_key(table: Table, declared: Mapping[str, DeclaredColumn]) -> DeclaredColumn:
    """Return the column of a key that is not a record; the column list or the clause that includes it gives its type."""
    found = next((declared[name] for name in table.single_key_names if name in declared), None)
    return DeclaredColumn("key", "string" if found is None else found.type)


def _is_bare_record(value: bytes) -> bool:
    """Return whether a value is a JSON object without a schema, whose columns a statement may declare."""
    content = _record(value)
    return content is not None and not (content.keys() <= _MEMBERS)


def _record(key: bytes) -> dict[str, Any] | None:
    """Return the key as a record; None if it is not a record."""
    try:
        content = json.loads(key)
    except (ValueError, RecursionError):  # the latter for one that is nested too deeply
        return None
    if isinstance(content, dict) and isinstance(content.get("payload"), dict):
        content = content["payload"]
    return content if isinstance(content, dict) else None


def _columns_unknown(table: Table) -> TableStopped:
    return TableStopped(
        f'the columns of table "{table.full_name}" are unknown',
        table=table.full_name,
        code="columns-unknown",
        detail="The messages are JSON without a schema.",
        hint=f"Name the columns: CREATE TABLE {table.full_name} (id BIGINT, …) FROM SOURCE {table.source} …, or in a file"
        f" {file_name_of(table.full_name)}.json in the folder that the setting schemas names.",
    )
