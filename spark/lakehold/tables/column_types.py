"""The types of columns: Iceberg's, and how Spark SQL writes them.

Iceberg's types (of `pyiceberg.types`) are the vocabulary. Ids of nested fields are counted from 1 within each column
and mean nothing: compare with `tables.unify.same`, and let the catalog assign fresh ids.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from lakehold.spark_sql import literal, struct_type

_SPARK_TEXT: dict[type[IcebergType], str] = {
    BooleanType: "boolean",
    IntegerType: "int",
    LongType: "bigint",
    FloatType: "float",
    DoubleType: "double",
    DateType: "date",
    TimestampType: "timestamp_ntz",
    TimestamptzType: "timestamp",
    StringType: "string",
    UUIDType: "string",
    BinaryType: "binary",
    FixedType: "binary",
}


@dataclass(frozen=True)
class ColumnType:
    """A column of a table, or of messages that become its rows.

    Args:
        name: Its name.
        type: Its type.
        required: Whether its upstream column is never null.
        initial: Its value in rows and messages that lack the column, in Python's form of the type.
    """

    name: str
    type: IcebergType
    required: bool = False
    initial: object = None

    @property
    def spark_type(self) -> str:
        """Write the type in Spark SQL."""
        return spark_text(self.type)

    @property
    def initial_sql(self) -> str:
        """Write the initial value in Spark SQL."""
        return f"CAST({literal(self.initial)} AS {self.spark_type})"


def spark_text(of: IcebergType) -> str:
    """Write a type in Spark SQL (`struct<a: bigint>`); `uuid` is `string`, as Spark reads it."""
    match of:
        case DecimalType():
            return f"decimal({of.precision},{of.scale})"
        case ListType():
            return f"array<{spark_text(of.element_type)}>"
        case MapType():
            return f"map<{spark_text(of.key_type)},{spark_text(of.value_type)}>"
        case StructType():
            return struct_type((f.name, spark_text(f.field_type)) for f in of.fields)
        case _:
            return _SPARK_TEXT[type(of)]
