"""Parsing the options that lay out a table's files: `PARTITIONED BY (…)` and `SORTED BY (…)`."""

from __future__ import annotations

from sqlglot import Token, TokenType

from lakehold.errors import StatementError
from lakehold.sql.text.cursor import Cursor
from lakehold.table_layout import IDENTITY, NUMBERED, TIMES, PartitionField, SortField, fields_text

_TRANSFORMS = {**{name: name for name in (IDENTITY, *TIMES, *NUMBERED)}, **{f"{name}s": name for name in TIMES}}
_LARGEST = 2**31 - 1


def parse_partitioning(cursor: Cursor) -> str:
    """Parse `(day(created), bucket(8, id), region)`; returns the text that definitions keep."""
    cursor.expect_symbol("(", hint="write PARTITIONED BY (column), or (day(column), bucket(8, column))")
    found: list[PartitionField] = []
    more = True
    while more:
        token = cursor.peek()
        field = _partition(cursor)
        if any(field.kind == f.kind and field.column.lower() == f.column.lower() for f in found):
            hint = "a column has one of year, month, day and hour" if field.kind == "time" else ""
            raise cursor.error_at(token, f'column "{field.column}" is partitioned by {field.kind} twice', hint=hint)
        found.append(field)
        more = cursor.more()
    return fields_text(found)


def parse_sorting(cursor: Cursor) -> str:
    """Parse `(a, b DESC NULLS LAST)`; returns the text that definitions keep."""
    cursor.expect_symbol("(", hint="write SORTED BY (column), or (column DESC)")
    found: list[SortField] = []
    more = True
    while more:
        token = cursor.peek()
        column = cursor.column_name()
        if column.lower() in {field.column.lower() for field in found}:
            raise cursor.error_at(token, f'column "{column}" is given twice')
        descending = cursor.accept("DESC")
        if not descending:
            cursor.accept("ASC")
        nulls_first = not descending
        if cursor.accept("NULLS"):
            nulls_first = cursor.choose("FIRST", "LAST") == "FIRST"
        found.append(SortField(column, descending, nulls_first))
        more = cursor.more()
    return fields_text(found)


def _partition(cursor: Cursor) -> PartitionField:
    first = cursor.peek()
    if cursor.source_text(cursor.peek(1)) != "(":
        return PartitionField(IDENTITY, cursor.column_name())
    transform = _TRANSFORMS.get(cursor.word().lower())
    if transform is None:
        known = ", ".join((*TIMES, *(f"{name}(n, …)" for name in NUMBERED)))
        raise cursor.error_at(first, f"{cursor.source_text(first)} is no transform", hint=f"the transforms are {known}")
    cursor.advance()
    cursor.expect_symbol("(")
    number = None
    if transform in NUMBERED:
        number = _number(cursor, transform)
        cursor.expect_symbol(",")
    column = cursor.column_name()
    cursor.expect_symbol(")")
    return PartitionField(transform, column, number)


def _number(cursor: Cursor, transform: str) -> int:
    token = cursor.peek()
    if token.token_type is not TokenType.NUMBER or not token.text.isdigit():
        raise cursor.error("a whole number", hint=f"write {transform}(8, column)")
    cursor.advance()
    if not 1 <= int(token.text) <= _LARGEST:
        raise cursor.error_at(token, f"{transform} takes a number from 1 to {_LARGEST}, found {token.text}")
    return int(token.text)


def refused_format(cursor: Cursor, token: Token, subject: str, *, detail: str, hint: str) -> StatementError:
    """Build the error of a table that format version 2 cannot hold."""
    return StatementError(
        f"{subject} needs Iceberg's format version 3",
        sql=cursor.sql,
        start=token.start,
        end_exclusive=token.end + 1,
        code="format-version",
        detail=detail,
        hint=hint,
    )
