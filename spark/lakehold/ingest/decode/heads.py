"""What stands around the rows of Debezium's messages, and what its transaction topic says: rows themselves are left alone."""

from __future__ import annotations

from pyspark.sql import DataFrame

from lakehold.definitions import DeclaredColumn
from lakehold.ingest.decode.connect_schema import ConnectSchema, Field, SchemaType
from lakehold.ingest.decode.debezium import NOT_DEBEZIUM, SOURCE, block, field_of, only_envelopes
from lakehold.ingest.decode.parts import Part, is_small_value, part
from lakehold.ingest.decode.schemas import AvroIds, JsonDeclared, declared_envelope
from lakehold.ingest.decode.structures import parsed_column, parsing
from lakehold.spark_sql import struct_of

ANY_JSON = JsonDeclared((DeclaredColumn("_", "string"),))
"""Of JSON with a schema or without one; the column is in no row."""

_TRANSACTION = {
    "id": ("id", "string"),
    "total_order": ("total_order", "bigint"),
    "collection_order": ("data_collection_order", "bigint"),
}
_COLLECTIONS = "array<struct<data_collection:string,event_count:bigint>>"


def envelope_heads(raw: DataFrame, schemas: AvroIds | JsonDeclared, max_record_bytes: int) -> DataFrame:
    """What stands around the rows.

    Args:
        raw: Raw records of any topics, as `decode` takes them.
        schemas: Of their values; `ANY_JSON` for JSON.
        max_record_bytes: Longer records are not read.

    Returns:
        `topic, partition, offset, timestamp_ms, op, source, transaction struct<id, total_order, collection_order>, is_readable`:
        with nulls where a record lacks them; `is_readable` is false of a value that is there and cannot be read.
    """
    value = only_envelopes(part("value", schemas, declared_envelope))
    other = [refused.matches for refused in value.refused if refused.reason == NOT_DEBEZIUM]
    found = {
        "timestamp_ms": "timestamp_ms",
        "op": field_of(value, "op"),
        "source": block(value, "source", SOURCE),
        "transaction": block(value, "transaction", _TRANSACTION),
        "is_readable": f"coalesce({' OR '.join(['value IS NULL', *_read(value), *other])}, false)",
    }
    return _with(found, raw, value, max_record_bytes)


def transaction_metadata(raw: DataFrame, schemas: AvroIds | JsonDeclared, max_record_bytes: int) -> DataFrame:
    """What a transaction topic says.

    Args:
        raw: Its raw records.
        schemas: Of their values; `ANY_JSON` for JSON.
        max_record_bytes: Longer records are not read.

    Returns:
        `topic, partition, offset, timestamp_ms, status, id, data_collections array<struct<data_collection, event_count>>` of all
        records: with nulls where one lacks them.
    """
    value = part("value", schemas, lambda _: _METADATA)
    found = {
        "timestamp_ms": "timestamp_ms",
        "status": field_of(value, "status"),
        "id": field_of(value, "id"),
        "data_collections": f"CAST({field_of(value, 'data_collections', _COLLECTIONS)} AS {_COLLECTIONS})",
    }
    return _with(found, raw, value, max_record_bytes)


def _with(found: dict[str, str], raw: DataFrame, value: Part, max_record_bytes: int) -> DataFrame:
    """The records with what was found in their values; by a generator, through which no filter is pushed (`decoded.py`)."""
    found_by = parsing(value, is_small_value(max_record_bytes))
    results = (f"{call.sql} AS {column}" for column, call in found_by)
    parsed = raw.selectExpr("topic", "partition", "offset", "timestamp_ms", "value", *results)
    return parsed.selectExpr("topic", "partition", "offset", f"inline_outer(array({struct_of(found)}))")


def _read(value: Part) -> list[str]:
    """Conditions of which one holds where a record could be read."""
    columns = [(version, parsed_column(value, i)) for i, version in enumerate(value.versions)]
    return [f"({column} IS NOT NULL AND NOT {version.corrupt(column)})" for version, column in columns]


def _struct(**fields: ConnectSchema) -> ConnectSchema:
    return ConnectSchema(SchemaType.STRUCT, optional=True, fields=tuple(Field(n, s) for n, s in fields.items()))


_TEXT = ConnectSchema(SchemaType.STRING, optional=True)
_NUMBER = ConnectSchema(SchemaType.INT64, optional=True)
_METADATA = _struct(
    status=_TEXT,
    id=_TEXT,
    data_collections=ConnectSchema(
        SchemaType.ARRAY, optional=True, items=_struct(data_collection=_TEXT, event_count=_NUMBER)
    ),
)
