"""SQL expressions by which a database writes the values of its columns as the texts that `text_values` reads. Pure.

PostgreSQL's own texts are almost always right. They need a session with the time zone UTC and the date style ISO.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakehold.definitions import ConnectionType
from lakehold.upstream.found.columns import FoundColumn, FoundType, TypeKind
from lakehold.verify.text_values import TextForm


@dataclass(frozen=True)
class ColumnText:
    """The expression by which a database writes a column.

    Attributes:
        sql: The expression.
        form: The form of its texts.
        sought_as: The type of the values by which the database can find rows, if the column begins a key; empty: it has to
            read all rows.
        is_trimmed: Whether trailing zeros are missing, which a text of the lake may have if no connector of lakehold wrote it.
    """

    sql: str
    form: TextForm = TextForm.PLAIN
    sought_as: str = ""
    is_trimmed: bool = False


_NAMED = (TypeKind.PLAIN, TypeKind.RANGE)
_UNCOMPARED = frozenset(
    {
        *("point", "box", "lseg", "path", "polygon", "circle", "line", "geometry", "geography", "sparsevec", "hstore"),
        *("linestring", "multipoint", "multilinestring", "multipolygon", "geometrycollection", "geomcollection"),
        *("vector", "json"),
    }
)
"""Types of MySQL and MariaDB, or of PostgreSQL, whose texts are not those of the lake's values; `_POSTGRES` has exceptions."""
_POSTGRES = {
    # As a double, which a column of the lake may be: a wider column keeps the value that the messages had.
    "float4": "{0}::float8",
    "money": "{0}::numeric",
    "timetz": "replace(({0} AT TIME ZONE 'UTC')::text, '+00', 'Z')",
    "interval": "'P' || extract(year FROM {0}) || 'Y' || extract(month FROM {0}) || 'M' || extract(day FROM {0}) || 'DT' || "
    "extract(hour FROM {0}) || 'H' || extract(minute FROM {0}) || 'M' || trim_scale(extract(second FROM {0})) || 'S'",
    "vector": "{0}",
    "json": "{0}",
}
TIMES = frozenset({"date", "time", "timetz", "timestamp", "timestamptz", "datetime", "interval"})
"""Types of dates, times and durations, which some configurations of a connector send as numbers of various units."""
_SOUGHT_AS = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), "bigint"),
    **dict.fromkeys(("text", "varchar"), "text"),
    "uuid": "uuid",
}
_POSTGRES_FORMS = {"bytea": TextForm.HEX}
_BITS = frozenset({"bit", "varbit"})
_TRIMMED_NUMBERS = (
    "CASE WHEN {0} IS NOT NULL THEN array_to_json(ARRAY("
    "SELECT trim_scale(number)::text FROM unnest({0}) WITH ORDINALITY AS e(number, place) ORDER BY place)) END"
)
"""Each element of an array of `numeric` as Debezium sends it: without trailing zeros."""
_MYSQL_TEXT = "CONVERT({0} USING utf8mb4)"
_MYSQL = {
    # As text it would have six digits.
    "float": "CAST(CAST({0} AS DOUBLE) AS CHAR)",
    "time": "IF(LOCATE('.', {0}), TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM CAST({0} AS CHAR))), CAST({0} AS CHAR))",
    "timestamp": "CONCAT({0}, '+00')",
    "year": "CAST({0} + 0 AS CHAR)",
}
_UNCOMPARED_ARRAYS = frozenset({"timetz", "hstore"})
_BINARY = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"})


def quoted_name(name: str, database: ConnectionType) -> str:
    """Quote a name, which may be a reserved word."""
    quote = '"' if database is ConnectionType.POSTGRES else "`"
    return f"{quote}{name.replace(quote, 2 * quote)}{quote}"


def quoted_table(upstream: str, database: ConnectionType) -> str:
    """Quote the schema and the name of a table `schema.table`."""
    return ".".join(quoted_name(part, database) for part in upstream.split(".", 1))


def text_of(column: FoundColumn, database: ConnectionType) -> ColumnText | None:
    """Return the expression for a column that the connector sends; None: lakehold cannot compare such values."""
    name = quoted_name(column.name, database)
    if database is not ConnectionType.POSTGRES:
        return _of_mysql(name, column.type)
    kind = column.type.name if column.type.kind in _NAMED else ""
    form = _POSTGRES_FORMS.get(kind, TextForm.PLAIN)
    if kind == "numeric" and not column.type.arguments:
        sql = _TRIMMED_NUMBERS if column.is_array else "trim_scale({0})"
        return ColumnText(sql.format(name), is_trimmed=True)
    if column.is_array:
        # Only the text of the whole array has the elements' own texts: a cast to text[] changes some.
        return None if kind in _UNCOMPARED_ARRAYS else ColumnText(f"array_to_json({name}::text::text[])", form)
    if kind in _BITS:
        # A single bit is a boolean. Of several bits Debezium sends no bytes of leading zeros.
        is_boolean = column.type.arguments == (1,)
        return ColumnText(f"{name}::text") if is_boolean else ColumnText(f"ltrim({name}::text, '0')", TextForm.BITS)
    if kind in _POSTGRES:
        return ColumnText(_POSTGRES[kind].format(name), form)
    return None if kind in _UNCOMPARED else ColumnText(name, form, _SOUGHT_AS.get(kind, ""))


def _of_mysql(name: str, kind: FoundType) -> ColumnText | None:
    if kind.name in _UNCOMPARED:
        return None
    if kind.name in _BINARY:
        return ColumnText(f"HEX({name})", TextForm.HEX)
    if kind.name == "bit":
        bits = kind.arguments[0] if kind.arguments else 1
        return ColumnText(f"LPAD(BIN({name}), {bits}, '0')", TextForm.BITS)
    if kind.name.endswith("int"):
        return ColumnText(f"CAST({name} AS CHAR)", sought_as="bigint")
    if kind.name in _TEXTS:
        return ColumnText(_MYSQL_TEXT.format(name), sought_as="text")
    return ColumnText(_MYSQL.get(kind.name, _MYSQL_TEXT).format(name))
