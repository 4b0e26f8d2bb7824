"""Which schemas the records of a topic were written with, as plain data, and what they say.

A part (the key or the value) is written in one of three ways:

    AvroIds        the Confluent wire format: byte 0, a big-endian int32 that is the schema's id, the Avro body
    JsonHeads      Connect's `{"schema": …, "payload": …}`
    JsonDeclared   bare JSON, whose columns a statement declares; an object `{"payload": …}` around it is looked through
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import types as spark

from lakehold.definitions import DeclaredColumn
from lakehold.errors import DefinitionError
from lakehold.ingest.decode.connect_schema import DECLARED, ConnectSchema, Field, SchemaType
from lakehold.ingest.decode.logical import declared_decimal


@dataclass(frozen=True)
class AvroIds:
    """Schema texts by the id that stands in the records; later ids are newer."""

    schemas: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class JsonHeads:
    """The beginnings of records before their payload: `{"schema":…,"payload":`, oldest first.

    `apart` has the schemas of records whose members stand in another order, or among others, as `get_json_object` gives them.
    """

    heads: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()


@dataclass(frozen=True)
class JsonDeclared:
    """The declared columns; none: the part is not decoded. A key of one declared column may also be the bare value."""

    columns: tuple[DeclaredColumn, ...] = ()

    def joined(self, other: JsonDeclared) -> JsonDeclared | None:
        """With the columns of another; None where both have one in different types, or by names that differ in case alone."""
        own = {column.name.lower(): column for column in self.columns}
        if any(own.get(column.name.lower(), column) != column for column in other.columns):
            return None
        return JsonDeclared((*self.columns, *(column for column in other.columns if column.name.lower() not in own)))


PartSchemas = AvroIds | JsonHeads | JsonDeclared


@dataclass(frozen=True)
class TopicSchemas:
    """How keys and values of one topic are written."""

    key: PartSchemas
    value: PartSchemas


def declared_struct(columns: tuple[DeclaredColumn, ...]) -> ConnectSchema:
    """The structure of a record whose columns are declared. Needs an active Spark session, which reads the types.

    Raises:
        DefinitionError: A type is not one of Spark's, or no table can hold it.
    """
    return ConnectSchema(SchemaType.STRUCT, optional=True, fields=tuple(Field(c.name, _declared(c)) for c in columns))


def declared_envelope(row: ConnectSchema) -> ConnectSchema:
    """Debezium's envelope around declared rows, with what any connector may put into `source`."""
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
        return _from_spark(spark.DataType.fromDDL(column.type))
    except Exception as e:  # Spark raises its own parse errors, of several classes and different ones over Connect
        raise DefinitionError(
            f'column "{column.name}" has a type that cannot be decoded: {column.type}',
            code="declared-type",
            hint="Use a type of Spark SQL that Iceberg has too.",
        ) from e


_PLAIN: dict[type[spark.DataType], SchemaType] = {
    spark.BooleanType: SchemaType.BOOLEAN,
    spark.ByteType: SchemaType.INT8,
    spark.ShortType: SchemaType.INT16,
    spark.IntegerType: SchemaType.INT32,
    spark.LongType: SchemaType.INT64,
    spark.FloatType: SchemaType.FLOAT32,
    spark.DoubleType: SchemaType.FLOAT64,
    spark.StringType: SchemaType.STRING,
    spark.VarcharType: SchemaType.STRING,
    spark.CharType: SchemaType.STRING,
    spark.BinaryType: SchemaType.BYTES,
}

_AS_TEXT: dict[type[spark.DataType], str] = {
    spark.DateType: f"{DECLARED}date",
    spark.TimestampType: f"{DECLARED}timestamp",
    spark.TimestampNTZType: f"{DECLARED}timestamp_ntz",
}


def _from_spark(of: spark.DataType) -> ConnectSchema:
    match of:
        case spark.DecimalType():
            return declared_decimal(of.precision, of.scale)
        case spark.ArrayType():
            return ConnectSchema(SchemaType.ARRAY, optional=True, items=_from_spark(of.elementType))
        case spark.MapType():
            keys = ConnectSchema(SchemaType.STRING)
            return ConnectSchema(SchemaType.MAP, optional=True, keys=keys, values=_from_spark(of.valueType))
        case spark.StructType():
            return _optional_struct({f.name: _from_spark(f.dataType) for f in of.fields})
        case _ if type(of) in _AS_TEXT:
            return ConnectSchema(SchemaType.STRING, optional=True, name=_AS_TEXT[type(of)])
        case _:
            return ConnectSchema(_PLAIN[type(of)], optional=True)
