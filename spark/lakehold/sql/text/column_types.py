"""Types in the column list of CREATE TABLE … FROM SOURCE.

sqlglot parses them, lakehold checks that Iceberg can store them and writes them as Spark does.
"""

from __future__ import annotations

import re

from sqlglot import Token, exp
from sqlglot.errors import SqlglotError

from lakehold.spark_sql import quoted
from lakehold.sql.text.cursor import Cursor
from lakehold.sql.text.dialect import LakeholdDialect
from lakehold.tables.column_names import folded

_SIMPLE = {
    exp.DType.BOOLEAN: "boolean",
    # Iceberg has no shorter integers and no bounded text: it stores these as the next wider type.
    exp.DType.TINYINT: "int",
    exp.DType.SMALLINT: "int",
    exp.DType.INT: "int",
    exp.DType.BIGINT: "bigint",
    exp.DType.FLOAT: "float",
    exp.DType.DOUBLE: "double",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMP: "timestamp",
    exp.DType.TIMESTAMPTZ: "timestamp",
    exp.DType.TIMESTAMPLTZ: "timestamp",
    exp.DType.TIMESTAMPNTZ: "timestamp_ntz",
    exp.DType.TEXT: "string",
    exp.DType.CHAR: "string",
    exp.DType.VARCHAR: "string",
    exp.DType.BINARY: "binary",
}
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_QUOTED_WORDS = ("NOT", "SELECT")
"""Names of fields that `parse_type` reads only in quotes."""

_MAX_PRECISION = 38
_SMALL = re.compile(r"\d{1,4}", re.ASCII)
_MAX_DEPTH = 50
"""Deeper than any schema, and far from the depth at which a recursive parser gives up."""

_HINT = (
    "columns may be BOOLEAN, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), STRING, BINARY, DATE, TIMESTAMP, "
    "TIMESTAMP_NTZ, ARRAY<…>, MAP<…, …> or STRUCT<name: …>"
)


class _NotStorable(Exception):
    """A type that no Iceberg column can have; the text names the type, the hint lists those that are possible."""

    def __init__(self, message: str, hint: str = _HINT) -> None:
        super().__init__(message)
        self.hint = hint


def parse_type(cursor: Cursor) -> str:
    """Parse a type, which ends at a comma or closing parenthesis, and return it as `DataType.fromDDL` reads it: `array<int>`.

    Raises:
        StatementError: The text is no type of Spark SQL, Iceberg cannot store the type, or it is nested too deep.
    """
    tokens = _type_tokens(cursor)
    try:
        parsed = LakeholdDialect().parser().parse_into(exp.DataType, tokens, cursor.sql)[0]
        return _simple_string(parsed)
    except _NotStorable as error:
        raise cursor.error_at(tokens[0], str(error), last=tokens[-1], hint=error.hint) from None
    except SqlglotError:
        written = cursor.sql[tokens[0].start : tokens[-1].end + 1]
        raise cursor.error_at(tokens[0], f"expected a type, found {written}", last=tokens[-1], hint=_HINT) from None


def _type_tokens(cursor: Cursor) -> list[Token]:
    tokens: list[Token] = []
    depth = 0
    while (token := cursor.peek()) is not None:
        text = cursor.source_text(token)
        if depth == 0 and text in (",", ")"):
            break
        depth += (text in ("(", "<")) - (text in (")", ">"))
        if depth > _MAX_DEPTH:
            raise cursor.error_at(token, f"types may be nested {_MAX_DEPTH} deep")
        tokens.append(cursor.advance())
    if not tokens:
        raise cursor.error("a type")
    return tokens


def _simple_string(parsed: exp.Expr | None) -> str:
    if not isinstance(parsed, exp.DataType):
        raise _NotStorable("this type cannot be stored in a table")
    children = parsed.expressions
    match parsed.this:
        case exp.DType.DECIMAL:
            return _decimal(children)
        case exp.DType.ARRAY if len(children) == 1:
            return f"array<{_simple_string(children[0])}>"
        case exp.DType.MAP if len(children) == 2:  # noqa: PLR2004 - key and value
            return f"map<{_simple_string(children[0])},{_simple_string(children[1])}>"
        case exp.DType.STRUCT if children:
            _refuse_collisions([child.name for child in children])
            return f"struct<{','.join(_field(c) for c in children)}>"
        case simple if simple in _SIMPLE:
            return _SIMPLE[simple]
        case other:
            name = other.value if isinstance(other, exp.DType) else str(other)
            raise _NotStorable(f"{name} cannot be stored in a table")


def _decimal(parameters: list[exp.Expr]) -> str:
    """Write a decimal type with both parameters: Spark's defaults are precision 10 and scale 0."""
    written = [parameter.name for parameter in parameters]
    precision, scale, *more = [*(int(w) if _SMALL.fullmatch(w) else -1 for w in written), *(10, 0)[len(written) :]]
    if more or not 1 <= precision <= _MAX_PRECISION or not 0 <= scale <= precision:
        hint = f"precision is 1 to {_MAX_PRECISION}, scale 0 to precision"
        raise _NotStorable(f"DECIMAL({', '.join(written)}) is out of range", hint)
    return f"decimal({precision},{scale})"


def _refuse_collisions(names: list[str]) -> None:
    for place, name in enumerate(names):
        same = next((each for each in names[:place] if folded(each) == folded(name)), None)
        if same is not None:
            hint = "names of fields must differ in more than upper and lower case"
            raise _NotStorable(f'a STRUCT cannot have the fields "{same}" and "{name}"', hint)


def _field(field: exp.Expr) -> str:
    if not isinstance(field, exp.ColumnDef):
        raise _NotStorable("a field of a STRUCT needs a name and a type")
    if field.args.get("constraints"):
        raise _NotStorable("a field of a STRUCT takes no constraint", "write its name and type only")
    return struct_field(field.name, _simple_string(field.args.get("kind")))


def struct_field(name: str, of: str) -> str:
    """Write a field of a STRUCT, whose type is `of`; quote a name that would not be read without quotes."""
    is_plain = _PLAIN_NAME.fullmatch(name) and name.upper() not in _QUOTED_WORDS
    return f"{name if is_plain else quoted(name)}:{of}"
