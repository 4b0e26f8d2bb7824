"""The schemas of a topic's records, as plain data, and their meaning.

`ingest/topic.py` finds out which schemas the records of a batch use; `message_parts.py` makes a parser for each. A part (the key
or the value) is written in one of three ways:

    AvroIds        the Confluent wire format: byte 0, a big-endian int32 that is the schema's id, the Avro body
    JsonHeads      Connect's `{"schema": …, "payload": …}`
    JsonDeclared   bare JSON, whose columns a statement declares; taken out of an object `{"payload": …}` around it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.types import (
    DateType,
    DecimalType,
    IcebergType,
    ListType,
    MapType,
    StructType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import types as spark

from lakehold.definitions import DeclaredColumn
from lakehold.errors import DefinitionError
from lakehold.ingest.decode.connect_schema import DECLARED, ConnectSchema, Field, SchemaType
from lakehold.ingest.decode.logical import declared_decimal
from lakehold.ingest.decode.types import PLAIN
from lakehold.tables.spark_types import from_spark


@dataclass(frozen=True)
class AvroIds:
    """The schemas of records in Avro: texts by the id that each record begins with; a greater id is a newer schema.

    `unreadable` has the ids of other schemas, each with the reason why their records cannot be read.
    """

    schemas: Mapping[int, str] = field(default_factory=dict)
    unreadable: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class JsonDeclared:
    """The columns that a statement declares for JSON without a schema; none: the part is not decoded.

    A key of one declared column may also be the bare value; with `is_bare` it must be.
    """

    columns: tuple[DeclaredColumn, ...] = ()
    is_bare: bool = False

    def joined(self, other: JsonDeclared) -> JsonDeclared | None:
        """Combine the columns of two tables over one topic; None if one name has two types, or names differ in case alone."""
        own = {column.name.lower(): column for column in self.columns}
        if any(own.get(column.name.lower(), column) != column for column in other.columns):
            return None
        return JsonDeclared((*self.columns, *(column for column in other.columns if column.name.lower() not in own)))


@dataclass(frozen=True)
class JsonHeads:
    """The beginnings of records before their payload: `{"schema":…,"payload":`.

    Nothing says which is newer: one that is later in the tuple counts as newer. `declared` are the columns of records without a
    schema between them.
    """

    heads: tuple[str, ...] = ()
    declared: JsonDeclared = JsonDeclared()


PartSchemas = AvroIds | JsonHeads | JsonDeclared


@dataclass(frozen=True)
class TopicSchemas:
    """The schemas of keys and values of one topic."""

    key: PartSchemas
    value: PartSchemas


def declared_struct(columns: tuple[DeclaredColumn, ...]) -> ConnectSchema:
    """Return the structure of a record whose columns are declared. Needs an active Spark session, which parses the types.

    Raises:
        DefinitionError: A type is not one of Spark's, or no table can hold it.
    """
    return ConnectSchema(SchemaType.STRUCT, optional=True, fields=tuple(Field(c.name, _declared(c)) for c in columns))


def declared_envelope(row: ConnectSchema) -> ConnectSchema:
    """Return Debezium's envelope around declared rows, with the fields of any connector in `source`."""
    text, number = ConnectSchema(SchemaType.STRING, optional=True), ConnectSchema(SchemaType.INT64, optional=True)
    texts = ("connector", "snapshot", "name", "db", "schema", "table", "sequence", "file", "gtid", "txId", "lsn")
    source = {n: text for n in texts} | {n: number for n in ("pos", "row", "ts_ms")}
    parts = {
        "before": row,
        "after": row,
        "source": _optional_struct(source),
        "op": text,
        "transaction": _optional_struct({"id": text, "total_order": number, "data_collection_order": number}),
    }
    return _optional_struct(parts)


def _optional_struct(fields: Mapping[str, ConnectSchema]) -> ConnectSchema:
    return ConnectSchema(SchemaType.STRUCT, optional=True, fields=tuple(Field(n, s) for n, s in fields.items()))


def _declared(column: DeclaredColumn) -> ConnectSchema:
    try:
        return _of(from_spark(spark.DataType.fromDDL(column.type)))
    except Exception as e:  # Spark raises its own parse errors, of several classes and different ones over Connect
        raise DefinitionError(
            f'column "{column.name}" has a type that cannot be decoded: {column.type}',
            code="declared-type",
            hint="Use a type of Spark SQL that Iceberg has too.",
        ) from e


_OF_PLAIN: dict[type[IcebergType], SchemaType] = {type(of): kind for kind, of in PLAIN.items()}

_AS_TEXT: dict[type[IcebergType], str] = {
    DateType: f"{DECLARED}date",
    TimestamptzType: f"{DECLARED}timestamp",
    TimestampType: f"{DECLARED}timestamp_ntz",
}


def _of(declared: IcebergType) -> ConnectSchema:
    match declared:
        case DecimalType():
            return declared_decimal(declared.precision, declared.scale)
        case ListType():
            return ConnectSchema(SchemaType.ARRAY, optional=True, items=_of(declared.element_type))
        case MapType():
            keys = ConnectSchema(SchemaType.STRING)
            return ConnectSchema(SchemaType.MAP, optional=True, keys=keys, values=_of(declared.value_type))
        case StructType():
            return _optional_struct({f.name: _of(f.field_type) for f in declared.fields})
        case _ if (name := _AS_TEXT.get(type(declared))) is not None:
            return ConnectSchema(SchemaType.STRING, optional=True, name=name)
        case _:
            return ConnectSchema(_OF_PLAIN[type(declared)], optional=True)
