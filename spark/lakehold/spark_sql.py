"""Text of Spark SQL: the only place where values become literals and names become identifiers.

Values from users, messages and other writers' tables are text to Spark, whatever they contain. Spark substitutes
`${env:HOME}` in statements and expressions before it parses them, so `PLAIN_TEXT_CONF` switches that off in every
session. In addition, a literal contains no `${` even for sessions that have the substitution on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

PLAIN_TEXT_CONF: Mapping[str, str] = {
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
}
"""Settings under which Spark reads the texts of this module as intended; all sessions of lakehold have them."""

_DAYS_OF_400_YEARS = 146_097

_FLOATS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def literal(value: object) -> str:
    """Write a value as a literal of its type; text becomes a string whatever it contains.

    Raises:
        TypeError: The type has no literal.
    """
    match value:
        case str() | time() | UUID():
            text = _string(str(value))
        case None:
            text = "NULL"
        case bool():
            text = str(value).upper()
        case int():
            text = str(value)
        case float():
            text = _float(value)
        case Decimal():
            text = f"{value:f}BD"
        case datetime():
            text = _timestamp(value)
        case date():
            text = f"DATE'{value.isoformat()}'"
        case bytes() | bytearray():
            text = f"X'{value.hex().upper()}'"
        case _:
            raise TypeError(f"no literal for {type(value).__name__}")
    return text


def date_literal(days: int) -> str:
    """Write a date as a literal from days since 1970; the year may be one that Python's dates do not have.

    The calendar repeats every 400 years.
    """
    cycles, rest = divmod(days, _DAYS_OF_400_YEARS)
    day = date(1970, 1, 1) + timedelta(days=rest)
    year = day.year + 400 * cycles
    shown = f"{year:04}" if 0 <= year <= date.max.year else f"{year:+05}"
    return f"DATE'{shown}-{day:%m-%d}'"


def quoted(name: str) -> str:
    """Write a name as an identifier."""
    return "`" + name.replace("`", "``") + "`"


def quoted_table(catalog: str, full_name: str) -> str:
    """Write `catalog.namespace.table` as an identifier."""
    return ".".join(quoted(part) for part in (catalog, *full_name.split(".")))


def struct_of(fields: Mapping[str, str]) -> str:
    """Write a `named_struct` of expressions, by field name."""
    return f"named_struct({', '.join(f'{literal(name)}, {sql}' for name, sql in fields.items())})"


def struct_type(fields: Iterable[tuple[str, str]]) -> str:
    """Write the type of a structure, from names and types."""
    return f"struct<{','.join(f'{quoted(name)}:{type_}' for name, type_ in fields)}>"


def map_of(entries: Mapping[str, object]) -> str:
    """Write a map of texts."""
    return f"map({', '.join(f'{literal(name)}, {literal(str(value))}' for name, value in entries.items())})"


def alter_table(name: str, change: str) -> str:
    """Write an ALTER TABLE that Spark runs; `name` and `change` are SQL.

    Iceberg claims a statement that begins with `ALTER TABLE` and contains `create branch`, `write ordered by` or the
    like anywhere, even in a column's name. With a comment between the words, Iceberg leaves the statement to Spark.
    """
    return f"ALTER /**/ TABLE {name} {change}"


def alter_iceberg_table(name: str, command: str, rest: str) -> str:
    """Write an ALTER TABLE that Iceberg runs; `name` and `rest` are SQL, `command` the words that Iceberg looks for.

    Iceberg looks for the words in the text without comments, and finds them even in a name. Of two nested comments it
    removes only the inner one, so that it always finds the words in the outer one.
    """
    return f"ALTER TABLE /* /**/ {command} */ {name} {command} {rest}"


def table_properties(properties: Mapping[str, str]) -> str:
    """Write the list in parentheses that follows TBLPROPERTIES."""
    return f"({', '.join(f'{literal(name)} = {literal(value)}' for name, value in properties.items())})"


def spliced(text: str, parts: Iterable[tuple[int, int, str]]) -> str:
    """Replace parts of a text: where each begins, where it ends (exclusive), and the text in its place."""
    for start, end_exclusive, replacement in sorted(parts, reverse=True):
        text = text[:start] + replacement + text[end_exclusive:]
    return text


def _string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\u0024{")
    return f"'{escaped}'"


def _float(value: float) -> str:
    text = repr(value)
    return f"CAST('{_FLOATS[text]}' AS DOUBLE)" if text in _FLOATS else f"{text}D"


def _timestamp(value: datetime) -> str:
    """Write an instant, or a local time if the value has no zone; the type does not depend on the session's settings."""
    if value.tzinfo is None:
        return f"TIMESTAMP_NTZ'{value.isoformat(sep=' ')}'"
    return f"TIMESTAMP_LTZ'{value.astimezone(UTC).isoformat(sep=' ')}'"
