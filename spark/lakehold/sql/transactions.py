"""Transactions, `BEGIN; …; COMMIT`: which statements they may have, and how a script is split into them.

A transaction is one commit of one system table. Most transactions create definitions. Among them one hold may follow the CREATE
of the one table or materialized view that it names, so that no history of it is lost before it is held: the hold is stored
before, and exists from the commit of the definition on. The other transactions rename and drop existing holds: the tables of a
hold cannot be changed, but another hold can take its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakehold.errors import StatementError
from lakehold.sql.statements import (
    AdvanceHold,
    Begin,
    Commit,
    CreateConnection,
    CreateHold,
    CreateMaterializedView,
    CreateSource,
    CreateSubscription,
    CreateTable,
    Drop,
    DropHold,
    ExplainDefinition,
    ParsedStatement,
    RenameHold,
    Statement,
)

Creating = CreateConnection | CreateSource | CreateTable | CreateSubscription | CreateMaterializedView | CreateHold
ChangingHold = RenameHold | DropHold

_OUTSIDE = "before BEGIN or after COMMIT"
_ALLOWED = (
    "a transaction may have CREATE CONNECTION, CREATE SOURCE, CREATE TABLE … FROM SOURCE, CREATE MATERIALIZED VIEW, "
    "CREATE SUBSCRIPTION and CREATE HOLD, or ALTER HOLD … RENAME TO and DROP HOLD"
)


@dataclass(frozen=True)
class Transaction:
    """The statements between BEGIN and COMMIT, which run together or not at all, or are only explained."""

    statements: tuple[ParsedStatement, ...]
    is_explained: bool = False

    @property
    def changes_holds(self) -> bool:
        """Return whether the transaction renames and drops holds; else it creates something."""
        return any(isinstance(parsed.statement, ChangingHold) for parsed in self.statements)


def units(script: Sequence[ParsedStatement]) -> tuple[ParsedStatement | Transaction, ...]:
    """Split a script into statements and transactions, which run one after the other.

    Raises:
        StatementError: A transaction is not closed, not opened, or has a statement that it may not have.
    """
    found: list[ParsedStatement | Transaction] = []
    opened: ParsedStatement | None = None
    is_explained = False
    inside: list[ParsedStatement] = []
    for parsed in script:
        match parsed.statement:
            case Begin(is_explained) if opened is None:
                opened = parsed
            case Begin():
                raise _error(parsed, "expected COMMIT, found BEGIN: transactions do not nest")
            case Commit() if opened is None:
                raise _error(parsed, "expected BEGIN before COMMIT")
            case Commit():
                found.append(Transaction(tuple(inside), is_explained))
                opened, inside = None, []
            case _ if opened is None:
                found.append(parsed)
            case _:
                _check_belongs(parsed, inside, is_explained=is_explained)
                inside.append(parsed)
    if opened is not None:
        raise _error(
            opened, "expected COMMIT after BEGIN, found end of text", hint="a script must end its transactions"
        )
    return tuple(found)


def _check_belongs(parsed: ParsedStatement, before: Sequence[ParsedStatement], *, is_explained: bool) -> None:
    statement = parsed.statement
    if is_explained and isinstance(statement, ChangingHold):
        message = "expected only definitions between EXPLAIN BEGIN and COMMIT"
        raise _error(
            parsed,
            message,
            hint="renames and drops of holds need no EXPLAIN: they have no effects upstream",
        )
    if not isinstance(statement, Creating | ChangingHold):
        message = "expected only definitions, or renames and drops of holds, between BEGIN and COMMIT"
        raise _error(parsed, message, hint=_instead_of(statement))
    if before and isinstance(statement, Creating) != isinstance(before[0].statement, Creating):
        message = "expected either definitions or renames and drops of holds between BEGIN and COMMIT, found both"
        raise _error(parsed, message, hint=f"they are commits of their own: run one of them {_OUTSIDE}")
    if isinstance(statement, CreateHold):
        _check_created(parsed, statement, before)


def _check_created(parsed: ParsedStatement, create: CreateHold, before: Sequence[ParsedStatement]) -> None:
    """Check that a hold is the only one of its transaction, and on the table that the statement before it creates."""
    if any(isinstance(earlier.statement, CreateHold) for earlier in before):
        message = "expected at most one CREATE HOLD between BEGIN and COMMIT"
        raise _error(parsed, message, hint="create the other holds after COMMIT, or in a transaction of their own")
    last = before[-1].statement if before else None
    if not isinstance(last, CreateTable | CreateMaterializedView):
        message = "expected CREATE HOLD directly after the CREATE TABLE or CREATE MATERIALIZED VIEW of its table"
        raise _error(parsed, message, hint=f"run it {_OUTSIDE} if its table exists already")
    created = last.table.full_name if isinstance(last, CreateTable) else last.view.full_name
    if create.hold.tables != (created,):
        message = f"expected CREATE HOLD … ON {created}, which was just created, and on nothing else"
        raise _error(parsed, message, hint="create holds on other tables outside of BEGIN … COMMIT")


def _instead_of(statement: Statement) -> str:
    """Choose the hint for a statement that cannot be in a transaction."""
    match statement:
        case Drop(kind):
            return f"run DROP {kind.upper()} {_OUTSIDE}: what it deletes would not come back if the transaction failed"
        case ExplainDefinition():
            return "write EXPLAIN BEGIN for BEGIN, and no other EXPLAIN: it reports what the statements do together"
        case AdvanceHold():
            return f"run ALTER HOLD … ADVANCE {_OUTSIDE}: advances are commits of their own"
        case _:
            return f"run it {_OUTSIDE}; {_ALLOWED}"


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
