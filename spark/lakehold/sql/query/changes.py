"""Parsing `CHANGES(table AS OF t1 UP TO t2, …)`, which stands in a query where a table may."""

from __future__ import annotations

from sqlglot import Token

from lakehold.sql.statements import PlacedChanges
from lakehold.sql.text.as_of import parse_as_of, parse_timestamp
from lakehold.sql.text.cursor import Cursor
from lakehold.sql.text.dialect import StatementText
from lakehold.sql.text.envelope import parse_changes_envelope
from lakehold.sql.text.names import table_reference
from lakehold.subscribe.statement import Changes, OutputShape, Raw
from lakehold.timeline.as_of import AsOf

_BEFORE_A_TABLE = frozenset({"FROM", "JOIN", "USING"})
_QUERY_WORDS = frozenset({"SELECT", "WITH", "FROM", "VALUES"})
_TABLE_PARTS = 2


def find_changes(written: StatementText) -> tuple[PlacedChanges, ...]:
    """Find every `CHANGES(…)` in a statement.

    Raises:
        StatementError: One of them is not well formed.
    """
    cursor = Cursor(written)
    found: list[PlacedChanges] = []
    while not cursor.at_end:
        if at_changes(cursor):
            first = cursor.advance()
            changes = _parse_changes(cursor, first)
            found.append(PlacedChanges(changes, first.start, cursor.last.end + 1))
        else:
            cursor.advance()
    return tuple(found)


def at_changes(cursor: Cursor) -> bool:
    """Return whether `CHANGES(…)` comes next where a table may stand; in `SELECT changes(a)` it is a function."""
    if not cursor.at_words("CHANGES") or cursor.source_text(cursor.peek(1)) != "(":
        return False
    return (cursor.position > 0 and cursor.source_text(cursor.last).upper() in _BEFORE_A_TABLE) or _at_table(cursor)


def _at_table(cursor: Cursor) -> bool:
    """Return whether the bracket after the next word begins with a name and AS OF."""
    place = 2
    while cursor.source_text(cursor.peek(place + 1)) == ".":
        place += 2
    return cursor.word(place + 1) == "AS" and cursor.word(place + 2) == "OF"


def _parse_changes(cursor: Cursor, first: Token) -> Changes:
    """Parse the rest of `CHANGES(table AS OF t1 [UP TO t2] [, ENVELOPE …] [, NET])`."""
    cursor.expect_symbol("(")
    table = _table(cursor)
    as_of, up_to_ms = _times(cursor, first)
    shape: OutputShape = Raw()
    options = ["ENVELOPE", "NET"]
    net = False
    while options and cursor.accept_symbol(","):
        option = cursor.choose(*options)
        options.remove(option)
        if option == "NET":
            net = True
        else:
            shape = parse_changes_envelope(cursor)
    if not cursor.accept_symbol(")"):
        raise cursor.error(*(['","'] if options else []), '")"')
    return Changes(table, as_of, up_to_ms, shape, net)


def _table(cursor: Cursor) -> str:
    first = cursor.peek()
    if cursor.source_text(first) == "(" or cursor.word() in _QUERY_WORDS:
        message = f"expected namespace.table, found {cursor.source_text(first)}"
        hint = "CHANGES reads one table; SUBSCRIBE (SELECT …) reads the changes of a query"
        raise cursor.error_at(first, message, hint=hint)
    table = table_reference(cursor)
    if table.count(".") + 1 < _TABLE_PARTS:
        hint = f"write shop.{table}, for example"
        raise cursor.error_at(first, f"expected namespace.table, found {table}", hint=hint)
    return table


def _times(cursor: Cursor, first: Token) -> tuple[AsOf, int | None]:
    """Parse `AS OF t1` and `UP TO t2`, in any order; `first` is the word CHANGES."""
    as_of: AsOf | None = None
    up_to_ms: int | None = None
    clauses = ["AS OF", "UP TO"]
    while clauses and cursor.source_text(cursor.peek()) not in (",", ")"):
        if cursor.word() not in [clause.split()[0] for clause in clauses]:
            raise cursor.error(*clauses, '","', '")"')
        clause = cursor.choose(*clauses)
        clauses.remove(clause)
        if clause == "AS OF":
            as_of = parse_as_of(cursor)
        else:
            up_to_ms = parse_timestamp(cursor)
    if as_of is None:
        hint = "write AS OF t, AS OF AT LEAST t or AS OF EARLIEST"
        raise cursor.error_at(first, "CHANGES needs the time after which changes come", last=cursor.last, hint=hint)
    return as_of, up_to_ms
