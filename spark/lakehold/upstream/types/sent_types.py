"""The types in which Debezium sends a database's values, with lakehold's configuration. Data classes only."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyiceberg.types import IcebergType

from lakehold.ingest.decode.connect_schema import ConnectSchema, Field, SchemaType
from lakehold.ingest.decode.logical import DECIMAL, VARIABLE_SCALE_DECIMAL
from lakehold.ingest.decode.types import iceberg_type
from lakehold.upstream.found.values import Loss


@dataclass(frozen=True)
class SentType:
    """The type in which Debezium sends values of a column.

    Attributes:
        schema: The Connect schema of the values; None: the column is left out.
        lost: The values that Debezium does not send unchanged and that no query finds, or why it sends none: a clause without
            a full stop.
        is_reported: A statement reports what is lost, because such values are to be expected.
        stops: The connector fails at a table that has such a column.
        losses: The values that Debezium does not send unchanged and that a query finds.
        differs_in_snapshot: A connector snapshot sends some values in another form than changes do, so that no change finds a
            row of a snapshot by them.
    """

    schema: ConnectSchema | None
    lost: str = ""
    is_reported: bool = False
    stops: bool = False
    losses: tuple[Loss, ...] = ()
    differs_in_snapshot: bool = False

    @property
    def lost_text(self) -> str:
        """Return all that is lost, as clauses."""
        return "; ".join([*([self.lost] if self.lost else []), *(loss.text for loss in self.losses)])

    @property
    def column(self) -> IcebergType | None:
        """Return the type of the lake's column."""
        return iceberg_type(self.schema) if self.schema is not None else None


def plain(kind: SchemaType, name: str | None = None, lost: str = "", **parameters: str) -> SentType:
    """Build a Connect type, or the logical type of a name over it."""
    return SentType(ConnectSchema(kind, name=name, parameters=parameters), lost)


def left_out(why: str) -> SentType:
    """Build the type of columns that are left out."""
    return SentType(None, why)


def stops(why: str) -> SentType:
    """Build the type of columns at which the connector fails."""
    return SentType(None, why, stops=True)


def decimal(precision: int | None, scale: int, lost: str = "", losses: tuple[Loss, ...] = ()) -> SentType:
    """Build a decimal; with an unknown precision if that is None."""
    known = {} if precision is None else {"connect.decimal.precision": str(precision)}
    schema = ConnectSchema(SchemaType.BYTES, name=DECIMAL, parameters={"scale": str(scale), **known})
    return SentType(schema, lost, losses=losses)


def array(items: ConnectSchema, losses: tuple[Loss, ...] = (), lost: str = "") -> SentType:
    """Build an array of values that may be null."""
    return SentType(ConnectSchema(SchemaType.ARRAY, items=replace(items, optional=True)), lost, losses=losses)


def struct(name: str, **fields: ConnectSchema) -> SentType:
    """Build a structure with a logical name."""
    listed = tuple(Field(field, schema) for field, schema in fields.items())
    return SentType(ConnectSchema(SchemaType.STRUCT, name=name, fields=listed))


BOOLEAN = plain(SchemaType.BOOLEAN)
INT16 = plain(SchemaType.INT16)
INT32 = plain(SchemaType.INT32)
INT64 = plain(SchemaType.INT64)
FLOAT32 = plain(SchemaType.FLOAT32)
FLOAT64 = plain(SchemaType.FLOAT64)
TEXT = plain(SchemaType.STRING)
BYTES = plain(SchemaType.BYTES)
DATE = plain(SchemaType.INT32, "io.debezium.time.Date")
MICRO_TIME = plain(SchemaType.INT64, "io.debezium.time.MicroTime")
MILLI_TIMESTAMP = plain(SchemaType.INT64, "io.debezium.time.Timestamp")
MICRO_TIMESTAMP = plain(SchemaType.INT64, "io.debezium.time.MicroTimestamp")
INSTANT = plain(SchemaType.STRING, "io.debezium.time.ZonedTimestamp")
JSON = plain(SchemaType.STRING, "io.debezium.data.Json")
UUID = plain(SchemaType.STRING, "io.debezium.data.Uuid")

_BINARY, _SRID = ConnectSchema(SchemaType.BYTES), ConnectSchema(SchemaType.INT32)
_DOUBLE, _STRING = ConnectSchema(SchemaType.FLOAT64), ConnectSchema(SchemaType.STRING)
POINT = struct("io.debezium.data.geometry.Point", x=_DOUBLE, y=_DOUBLE, wkb=_BINARY, srid=_SRID)
GEOMETRY = struct("io.debezium.data.geometry.Geometry", wkb=_BINARY, srid=_SRID)
EXTENDED_GEOMETRY = struct(
    "io.debezium.data.geometry.Geometry",
    wkb=_BINARY,
    srid=_SRID,
    extensions=ConnectSchema(SchemaType.MAP, keys=_STRING, values=_STRING),
)
LINE = struct("io.debezium.data.geometry.Line", a=_DOUBLE, b=_DOUBLE, c=_DOUBLE)
CIRCLE = struct("io.debezium.data.geometry.Circle", center=POINT.schema or _BINARY, radius=_DOUBLE)
VARIABLE_DECIMAL = struct(VARIABLE_SCALE_DECIMAL, scale=ConnectSchema(SchemaType.INT32), value=_BINARY)


def bits(length: int | None) -> SentType:
    """Build a string of bits; a boolean if there is only one."""
    return BOOLEAN if length == 1 else plain(SchemaType.BYTES, "io.debezium.data.Bits", length=str(length or 0))
