"""One column of every type of a real PostgreSQL table, its values, and the expressions that compare it with the lake's.

Instants and days are compared as numbers, because Python has none outside of the years 1 to 9999. Floats are compared as
doubles, and types that Iceberg lacks as text. Values that Debezium 3.6 itself changes are missing: dates before Christ or in
October 1582, the trailing zeros of a numeric without a scale, and bytes of leading zeros of a bit string.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.live_source import Column

_DAYS = "CASE {0} WHEN 'infinity' THEN date '9999-12-31' WHEN '-infinity' THEN date '0001-01-01' ELSE {0} END - date '1970-01-01'"
_MICROSECONDS = (
    "(extract(epoch FROM CASE {{0}} WHEN 'infinity' THEN {kind} '9999-12-31 23:59:59.999999{utc}' "
    "WHEN '-infinity' THEN {kind} '0001-01-01 00:00:00{utc}' ELSE {{0}} END) * 1000000)::bigint"
)
_LOCAL_MICROSECONDS = _MICROSECONDS.format(kind="timestamp", utc="")
_INSTANT_MICROSECONDS = _MICROSECONDS.format(kind="timestamptz", utc="+00")
_LAKE_LOCAL_MICROSECONDS = "timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', {0})"
_ISO_INTERVAL = (
    "'P' || extract(year FROM {0}) || 'Y' || extract(month FROM {0}) || 'M' || extract(day FROM {0}) || 'DT' || "
    "extract(hour FROM {0}) || 'H' || extract(minute FROM {0}) || 'M' || trim_scale(extract(second FROM {0})) || 'S'"
)


@dataclass(frozen=True)
class TypedColumn:
    """A column of one type.

    Attributes:
        name: Its name.
        type: Its type in PostgreSQL.
        lake_type: Its type in the lake, as Spark names it.
        values: SQL literals.
        in_postgres: Expression of PostgreSQL that shows it, `{0}` being its name.
        in_lake: Expression of Spark that shows it.
    """

    name: str
    type: str
    lake_type: str
    values: tuple[str, ...]
    in_postgres: str = "{0}"
    in_lake: str = "{0}"

    @property
    def compared(self) -> Column:
        """Return the column with the expressions of both sides."""
        return Column(self.name, self.in_postgres, self.in_lake)


_EXACT = ("99999999999999999999999999999999999999", "-99999999999999999999999999999999999999", "0", "1")
_LONG = f"{'9' * 60}.{'123' * 20}"
_SHOWN = "CASE WHEN {0} IS NOT NULL THEN format('%s', {0}) END"

_TRIMMED = "CASE WHEN {0} IS NOT NULL THEN ARRAY(SELECT trim_scale(each)::text FROM unnest({0}) AS each) END"

COLUMNS: tuple[TypedColumn, ...] = (
    TypedColumn("small", "smallint", "int", ("-32768", "0", "32767")),
    TypedColumn("whole", "int", "int", ("-2147483648", "0", "2147483647")),
    TypedColumn("big", "bigint", "bigint", ("-9223372036854775808", "0", "9223372036854775807")),
    TypedColumn(
        "single",
        "real",
        "float",
        ("'NaN'", "'Infinity'", "'-Infinity'", "'-0'", "3.4028235e38", "1e-45", "0.1", "-1.5"),
        "{0}::float8",
        "CAST({0} AS DOUBLE)",
    ),
    TypedColumn(
        "twice",
        "double precision",
        "double",
        ("'NaN'", "'Infinity'", "'-Infinity'", "'-0'", "1.7976931348623157e308", "5e-324", "0.1", "-1e22"),
    ),
    TypedColumn("cents", "numeric(12, 2)", "decimal(12,2)", ("9999999999.99", "-9999999999.99", "0", "-0.01")),
    TypedColumn("digits", "numeric(38, 0)", "decimal(38,0)", _EXACT),
    TypedColumn("fraction", "numeric(38, 38)", "decimal(38,38)", tuple(f"{n}e-38" for n in _EXACT[:3])),
    TypedColumn("beyond", "numeric(50, 10)", "string", (f"{'9' * 40}.0000000001", "-0.5"), "{0}::text"),
    TypedColumn(
        "any_scale", "numeric", "string", (_LONG, f"-{_LONG}", "0", "-0.00001", "1.10", "1e20"), "trim_scale({0})::text"
    ),
    TypedColumn("price", "money", "decimal(38,2)", ("12.34", "-0.05"), "{0}::numeric"),
    TypedColumn("flag", "bool", "boolean", ("true", "false")),
    TypedColumn(
        "body",
        "text",
        "string",
        ("''", "E'\\\\ \"a\"\\n\\t\\u0001'", "'naïve 日本 🌱'", "'null'", "repeat('long ', 3000)"),
    ),
    TypedColumn("short", "varchar(20)", "string", ("''", "' padded '")),
    TypedColumn("padded", "char(5)", "string", ("''", "'ab'"), _SHOWN),
    TypedColumn("raw", "bytea", "binary", ("'\\x'", "'\\x00ff10'", "decode(repeat('00ff', 4000), 'hex')")),
    TypedColumn("one_bit", "bit(1)", "boolean", ("B'1'", "B'0'"), "{0} = B'1'"),
    TypedColumn(
        "bits",
        "bit(8)",
        "binary",
        ("B'00000001'", "B'11111110'", "B'00000000'"),
        "regexp_replace(upper(lpad(to_hex({0}::int), 2, '0')), '^00$', '')",
        "hex({0})",
    ),
    TypedColumn(
        "wide_bits",
        "bit(16)",
        "binary",
        ("B'0000000000000001'", "B'1000000000000000'", "B'0000000000000000'"),
        "regexp_replace(upper(lpad(to_hex({0}::int & 255), 2, '0') || lpad(to_hex({0}::int >> 8), 2, '0')), '(00)+$', '')",
        "hex({0})",
    ),
    TypedColumn(
        "day",
        "date",
        "date",
        (
            *("'0001-01-01'", "'9999-12-31'", "'1969-12-31'", "'infinity'", "'-infinity'"),
            "'5874897-12-31'",
        ),
        _DAYS,
        "unix_date({0})",
    ),
    TypedColumn("clock", "time", "string", ("'00:00'", "'23:59:59.999999'", "'12:34:56.7'", "'24:00'"), "{0}::text"),
    TypedColumn("clock_ms", "time(3)", "string", ("'00:00'", "'23:59:59.999'", "'12:34:56.05'"), "{0}::text"),
    TypedColumn(
        "zoned_clock",
        "timetz",
        "string",
        ("'12:34:56.789+02'", "'00:30:00+14'", "'23:59:59.999999-12'"),
        "replace(({0} AT TIME ZONE 'UTC')::text, '+00', 'Z')",
    ),
    TypedColumn(
        "seconds",
        "timestamp(0)",
        "timestamp_ntz",
        ("'1969-12-31 23:59:59'", "'9999-12-31 23:59:59'", "'0001-01-01'"),
        _LOCAL_MICROSECONDS,
        _LAKE_LOCAL_MICROSECONDS,
    ),
    TypedColumn(
        "millis",
        "timestamp(3)",
        "timestamp_ntz",
        ("'1969-12-31 23:59:59.999'", "'9999-12-31 23:59:59.999'", "'infinity'", "'-infinity'"),
        _LOCAL_MICROSECONDS,
        _LAKE_LOCAL_MICROSECONDS,
    ),
    TypedColumn(
        "micros",
        "timestamp",
        "timestamp_ntz",
        (
            *("'1969-12-31 23:59:59.999999'", "'9999-12-31 23:59:59.999999'", "'0001-01-01'", "'1582-10-10 12:00'"),
            *("'infinity'", "'-infinity'", "'4713-11-24 12:00 BC'"),
        ),
        _LOCAL_MICROSECONDS,
        _LAKE_LOCAL_MICROSECONDS,
    ),
    TypedColumn(
        "instant",
        "timestamptz",
        "timestamp",
        (
            *("'2026-03-29 02:30+02'", "'0001-01-01 00:00+00'", "'9999-12-31 23:59:59.999999+00'"),
            *("'infinity'", "'-infinity'", "'0044-03-15 12:00+00 BC'"),
        ),
        _INSTANT_MICROSECONDS,
        "unix_micros({0})",
    ),
    TypedColumn(
        "duration",
        "interval",
        "string",
        (
            *("'1 year 2 mons 3 days 04:05:06.789'", "'-1 day'", "'00:00:00.000001'", "'100 years'", "'1 mon'"),
            *("'30 days 10:30:00'", "'-00:00:01.5'", "'-14 mons +3 days'", "'1000000 hours'"),
        ),
        _ISO_INTERVAL,
    ),
    TypedColumn("token", "uuid", "string", ("'00000000-0000-0000-0000-000000000000'", "md5('a')::uuid"), "{0}::text"),
    TypedColumn("document", "json", "string", ('\'{"b":1,  "a":[null]}\'', "'[]'", "'null'"), "{0}::text"),
    TypedColumn(
        "binary_document", "jsonb", "string", ('\'{"b":1.10,  "a":[null]}\'', "'{}'", "'\"text\"'"), "{0}::text"
    ),
    TypedColumn("mood", "mood", "string", ("'happy'", "'so-so'"), "{0}::text"),
    TypedColumn("address", "inet", "string", ("'192.168.0.1'", "'10.0.0.0/8'", "'::1'"), _SHOWN),
    TypedColumn("network", "cidr", "string", ("'10.0.0.0/8'",), _SHOWN),
    TypedColumn("card", "macaddr", "string", ("'08:00:2b:01:02:03'",), _SHOWN),
    TypedColumn("markup", "xml", "string", ("'<a>ü</a>'",), _SHOWN),
    TypedColumn("span", "int4range", "string", ("'[1,5)'", "'empty'"), _SHOWN),
    TypedColumn("numbers", "int[]", "array<int>", ("'{}'", "'{1,NULL,-2147483648}'")),
    TypedColumn("larges", "bigint[]", "array<bigint>", ("'{}'", "'{9223372036854775807}'")),
    TypedColumn("texts", "text[]", "array<string>", ("'{}'", "ARRAY['', 'a,b', '\"q\"', NULL, '日本']")),
    TypedColumn("amounts", "numeric[]", "array<string>", ("'{}'", "'{1.10,NULL,-0.00001,0.0,100.0}'"), _TRIMMED),
    TypedColumn("prices", "numeric(10, 2)[]", "array<decimal(10,2)>", ("'{}'", "'{1.10,NULL,-99999999.99}'")),
    TypedColumn("flags", "bool[]", "array<boolean>", ("'{}'", "'{true,false,NULL}'")),
    TypedColumn("days", "date[]", "array<date>", ("'{}'", "'{2026-01-01,NULL}'")),
    TypedColumn("tokens", "uuid[]", "array<string>", ("'{}'", "ARRAY[md5('a')::uuid]"), "{0}::text[]"),
)

ROWS = max(len(c.values) for c in COLUMNS)
"""The number of rows in which every value occurs once or more."""


def create_statement(table: str) -> str:
    """Return the statement that creates the table; the type `mood` must exist."""
    return f"CREATE TABLE {table} (id int PRIMARY KEY, {', '.join(f'{c.name} {c.type}' for c in COLUMNS)})"


def insert_statements(table: str, first_id: int) -> Iterator[str]:
    """Yield inserts of `ROWS` rows from `first_id` on, and then one of nulls."""
    for row in range(ROWS):
        values = ", ".join(f"CAST({c.values[row % len(c.values)]} AS {c.type})" for c in COLUMNS)
        yield f"INSERT INTO {table} VALUES ({first_id + row}, {values})"
    yield f"INSERT INTO {table} (id) VALUES ({first_id + ROWS})"


def update_statements(table: str, first_id: int) -> Iterator[str]:
    """Yield updates that give each row of `insert_statements` the next row's values, and the row of nulls some values."""
    for row in range(ROWS + 1):
        values = ", ".join(f"{c.name} = CAST({c.values[(row + 1) % len(c.values)]} AS {c.type})" for c in COLUMNS)
        yield f"UPDATE {table} SET {values} WHERE id = {first_id + row}"
