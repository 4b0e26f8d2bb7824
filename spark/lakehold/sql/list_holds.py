"""What SHOW HOLDS answers: the holds, with names in place of the ids that they keep."""

from __future__ import annotations

from typing import Any

from lakehold.holds.rules import keeper_name
from lakehold.model.definitions import Definitions
from lakehold.sql.durations import duration_text
from lakehold.sql.result import Result
from lakehold.state.holds import Holds
from lakehold.state.roles import Roles

HOLD_COLUMNS = ("namespace", "name", "at", "tables", "max_lag", "check", "kept_by", "owner", "forced_from")


def list_holds(holds: Holds, definitions: Definitions, roles: Roles) -> Result:
    """One row a hold, by name; `owner` is null for a hold that nobody owns, or a role that is gone."""
    owners = {role.role_id: role.name for role in roles}
    rows: list[tuple[Any, ...]] = [
        (
            hold.namespace,
            hold.name,
            hold.at_ms,
            [table.full_name for table in hold.tables],
            duration_text(hold.max_lag_ms),
            hold.check.value,
            keeper_name(hold, definitions),
            None if hold.owner is None else owners.get(hold.owner),
            hold.forced_from_ms,
        )
        for hold in sorted(holds, key=lambda hold: hold.full_name)
    ]
    return Result(HOLD_COLUMNS, rows)
