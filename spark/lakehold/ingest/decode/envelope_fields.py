"""Decodes only the envelope fields of Debezium's messages, without their rows, and the messages of the transaction topic.

Finding where a batch may end (`transactions/header_reader.py`) needs no more of topics whose rows no table can decode. Every
message of a transaction must still be counted there.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from lakehold.definitions import DeclaredColumn
from lakehold.ingest.decode.connect_schema import ConnectSchema, Field, SchemaType
from lakehold.ingest.decode.debezium import HEAD_FIELDS, field_of, head, only_envelopes
from lakehold.ingest.decode.message_parts import Part, is_small_value, part
from lakehold.ingest.decode.record_schemas import AvroIds, JsonDeclared, declared_envelope
from lakehold.spark_sql import literal, struct_of

ANY_JSON = JsonDeclared((DeclaredColumn("_", "string"),))
"""The schemas of JSON values, with a schema or without one. Something must be declared: the column `_` is in no row."""

_COLLECTIONS = "array<struct<data_collection:string,event_count:bigint>>"


@dataclass(frozen=True)
class HeadSchemas:
    """The schemas of the values of a source with a transaction topic; `ANY_JSON` for JSON.

    Args:
        changes: The schemas in topics of changes.
        transactions: The schemas in the transaction topic.
    """

    changes: AvroIds | JsonDeclared
    transactions: AvroIds | JsonDeclared

    def joined(self, changes: AvroIds, transactions: AvroIds) -> HeadSchemas:
        """Return these schemas with some more."""
        return HeadSchemas(_joined(self.changes, changes), _joined(self.transactions, transactions))


def heads(raw: DataFrame, schemas: HeadSchemas, transaction_topic: str, max_record_bytes: int) -> DataFrame:
    """Read the fields around the rows of changes, and the transaction topic, in one pass.

    Args:
        raw: Raw records of any topics, as `decode` takes them.
        schemas: The schemas of their values.
        transaction_topic: The topic of transaction metadata.
        max_record_bytes: Records whose key and value are longer together are not read.

    Returns:
        `topic, partition, offset, timestamp_ms, op, source, transaction struct<id, total_order, collection_order>, is_readable,
        status, id, data_collections array<struct<data_collection, event_count>>, unknown_schema`: with nulls where a record lacks
        them. `is_readable` is false for a value that exists and cannot be read. `unknown_schema bigint` is the id of an Avro
        schema that is not among `schemas`.
    """
    is_metadata, is_small = f"topic = {literal(transaction_topic)}", is_small_value(max_record_bytes)
    of_change, of_metadata = (
        Part("value", f"NOT ({is_metadata}) AND {is_small}"),
        Part("value", f"{is_metadata} AND {is_small}", 1),
    )
    change = only_envelopes(part(of_change, schemas.changes, declared_envelope, HEAD_FIELDS))
    metadata = part(of_metadata, schemas.transactions, lambda _: _METADATA)
    found = {
        "timestamp_ms": "timestamp_ms",
        **head(change),
        "status": field_of(metadata, "status"),
        "id": field_of(metadata, "id"),
        "data_collections": f"CAST({field_of(metadata, 'data_collections', _COLLECTIONS)} AS {_COLLECTIONS})",
        "unknown_schema": f"IF({is_metadata}, {_unknown(schemas.transactions)}, {_unknown(schemas.changes)})",
    }
    results = (f"{call.sql} AS {column}" for column, call in (*change.calls(), *metadata.calls()))
    # By a generator, through which no filter is pushed (`decoded.py`).
    with_results = raw.selectExpr("topic", "partition", "offset", "timestamp_ms", "value", *results)
    return with_results.selectExpr("topic", "partition", "offset", f"inline_outer(array({struct_of(found)}))")


def _unknown(schemas: AvroIds | JsonDeclared) -> str:
    """Write the id of a value's Avro schema, if it has one that is not known; null otherwise."""
    if not isinstance(schemas, AvroIds):
        return "CAST(NULL AS bigint)"
    known = ", ".join(f"X'{schema_id:010X}'" for schema_id in sorted(schemas.schemas))
    has_one = "length(value) >= 5 AND substring(value, 1, 1) = X'00'"
    is_other = f"{has_one} AND substring(value, 1, 5) NOT IN ({known})" if known else has_one
    return f"CASE WHEN {is_other} THEN CAST(conv(hex(substring(value, 2, 4)), 16, 10) AS bigint) END"


def _joined(schemas: AvroIds | JsonDeclared, more: AvroIds) -> AvroIds | JsonDeclared:
    return AvroIds({**schemas.schemas, **more.schemas}) if isinstance(schemas, AvroIds) else schemas


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
