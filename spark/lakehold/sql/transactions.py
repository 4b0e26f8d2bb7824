"""`BEGIN; CREATE …; CREATE HOLD …; COMMIT`: what may stand in it, and a script cut into what happens as one.

The rule of the hold is the seed's ("Read holds"): one may follow the CREATE of the one table that it names, so that nothing of
the table's history is lost before it is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakehold.errors import StatementError
from lakehold.sql.statements import (
    Begin,
    Commit,
    CreateConnection,
    CreateHold,
    CreateSource,
    CreateSubscription,
    CreateTable,
    ParsedStatement,
)

Creating = CreateConnection | CreateSource | CreateTable | CreateSubscription | CreateHold

_ALLOWED = "CREATE CONNECTION, CREATE SOURCE, CREATE TABLE … FROM SOURCE, CREATE SUBSCRIPTION and CREATE HOLD"


@dataclass(frozen=True)
class Transaction:
    """The statements between BEGIN and COMMIT, which happen together or not at all."""

    statements: tuple[ParsedStatement, ...]


def units(script: Sequence[ParsedStatement]) -> tuple[ParsedStatement | Transaction, ...]:
    """What happens one after the other.

    Raises:
        StatementError: A transaction is not closed, not opened, or has in it what it may not.
    """
    found: list[ParsedStatement | Transaction] = []
    opened: ParsedStatement | None = None
    inside: list[ParsedStatement] = []
    for parsed in script:
        match parsed.statement:
            case Begin() if opened is None:
                opened = parsed
            case Begin():
                raise _error(parsed, "expected COMMIT, found BEGIN: transactions do not nest")
            case Commit() if opened is None:
                raise _error(parsed, "expected BEGIN before COMMIT")
            case Commit():
                found.append(Transaction(tuple(inside)))
                opened, inside = None, []
            case _ if opened is None:
                found.append(parsed)
            case _:
                _check_belongs(parsed, inside)
                inside.append(parsed)
    if opened is not None:
        raise _error(opened, "expected COMMIT after BEGIN, found end of text", hint="a script ends its transactions")
    return tuple(found)


def _check_belongs(parsed: ParsedStatement, before: Sequence[ParsedStatement]) -> None:
    statement = parsed.statement
    if not isinstance(statement, Creating):
        raise _error(
            parsed, "expected only CREATE statements between BEGIN and COMMIT", hint=f"{_ALLOWED} may stand there"
        )
    if not isinstance(statement, CreateHold):
        return
    if any(isinstance(earlier.statement, CreateHold) for earlier in before):
        raise _error(parsed, "expected at most one CREATE HOLD between BEGIN and COMMIT")
    last = before[-1].statement if before else None
    if not isinstance(last, CreateTable):
        raise _error(parsed, "expected CREATE HOLD directly after the CREATE TABLE of its table")
    created = last.table.full_name
    if statement.hold.tables != (created,):
        message = f"expected CREATE HOLD … ON {created}, which was just created, and on nothing else"
        raise _error(parsed, message, hint="create holds on other tables outside of BEGIN … COMMIT")


def _error(parsed: ParsedStatement, message: str, hint: str = "") -> StatementError:
    written = parsed.written
    return StatementError(
        message,
        sql=written.sql,
        start=written.start,
        end_exclusive=written.end_exclusive,
        code="transaction",
        hint=hint,
    )
