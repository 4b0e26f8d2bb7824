"""All logical types that lakehold understands: the column that each becomes, and how its value is read.

A logical type is a name beside a plain type of Kafka Connect (`connect_schema.py`), such as `io.debezium.time.Date` for an int32.
One that is not here is read as its plain type: `io.debezium.data.{Json, Uuid, Xml, Enum, EnumSet, Ltree,
TsVector}` and `io.debezium.time.{ZonedTime, Interval}` stay text, `Bits` bytes, `Year` and the durations numbers,
geometries structures, vectors arrays.

A timestamp of Connect or Debezium has no zone unless its name says so; one of Avro has (`timestamp-*` is an instant).
A time of day becomes text, because Spark 4.1 refuses its TIME type for Iceberg tables; so does a `uuid`, which Spark
reads as text and cannot create.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyiceberg.types import (
    DateType,
    DecimalType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from lakehold.ingest.decode import decimals, iso_text, temporal
from lakehold.ingest.decode.connect_schema import (
    AVRO,
    DECLARED,
    DECLARED_DECIMAL,
    TEXT_BYTES,
    ConnectSchema,
    SchemaType,
)
from lakehold.spark_sql import literal

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
VARIABLE_SCALE_DECIMAL: Final = "io.debezium.data.VariableScaleDecimal"
_LARGEST_SCALE = 1_000
"""PostgreSQL's limit. Debezium misreads a negative scale of eleven bits as one above the limit, and sends as many zeros."""
_ENUM = "io.debezium.data.Enum"
_ESCAPED_COMMA = "\\,"
_NO_TEXT = (
    "Its bytes are read as text, because its type in the database has another name than types of binary values. Let the "
    "connector not send the name: leave the column out of column.propagate.source.type, or its type out of "
    "datatype.propagate.source.type."
)
_NO_DIGITS = "Debezium sends digits with decimal.handling.mode=string; without a schema its base64 cannot be read."
_PRECISION = "connect.decimal.precision"
_CONVERTER_PRECISION = 64
"""The precision that Connect's Avro converters write if it is unknown."""


@dataclass(frozen=True)
class LogicalType:
    """The rule for a logical type.

    Args:
        over: Its plain type.
        type: The type of the column.
        sql: Returns SQL of the column's value, from SQL of the plain value.
        fallible: Whether that SQL is null for some plain values that are not null: these cannot be decoded.
        advice: What to do about values that cannot be decoded, a sentence; empty if nothing is known.
    """

    over: SchemaType
    type: PrimitiveType
    sql: Callable[[str], str]
    fallible: bool = False
    advice: str = ""


def decimal_parameters(schema: ConnectSchema) -> tuple[int, int] | None:
    """Return precision and scale of a decimal that Iceberg can hold; None for anything else."""
    if schema.type is not SchemaType.BYTES or schema.name not in (DECIMAL, f"{AVRO}decimal"):
        return None
    scale, precision = _whole(schema.parameters.get("scale")), _whole(schema.parameters.get(_PRECISION))
    precision = decimals.MAX_PRECISION if precision in (0, _CONVERTER_PRECISION) else precision
    precision = max(precision, scale)
    return (precision, scale) if scale >= 0 and precision <= decimals.MAX_PRECISION else None


def logical_type(schema: ConnectSchema) -> LogicalType | None:
    """Return the rule for a schema; None if it is read as its plain type."""
    if schema.name is None:
        return None
    if schema.name in (DECIMAL, f"{AVRO}decimal") and schema.type is SchemaType.BYTES:
        return _decimal(schema)
    if schema.name == _ENUM and _ESCAPED_COMMA in schema.parameters.get("allowed", ""):
        return LogicalType(SchemaType.STRING, StringType(), _without_escapes)
    if schema.name == DECLARED_DECIMAL:
        precision, scale = _whole(schema.parameters[_PRECISION]), _whole(schema.parameters["scale"])
        read = partial(decimals.decimal_from_text, precision=precision, scale=scale)
        return LogicalType(SchemaType.STRING, DecimalType(precision, scale), read, fallible=True, advice=_NO_DIGITS)
    rule = _RULES.get(schema.name)
    return rule if rule is not None and rule.over is schema.type else None


def advice(schema: ConnectSchema) -> str:
    """Return what to do about values of a schema that cannot be decoded; empty if nothing is known."""
    rules = (logical_type(each) for _, each in schema.walk())
    return next((rule.advice for rule in rules if rule is not None and rule.advice), "")


def _decimal(schema: ConnectSchema) -> LogicalType:
    if (fitting := decimal_parameters(schema)) is not None:
        precision, scale = fitting
        exact = partial(decimals.decimal_from_bytes, precision=precision, scale=scale)
        return LogicalType(SchemaType.BYTES, DecimalType(precision, scale), exact, fallible=True)
    scale = _whole(schema.parameters.get("scale"))
    read = _whole_from_bytes if scale > _LARGEST_SCALE else decimals.text_from_bytes
    return LogicalType(SchemaType.BYTES, StringType(), partial(read, scale=str(scale)), fallible=True)


def declared_decimal(precision: int, scale: int) -> ConnectSchema:
    """Return the schema of a column that a statement declares as DECIMAL, for JSON without a schema."""
    parameters = {_PRECISION: str(precision), "scale": str(scale)}
    return ConnectSchema(SchemaType.STRING, optional=True, name=DECLARED_DECIMAL, parameters=parameters)


def _whole(text: str | None) -> int:
    return int(text) if text is not None and text.lstrip("-").isdigit() else 0


def _variable_scale(raw: str) -> str:
    return decimals.text_from_bytes(f"{raw}.`value`", f"{raw}.`scale`")


def _whole_from_bytes(raw: str, scale: str) -> str:
    return f"regexp_replace({decimals.text_from_bytes(raw, scale)}, '[.]0+$', '')"


def _without_escapes(raw: str) -> str:
    """Return the value of an ENUM of MySQL or MariaDB: in changes, not in snapshots, Debezium escapes its commas."""
    return f"replace({raw}, {literal(_ESCAPED_COMMA)}, ',')"


def _uuid_from_bytes(raw: str) -> str:
    return f"regexp_replace(lower(hex({raw})), '^(.{{8}})(.{{4}})(.{{4}})(.{{4}})(.{{12}})$', '$1-$2-$3-$4-$5')"


def _rules() -> dict[str, LogicalType]:
    i32, i64, text = SchemaType.INT32, SchemaType.INT64, SchemaType.STRING
    date, local, instant, string = DateType(), TimestampType(), TimestamptzType(), StringType()
    time_ms = LogicalType(i32, string, partial(temporal.time_from_units, units_per_second=1_000))
    time_us = LogicalType(i64, string, partial(temporal.time_from_units, units_per_second=1_000_000))
    time_ns = LogicalType(i64, string, partial(temporal.time_from_units, units_per_second=1_000_000_000))
    days = LogicalType(i32, date, temporal.date_from_days)
    local_ms = LogicalType(i64, local, _from(temporal.sent_ms, temporal.local), fallible=True)
    of_avro: dict[str, Callable[[str], str]] = {"millis": temporal.exact_ms, "micros": str, "nanos": temporal.exact_ns}
    return {
        "org.apache.kafka.connect.data.Date": days,
        "org.apache.kafka.connect.data.Time": time_ms,
        "org.apache.kafka.connect.data.Timestamp": local_ms,
        "io.debezium.time.Date": days,
        "io.debezium.time.Time": time_ms,
        "io.debezium.time.MicroTime": time_us,
        "io.debezium.time.NanoTime": time_ns,
        "io.debezium.time.Timestamp": local_ms,
        "io.debezium.time.MicroTimestamp": LogicalType(
            i64, local, _from(temporal.sent_us, temporal.local), fallible=True
        ),
        "io.debezium.time.NanoTimestamp": LogicalType(i64, local, _from(temporal.sent_ns, temporal.local)),
        "io.debezium.time.ZonedTimestamp": LogicalType(text, instant, iso_text.instant_from_text, fallible=True),
        "io.debezium.time.IsoDate": LogicalType(text, date, iso_text.date_from_text, fallible=True),
        "io.debezium.time.IsoTime": LogicalType(text, string, "regexp_replace({}, 'Z$', '')".format),
        "io.debezium.time.IsoTimestamp": LogicalType(text, local, iso_text.timestamp_from_text, fallible=True),
        TEXT_BYTES: LogicalType(
            SchemaType.BYTES, string, "try_validate_utf8(CAST({} AS STRING))".format, fallible=True, advice=_NO_TEXT
        ),
        VARIABLE_SCALE_DECIMAL: LogicalType(SchemaType.STRUCT, string, _variable_scale, fallible=True),
        f"{AVRO}date": LogicalType(i32, date, "date_from_unix_date({})".format),
        f"{AVRO}time-millis": time_ms,
        f"{AVRO}time-micros": time_us,
        **{
            f"{AVRO}{prefix}timestamp-{unit}": LogicalType(i64, kind, _from(micros, made), fallible=unit == "millis")
            for prefix, kind, made in (("", instant, temporal.instant), ("local-", local, temporal.local))
            for unit, micros in of_avro.items()
        },
        f"{AVRO}uuid": LogicalType(SchemaType.BYTES, string, _uuid_from_bytes),
        f"{DECLARED}date": LogicalType(text, date, iso_text.date_from_token, fallible=True),
        f"{DECLARED}timestamp": LogicalType(text, instant, iso_text.instant_from_token, fallible=True),
        f"{DECLARED}timestamp_ntz": LogicalType(text, local, iso_text.timestamp_from_token, fallible=True),
    }


def _from(micros: Callable[[str], str], made: Callable[[str], str]) -> Callable[[str], str]:
    return lambda number: made(micros(number))


_RULES = _rules()
