"""The answer of SHOW HOLDS: the holds, which keep tables readable from a time on, with names in place of ids."""

from __future__ import annotations

from typing import Any

from lakehold.holds.rules import keeper_name
from lakehold.model.lake_definitions import Definitions
from lakehold.sql.result import Result
from lakehold.sql.text.durations import duration_text
from lakehold.state.holds import Holds
from lakehold.state.roles import Roles

HOLD_COLUMNS = ("namespace", "name", "at", "tables", "max_lag", "check", "kept_by", "owner", "forced_from")
"""`at` is the time from which the tables stay readable. `kept_by` is the subscription or client that advances the hold, and
`forced_from` the time at which it was when MAX LAG last moved it (epoch milliseconds, as `at`)."""


def list_holds(holds: Holds, definitions: Definitions, roles: Roles) -> Result:
    """List the holds by name, one row each; `owner` is null for a hold without an owner, or whose role was dropped."""
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
