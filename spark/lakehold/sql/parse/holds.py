"""Parsing `CREATE HOLD`, `ALTER HOLD`, `DROP HOLD`, `SHOW HOLDS` and `SHOW CREATE HOLD`.

A hold keeps tables readable from a time on. Each function parses what follows the words that name its statement.
"""

from __future__ import annotations

from dataclasses import replace

from lakehold.holds.commands import NewHold
from lakehold.sql.query.queries import missing_namespace
from lakehold.sql.statements import AdvanceHold, CreateHold, DropHold, RenameHold, ShowCreateHold, ShowHolds
from lakehold.sql.text.as_of import parse_timestamp
from lakehold.sql.text.cursor import Cursor
from lakehold.sql.text.names import table_reference
from lakehold.sql.text.options import DurationOption, OptionSet, TextOption, parse_options
from lakehold.state.holds import Check

_A_HOLD = "a hold name"
_OPTIONS = OptionSet(known={"max_lag": DurationOption(), "check": TextOption(tuple(Check))})


def parse_create_hold(cursor: Cursor) -> CreateHold:
    """Parse `[[IF NOT EXISTS] [namespace.]name] ON table, …`, then AT and WITH in any order."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    has_name = if_not_exists or not cursor.at_words("ON")
    namespace, name = _new_name(cursor) if has_name else (None, None)
    cursor.expect("ON")
    hold = NewHold(name, namespace, table_list(cursor))
    for clause in cursor.clauses("AT", "WITH"):
        hold = replace(hold, at_ms=parse_timestamp(cursor)) if clause == "AT" else _with_options(cursor, hold)
    return CreateHold(hold, if_not_exists)


def parse_alter_hold(cursor: Cursor) -> AdvanceHold | RenameHold:
    """Parse `name ADVANCE [TO time]` or `name RENAME TO new`."""
    name = hold_reference(cursor)
    if cursor.choose("ADVANCE", "RENAME TO") == "ADVANCE":
        to_ms = parse_timestamp(cursor) if cursor.accept("TO") else None
        cursor.expect_end()
        return AdvanceHold(name, to_ms)
    first = cursor.peek()
    namespace, new_name = _new_name(cursor)
    if namespace is not None:
        message = f"expected a name without a namespace, found {namespace}.{new_name}"
        raise cursor.error_at(first, message, last=cursor.last, hint="a hold stays in its namespace")
    cursor.expect_end()
    return RenameHold(name, new_name)


def parse_drop_hold(cursor: Cursor) -> DropHold:
    """Parse `[IF EXISTS] name`."""
    if_exists = cursor.accept("IF", "EXISTS")
    name = hold_reference(cursor)
    cursor.expect_end()
    return DropHold(name, if_exists)


def parse_show_holds(cursor: Cursor) -> ShowHolds:
    """Parse SHOW HOLDS, after which nothing may follow."""
    cursor.expect_end()
    return ShowHolds()


def parse_show_create_hold(cursor: Cursor) -> ShowCreateHold:
    """Parse the name of a hold after SHOW CREATE HOLD."""
    name = hold_reference(cursor)
    cursor.expect_end()
    return ShowCreateHold(name)


def hold_reference(cursor: Cursor) -> str:
    """Read the name of a hold, with its namespace if that is written."""
    namespace, name = _name(cursor)
    return name if namespace is None else f"{namespace}.{name}"


def table_list(cursor: Cursor) -> tuple[str, ...]:
    """Parse `namespace.table, …`, each table at most once."""
    tables: list[str] = []
    more = True
    while more:
        first, at = cursor.peek(), cursor.position
        name = table_reference(cursor)
        if cursor.position == at + 1:
            raise missing_namespace(cursor, first)
        if name in tables:
            raise cursor.error_at(first, f'table "{name}" is given twice', last=cursor.last)
        tables.append(name)
        more = cursor.accept_symbol(",")
    return tuple(tables)


def _name(cursor: Cursor) -> tuple[str | None, str]:
    first = cursor.object_name(_A_HOLD)
    return (first, cursor.object_name(_A_HOLD)) if cursor.accept_symbol(".") else (None, first)


def _new_name(cursor: Cursor) -> tuple[str | None, str]:
    first = cursor.peek()
    namespace, name = _name(cursor)
    if "." in name or not name:
        raise cursor.error_at(first, "the name of a hold has a dot in it or is empty", last=cursor.last)
    return namespace, name


def _with_options(cursor: Cursor, hold: NewHold) -> NewHold:
    """Parse `(MAX LAG [=] duration, CHECK [=] 'require' | 'record' | 'off')`, and add the options to `hold`."""
    options = parse_options(cursor, _OPTIONS)
    max_lag_ms, check = options.get("max_lag"), options.get("check")
    return replace(
        hold,
        max_lag_ms=max_lag_ms if isinstance(max_lag_ms, int) else None,
        check=None if check is None else Check(str(check)),
    )
