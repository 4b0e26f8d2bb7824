"""Checks of statements that Spark would run: tables that only lakehold may change are not changed by hand. Pure."""

from __future__ import annotations

from lakehold.definitions import Derived
from lakehold.errors import DefinitionError
from lakehold.model.lake_definitions import Definitions
from lakehold.model.reserved_namespaces import refuse_changed_by_hand
from lakehold.object_names import full_name_text
from lakehold.sql.plan.holds import refuse_held
from lakehold.sql.plan.subscriptions import check_no_output
from lakehold.state.holds import Holds


def check_by_hand(verb: str, target: str, definitions: Definitions, holds: Holds) -> None:
    """Refuse a statement of Spark's that would change a table which only lakehold may change, or drop a held one.

    Raises:
        DefinitionError: `target` is such a table.
    """
    name = known_name(target, definitions, holds)
    check_not_own(verb, name, definitions)
    refuse_held(verb, name, holds)


def check_not_own(verb: str, full_name: str, definitions: Definitions) -> None:
    """Refuse to change a table that only lakehold may change; ALTER TABLE may change all but those of `mz_catalog`.

    Raises:
        DefinitionError: `full_name` is such a table.
    """
    refuse_changed_by_hand(verb, full_name)
    if verb != "ALTER":
        _check_not_fed(verb, full_name, definitions)
        check_no_output(verb, full_name, definitions)


def known_name(written: str, definitions: Definitions, holds: Holds) -> str:
    """Return the name of the table that `written` may be for Spark, in which unquoted names keep their case.

    It is the name as written if lakehold knows no such table.
    """
    derived: list[Derived] = [entry.definition for entry in definitions.subscriptions.values()]
    derived += [entry.definition for entry in definitions.views.values()]
    known = {
        *definitions.tables,
        *(name for each in derived for name in (each.into, *each.tables)),
        *(table.full_name for hold in holds for table in hold.tables),
    }
    if written in known:
        return written
    return next((name for name in sorted(known) if name.lower() == written.lower()), written)


def _check_not_fed(verb: str, target: str, definitions: Definitions) -> None:
    """Refuse to change a fed table by hand: its rows would no longer equal its topic's."""
    if target not in definitions.tables:
        return
    table = definitions.tables[target].definition
    if verb == "RENAME":
        raise DefinitionError(
            f'table "{target}" is fed by source "{table.source}"',
            code="table-fed",
            detail="Under another name, its source would not find it.",
            hint="Create another table from the same topic under the new name, and drop this one once that one is in sync.",
        )
    dropping = f"DROP TABLE {full_name_text(target)}"
    if verb == "DROP":
        raise DefinitionError(
            f'table "{target}" is fed by source "{table.source}"',
            code="table-fed",
            detail="Spark's DROP TABLE would leave its definition, and its source would create it again.",
            hint=f"{dropping} removes the table and its data: one name, and then nothing, RESTRICT or CASCADE.",
        )
    raise DefinitionError(
        f'table "{target}" is fed by source "{table.source}"',
        code="table-fed",
        detail=f"{verb} by hand would make it differ from topic '{table.topic}'.",
        hint=f"Change the rows upstream; {dropping} removes the table and its data.",
    )
