"""Decoding a topic's part of a batch: find out how its records were written, then decode them once.

A schema id that the registry does not know leaves its records undecodable: they are errors, like any other bad record.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehold.definitions import DeclaredColumn, Envelope, FormatType, Table
from lakehold.errors import TableStopped
from lakehold.ingest.decode.decoded import Decoded, Shape, decode
from lakehold.ingest.decode.registry import Registry
from lakehold.ingest.decode.schema_ids import SchemaIds, schema_ids, schema_ids_of
from lakehold.ingest.decode.schemas import AvroIds, JsonDeclared, JsonHeads, PartSchemas, TopicSchemas
from lakehold.ingest.decode.unify import TypeConflict


@dataclass(frozen=True)
class TopicDecoder:
    """Decodes records of a source's topics.

    Args:
        written: The source's format.
        registry: Where Avro schemas are; None for JSON.
        spark: Gives the session.
        max_record_bytes: Longer records are errors.
    """

    written: FormatType
    registry: Registry | None
    spark: Callable[[], SparkSession]
    max_record_bytes: int

    def decode(self, table: Table, records: pa.Table | DataFrame) -> tuple[DataFrame, Decoded]:
        """The records as a DataFrame, and decoded for `table`.

        Raises:
            TableStopped: The schemas of the batch contradict each other or say nothing of the columns.
        """
        if isinstance(records, pa.Table):
            ids = schema_ids_of(records, self.written)
            raw = self.spark().createDataFrame(records)
        else:
            raw = records
            ids = schema_ids(raw, self.written)
        shape = Shape.FLAT if table.envelope is Envelope.UPSERT else Shape.DEBEZIUM
        try:
            decoded = decode(raw, self._schemas(table, ids, records), shape, max_record_bytes=self.max_record_bytes)
        except TypeConflict as conflict:
            raise TableStopped(
                conflict.message, table=table.full_name, code="type-changed", detail=conflict.detail, hint=conflict.hint
            ) from conflict
        return raw, decoded

    def _schemas(self, table: Table, ids: SchemaIds, records: pa.Table | DataFrame) -> TopicSchemas:
        if self.registry is not None:
            return TopicSchemas(_known(self.registry, ids.keys), _known(self.registry, ids.values))
        key: PartSchemas = _heads(ids.keys)
        value: PartSchemas = _heads(ids.values)
        if not ids.keys:
            key = JsonDeclared(_declared_key(table, _first(records, "key")))
        if not ids.values:
            if not table.columns and _first(records, "value") is not None:
                raise _columns_unknown(table)
            value = JsonDeclared(table.columns)
        return TopicSchemas(key, value)


def _known(registry: Registry, ids: frozenset[int] | frozenset[str]) -> AvroIds:
    return registry.schemas(i for i in ids if isinstance(i, int))


def _heads(found: frozenset[int] | frozenset[str]) -> JsonHeads:
    return JsonHeads(tuple(sorted(str(head) for head in found)))


def _first(records: pa.Table | DataFrame, part: str) -> bytes | None:
    """The first key or value that is there."""
    if isinstance(records, pa.Table):
        present = records[part].drop_null()
        return bytes(present[0].as_py()) if len(present) else None
    row = records.filter(F.col(part).isNotNull()).select(part).first()
    return bytes(row[part]) if row is not None else None


def _declared_key(table: Table, sample: bytes | None) -> tuple[DeclaredColumn, ...]:
    """What a bare JSON key holds: the columns of `KEY (…)`, else those that the first key names, of the declared types.

    A key that is no record is a column `key` (design, "The way in").
    """
    declared = {c.name: c for c in table.columns}
    if table.key:
        return tuple(declared[name] for name in table.key if name in declared)
    try:
        content = json.loads(sample) if sample is not None else None
    except ValueError:
        content = None
    if isinstance(content, dict) and isinstance(content.get("payload"), dict):
        content = content["payload"]
    if not isinstance(content, dict):
        return (declared.get("key", DeclaredColumn("key", "string")),) if sample is not None else ()
    unknown = [name for name in content if name not in declared]
    if unknown:
        raise TableStopped(
            f'the message key of table "{table.full_name}" has a column that is not declared: "{unknown[0]}"',
            table=table.full_name,
            code="columns-unknown",
            detail="The messages are JSON without a schema, which does not say its type.",
            hint="Add it to the table's column list, or name other key columns in KEY (…).",
        )
    return tuple(declared[name] for name in content)


def _columns_unknown(table: Table) -> TableStopped:
    return TableStopped(
        f'nothing says which columns table "{table.full_name}" has',
        table=table.full_name,
        code="columns-unknown",
        detail="The messages are JSON without a schema.",
        hint=f"Name the columns: CREATE TABLE {table.full_name} (id BIGINT, …) FROM SOURCE {table.source} ….",
    )
