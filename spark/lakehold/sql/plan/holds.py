"""Planning of statements on holds, and of drops of tables that are held. Pure.

A hold keeps tables readable from a time on. A subscriber (a subscription or durable client) has one on the tables it reads.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from lakehold.errors import DefinitionError
from lakehold.holds.commands import NewHold
from lakehold.holds.rules import check_not_kept, find
from lakehold.model.lake_definitions import Definitions
from lakehold.object_names import full_name_text, object_text
from lakehold.sql.plan.statement_effects import DropHolds, Notice, Plan, PutHold, Rows
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
from lakehold.sql.text.durations import duration_text
from lakehold.state.holds import Check, Hold, Holds

_NEEDS_HOLDS = (CreateHold, Drop, DropHold, ForSpark, RenameHold, ShowCreateHold, ShowHolds)


def needs_holds(statement: Statement) -> bool:
    """Return whether the plan of `statement` depends on the holds; of Spark's statements, those that change a table."""
    if isinstance(statement, ExplainDefinition):
        statement = statement.statement
    return isinstance(statement, _NEEDS_HOLDS) and (not isinstance(statement, ForSpark) or bool(statement.targets))


def create_hold(create: CreateHold, sql: str, holds: Holds) -> Plan:
    """Plan CREATE HOLD; with IF NOT EXISTS an existing hold of the name stays as it is. `sql` is the statement as written."""
    new = replace(create.hold, sql=sql)
    existing = next((hold for hold in holds if hold.name == new.name), None)
    if existing is None or not create.if_not_exists:
        return Plan((PutHold(new),))
    differing = "; ".join(_differences(existing, new))
    return Plan((Notice(f'hold "{new.name}" exists and stays as it is: {differing}'),) if differing else ())


def drop_hold(drop: DropHold, holds: Holds, definitions: Definitions) -> Plan:
    """Plan DROP HOLD, which must not be a subscriber's hold; with IF EXISTS the hold may be missing."""
    if drop.if_exists and not any(drop.name in (hold.name, hold.full_name) for hold in holds):
        return Plan((Notice(f'hold "{drop.name}" does not exist: nothing to drop'),))
    hold = find(holds, drop.name)
    check_not_kept(hold, "dropped", definitions)
    return Plan((DropHolds((hold,)),))


def drop_holds_on(names: Collection[str], holds: Holds, *, cascade: bool) -> tuple[DropHolds, ...]:
    """Plan the drop of the holds on tables that are dropped.

    A hold that is on other tables, too, no longer holds these either; they stay. The hold of a subscription or durable client is
    dropped as any other: without it the subscriber has lapsed (changes that it has not taken may expire), unless the same
    statement drops it.

    Args:
        names: Full names of the dropped tables.
        holds: All holds.
        cascade: Whether the statement has CASCADE.

    Raises:
        DefinitionError: A table is held, and the statement has no CASCADE.
    """
    held = tuple(hold for hold in holds if any(hold.is_on(name) for name in names))
    if not held:
        return ()
    if not cascade:
        hint = f"{_without(held)}, or add CASCADE to drop the holds as a whole with the table."
        raise _held(next(name for name in names if held[0].is_on(name)), held, hint)
    return (DropHolds(held),)


def refuse_held(verb: str, target: str, holds: Holds) -> None:
    """Refuse to drop or rename a table that is held.

    Raises:
        DefinitionError: `target` is held, and `verb` is DROP or RENAME.
    """
    held = tuple(hold for hold in holds if hold.is_on(target))
    if held and verb in ("DROP", "RENAME"):
        other = f"DROP TABLE {target} CASCADE drops them with the table." if verb == "DROP" else ""
        raise _held(target, held, f"{_without(held)}. {other}".strip())


def show_create_hold(hold: Hold) -> Rows:
    """Plan SHOW CREATE HOLD: one row with the full name, and the statement that creates the hold at its present time."""
    return Rows(("name", "create_statement"), ((hold.full_name, _create_statement(hold)),))


def _create_statement(hold: Hold) -> str:
    tables = ", ".join(full_name_text(table.full_name) for table in hold.tables)
    at = [] if hold.at_ms is None else [f"AT {hold.at_ms}"]
    options = f"WITH (MAX LAG = '{duration_text(hold.max_lag_ms)}', CHECK = '{hold.check.value}')"
    return "\n  ".join(
        [f"CREATE HOLD {object_text(hold.namespace)}.{object_text(hold.name)} ON {tables}", *at, options]
    )


def _differences(hold: Hold, new: NewHold) -> list[str]:
    """List the differences between a hold and a statement; its time is none, because advances change it."""
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


def _without(held: Holds) -> str:
    """Return what a person can do so that these holds go, without a full stop."""
    is_kept = any(hold.kept_by is not None for hold in held)
    return "Drop these holds first" + " (one of a subscription, view or client goes with it)" * is_kept


def _held(full_name: str, held: Holds, hint: str) -> DefinitionError:
    places = ", ".join(f'"{hold.full_name}"' + (f" at {hold.at_ms}" if hold.at_ms is not None else "") for hold in held)
    return DefinitionError(f'table "{full_name}" is held', code="table-held", detail=f"Holds: {places}.", hint=hint)
