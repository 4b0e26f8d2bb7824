"""Columns of PostgreSQL's types that Debezium treats specially or does not know, beside `postgres_types`, and MariaDB's types."""

from __future__ import annotations

from typing import LiteralString, NamedTuple


class CapturedColumn(NamedTuple):
    """A column, and how both sides show its value as one text; the lake skips columns without a `lake_type`."""

    name: str
    type: str
    value: str
    lake_type: str | None
    in_database: str = "{}::text"
    in_lake: str = "{}"


def _text(name: str, kind: str, value: str) -> CapturedColumn:
    return CapturedColumn(name, kind, value, "string")


def _texts(name: str, kind: str, value: str) -> CapturedColumn:
    return CapturedColumn(name, f"{kind}[]", value, "array<string>", "array_to_json({}::text[])::text", "to_json({})")


def _skipped(name: str, kind: str, value: str) -> CapturedColumn:
    return CapturedColumn(name, kind, value, None)


IN_POSTGRES: tuple[LiteralString, ...] = (
    *(f"CREATE EXTENSION {name}" for name in ("hstore", "citext", "ltree", "isn", "cube")),
    "CREATE TYPE mood AS ENUM ('happy', 'so so')",
    "CREATE TYPE pair AS (a int, b text)",
    "CREATE TYPE float_range AS RANGE (subtype = float8)",
    "CREATE DOMAIN cents AS numeric(12, 2)",
    "CREATE DOMAIN raw AS bytea",
    "CREATE DOMAIN scores AS int[]",
)
"""Types and extensions that the columns need."""

POSTGRES: tuple[CapturedColumn, ...] = (
    _text("pair", "pair", "ROW(1, 'naïve 日本')"),
    _texts("pairs", "pair", "ARRAY[ROW(1, 'x')::pair]"),
    _text("spans", "int4multirange", "'{[1,3),[5,9)}'"),
    _text("days", "datemultirange", "'{[2026-01-01,2026-02-01)}'"),
    _text("lsn", "pg_lsn", "'16/B374D848'"),
    _texts("lsns", "pg_lsn", "'{16/B374D848}'"),
    _text("own_range", "float_range", "'[1.5,2)'"),
    _text("query", "tsquery", "'fat & cat'"),
    _text("words", "tsvector", "'a fat cat'"),
    _text("transaction", "xid8", "'42'"),
    _text("path_in", "jsonpath", "'$.a'"),
    _text("relation", "regclass", "'pg_class'"),
    _text("solid", "cube", "'(1,2)'"),
    _text("serial_number", "issn", "'1436-4522'"),
    _text("book", "isbn", "'978-0-393-04002-9'"),
    _text("any_case", "citext", "'AbC'"),
    _text("tree", "ltree", "'a.b.c'"),
    _text("card", "macaddr8", "'08:00:2b:01:02:03:04:05'"),
    _text("one", '"char"', "'a'"),
    _text("named", "name", "'a name'"),
    _text("days_in", "daterange", "'[2026-01-01,)'"),
    CapturedColumn(
        "booked",
        "tstzrange",
        "'[2026-01-01 00:30+00,)'",
        "string",
        """format('["%s+00",)', lower({}) AT TIME ZONE 'UTC')""",
    ),
    _text("bare", "numeric", "'-12.5'"),
    _text("hundreds", "numeric(5, -2)", "-1234567"),
    _text("mood", "mood", "'so so'"),
    _texts("moods", "mood", "'{happy,so so}'"),
    _texts("cases", "citext", "'{AbC,NULL}'"),
    _texts("addresses", "inet", "'{10.0.0.1/8}'"),
    CapturedColumn(
        "pairs_of",
        "hstore",
        "'a=>1, b=>NULL'",
        "string",
        "hstore_to_json({})::text",
        "replace(replace({}, ':', ': '), ',', ', ')",
    ),
    CapturedColumn("defaulted", "int DEFAULT 5", "NULL", "int"),
    CapturedColumn("object", "oid", "4294967295", "bigint"),
    CapturedColumn("cents", "cents", "-1.5", "decimal(12,2)"),
    CapturedColumn("scores", "scores", "'{1,2}'", "array<int>", "array_to_json({})::text", "to_json({})"),
    CapturedColumn("raw", "raw", "'\\x00ff'", "binary", "encode({}, 'hex')", "lower(hex({}))"),
    CapturedColumn(
        "raws", "bytea[]", "ARRAY['\\x00ff'::bytea]", "array<binary>", "encode({}[1], 'hex')", "lower(hex({}[0]))"
    ),
    CapturedColumn("debt", "money", "-1234567.89", "decimal(38,2)", "{}::numeric::text"),
    CapturedColumn("five_bits", "bit(5)", "B'10110'", "binary", "to_hex({}::int)", "hex({})"),
    CapturedColumn("bits", "varbit", "B'1011001110001'", "binary", "'7116'", "hex({})"),
    CapturedColumn(
        "one_varying", "varbit(1)", "B'0'", "boolean", "CASE {}::text WHEN '1' THEN 'true' ELSE 'false' END"
    ),
    CapturedColumn("times", "time[]", "'{12:00,NULL}'", "array<string>", "array_to_json({})::text", "to_json({})"),
    CapturedColumn(
        "place",
        "point",
        "'(1,2)'",
        "struct<x:double,y:double,wkb:binary,srid:int>",
        "{}::text",
        "concat('(', int({0}.x), ',', int({0}.y), ')')",
    ),
    CapturedColumn(
        "area",
        "box",
        "'(1,2),(3,4)'",
        "struct<wkb:binary,srid:int,extensions:map<string,string>>",
        "'box'",
        "{}.extensions['type']",
    ),
    CapturedColumn(
        "ring",
        "circle",
        "'<(1,2),3>'",
        "struct<center:struct<x:double,y:double,wkb:binary,srid:int>,radius:double>",
        "'3'",
        "int({}.radius)",
    ),
    CapturedColumn("line", "line", "'{1,2,3}'", "struct<a:double,b:double,c:double>", "'3'", "int({}.c)"),
    _skipped("intervals", "interval[]", "'{1 day}'"),
    _skipped("prices", "money[]", "'{1.5}'"),
    _skipped("names", "name[]", "'{a}'"),
    _skipped("documents", "xml[]", "ARRAY['<a/>'::xml]"),
    _skipped("places", "point[]", "ARRAY['(1,2)'::point]"),
    _skipped("areas", "box[]", "ARRAY['(1,2),(3,4)'::box]"),
    _skipped("flags", "bit(3)[]", "ARRAY[B'101']"),
    _skipped("matrix", "int[][]", "'{{1,2},{3,4}}'"),
    _skipped("grid", "text[][]", "'{{a,b},{c,d}}'"),
    _skipped("vector", "oidvector", "'1 2'"),
    _skipped("cursor", "refcursor", "'c'"),
)

MARIADB: tuple[CapturedColumn, ...] = (
    *(
        CapturedColumn(name, kind, value, lake_type, in_database, in_lake)
        for name, kind, value, lake_type, in_database, in_lake in (
            ("big", "BIGINT UNSIGNED NOT NULL DEFAULT 5", "18446744073709551615", "decimal(20,0)", "{}", "{}"),
            ("filled", "BIGINT(20) UNSIGNED ZEROFILL", "18446744073709551615", "decimal(20,0)", "{}", "{}"),
            ("whole", "INT UNSIGNED", "4294967295", "bigint", "{}", "{}"),
            ("medium", "MEDIUMINT UNSIGNED", "16777215", "int", "{}", "{}"),
            ("small", "SMALLINT UNSIGNED", "65535", "int", "{}", "{}"),
            ("tiny", "TINYINT UNSIGNED", "255", "int", "{}", "{}"),
            ("flag", "BOOLEAN", "7", "int", "{}", "{}"),
            ("one", "TINYINT(1)", "-7", "int", "{}", "{}"),
            ("cents", "DECIMAL(12,2)", "-1.50", "decimal(12,2)", "{}", "{}"),
            ("digits", "DECIMAL(65,30)", "1.5", "string", "{}", "{}"),
            ("single", "FLOAT", "1.5", "float", "{}", "{}"),
            ("tenth", "FLOAT", "0.1", "float", "{}", "{}"),
            ("seven_digits", "FLOAT", "1234.567", "float", "IF(id = 1, {}, '1234.567')", "{}"),
            ("two_decimals", "FLOAT(7,2)", "12345.67", "double", "{}", "float({})"),
            ("twice", "DOUBLE", "1.5", "double", "{}", "{}"),
            ("bit", "BIT", "1", "boolean", "IF({}, 'true', 'false')", "{}"),
            ("bits", "BIT(8)", "b'10110'", "binary", "HEX({})", "HEX({})"),
            ("latin", "VARCHAR(20) CHARACTER SET latin1", "'naïve'", "string", "{}", "{}"),
            ("japanese", "VARCHAR(20) CHARACTER SET sjis", "'日本'", "string", "{}", "{}"),
            ("wide", "TEXT CHARACTER SET utf16", "'naïve 日'", "string", "{}", "{}"),
            ("padded", "BINARY(4)", "0x00FF", "binary", "HEX({})", "HEX({})"),
            ("raw", "BLOB", "0x00FF", "binary", "HEX({})", "HEX({})"),
            ("document", "JSON", "'{\"a\": 1}'", "string", "{}", "{}"),
            ("choice", "ENUM('a','b,c')", "'b,c'", "string", "{}", "{}"),
            ("choices", "SET('a','b','c')", "'a,c'", "string", "{}", "{}"),
            ("early", "DATE", "'0099-01-01'", "date", "{}", "{}"),
            ("no_day", "DATE", "'0000-00-00'", "date", "NULL", "{}"),
            ("time", "TIME(6)", "'12:34:56.000001'", "string", "{}", "{}"),
            (
                "local",
                "DATETIME",
                "'0070-01-01 12:00:00'",
                "timestamp_ntz",
                "{}",
                "date_format({}, 'yyyy-MM-dd HH:mm:ss')",
            ),
            ("local_micros", "DATETIME(6)", "'9999-12-31 23:59:59.999999'", "timestamp_ntz", "{}", "{}"),
            ("instant", "TIMESTAMP(6) NULL", "'2026-01-01 12:00:00.123456'", "timestamp", "{}", "{}"),
            ("year", "YEAR", "2026", "int", "{}", "{}"),
            (
                "place",
                "POINT",
                "ST_GeomFromText('POINT(1 2)')",
                "struct<x:double,y:double,wkb:binary,srid:int>",
                "'1'",
                "int({}.x)",
            ),
            (
                "area",
                "GEOMETRY",
                "ST_GeomFromText('LINESTRING(1 2,3 4)')",
                "struct<wkb:binary,srid:int>",
                "HEX(ST_AsWKB({}))",
                "hex({}.wkb)",
            ),
            ("token", "UUID", "'123e4567-e89b-12d3-a456-426655440011'", "string", "{}", "{}"),
            ("double_id", "INT AS (id * 2) VIRTUAL", "", "int", "{}", "{}"),
            ("hidden", "INT INVISIBLE", "5", "int", "{}", "{}"),
        )
    ),
)
