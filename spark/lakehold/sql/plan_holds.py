"""Statements about holds, and what holds forbid -> effects. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from lakehold.definitions import full_name_text, object_text
from lakehold.errors import DefinitionError
from lakehold.holds.commands import NewHold
from lakehold.holds.rules import check_not_kept, find
from lakehold.model.definitions import Definitions
from lakehold.sql.durations import duration_text
from lakehold.sql.effects import DropHolds, Notice, Plan, PutHold, Rows
from lakehold.sql.statements import (
    CreateHold,
    Drop,
    DropHold,
    ExplainDefinition,
    ForSpark,
    RenameHold,
    ShowCreateHold,
    ShowHolds,
    Statement,
)
from lakehold.state.holds import Check, Hold, Holds

_NEEDS_HOLDS = (CreateHold, Drop, DropHold, ForSpark, RenameHold, ShowCreateHold, ShowHolds)


def needs_holds(statement: Statement) -> bool:
    """Whether the plan of `statement` depends on the holds."""
    if isinstance(statement, ExplainDefinition):
        statement = statement.statement
    return isinstance(statement, _NEEDS_HOLDS) and (not isinstance(statement, ForSpark) or bool(statement.target))


def create_hold(create: CreateHold, sql: str, holds: Holds) -> Plan:
    """A new hold; with IF NOT EXISTS one that is there stays as it is."""
    new = replace(create.hold, sql=sql)
    existing = next((hold for hold in holds if hold.name == new.name), None)
    if existing is None or not create.if_not_exists:
        return Plan((PutHold(new),))
    differing = "; ".join(_differences(existing, new))
    return Plan((Notice(f'hold "{new.name}" exists and stays as it is: {differing}'),) if differing else ())


def drop_hold(drop: DropHold, holds: Holds, definitions: Definitions) -> Plan:
    """One hold less, which is no subscriber's; with IF EXISTS there may be none."""
    if drop.if_exists and not any(drop.name in (hold.name, hold.full_name) for hold in holds):
        return Plan((Notice(f'hold "{drop.name}" does not exist: nothing to drop'),))
    hold = find(holds, drop.name)
    check_not_kept(hold, "dropped", definitions)
    return Plan((DropHolds((hold,)),))


def drop_holds_on(names: Collection[str], holds: Holds, *, cascade: bool) -> tuple[DropHolds, ...]:
    """What dropping the tables `names` does to holds: a hold goes as a whole.

    Raises:
        DefinitionError: Some are held and there is no CASCADE.
    """
    held = tuple(hold for hold in holds if any(hold.is_on(name) for name in names))
    if not held:
        return ()
    if not cascade:
        hint = "Drop these holds first, or add CASCADE to drop them as a whole with the table."
        raise _held(next(name for name in names if held[0].is_on(name)), held, hint)
    return (DropHolds(held),)


def refuse_held(verb: str, target: str, holds: Holds) -> None:
    """A table that is held neither goes nor gets another name behind the hold's back."""
    held = tuple(hold for hold in holds if hold.is_on(target))
    if held and verb in ("DROP", "RENAME"):
        other = f"DROP TABLE {target} CASCADE drops them with the table." if verb == "DROP" else ""
        raise _held(target, held, f"Drop these holds first. {other}".strip())


def show_create_hold(hold: Hold) -> Rows:
    """One row: the full name, and the statement that makes the hold where it is now."""
    return Rows(("name", "create_statement"), ((hold.full_name, _create_statement(hold)),))


def _create_statement(hold: Hold) -> str:
    tables = ", ".join(full_name_text(table.full_name) for table in hold.tables)
    at = [] if hold.at_ms is None else [f"AT {hold.at_ms}"]
    options = f"WITH (MAX LAG = '{duration_text(hold.max_lag_ms)}', CHECK = '{hold.check.value}')"
    return "\n  ".join(
        [f"CREATE HOLD {object_text(hold.namespace)}.{object_text(hold.name)} ON {tables}", *at, options]
    )


def _differences(hold: Hold, new: NewHold) -> list[str]:
    """Where it stands is no difference: that is what advancing changes."""
    old = [full_name_text(table.full_name) for table in hold.tables]
    wanted = [full_name_text(name) for name in new.tables]
    check = (new.check or Check.OFF).value
    pairs = [
        (hold.full_name, f"{new.namespace or hold.namespace}.{hold.name}"),
        (f"ON {', '.join(old)}", f"ON {', '.join(wanted)}"),
        (f"CHECK = '{hold.check.value}'", f"CHECK = '{check}'"),
    ]
    if new.max_lag_ms is not None:
        pairs.append((f"MAX LAG = '{duration_text(hold.max_lag_ms)}'", f"MAX LAG = '{duration_text(new.max_lag_ms)}'"))
    return [f"it has {one}, the statement says {other}" for one, other in pairs if one != other]


def _held(full_name: str, held: Holds, hint: str) -> DefinitionError:
    places = ", ".join(f'"{hold.full_name}"' + (f" at {hold.at_ms}" if hold.at_ms is not None else "") for hold in held)
    return DefinitionError(f'table "{full_name}" is held', code="table-held", detail=f"Holds: {places}.", hint=hint)
