"""Planning of ALTER TABLE … RETAIN HISTORY, which sets how much of a table's history stays readable.

A table that a source feeds, and a view, has the setting in its definition, any other in a property of the Iceberg table.
"""

from __future__ import annotations

from dataclasses import replace

from lakehold.holds.retention import RETAIN_HISTORY, RETAIN_HISTORY_PROPERTY
from lakehold.model.lake_definitions import Definitions
from lakehold.spark_sql import alter_table, literal, quoted, table_properties
from lakehold.sql.plan.statement_effects import ChangeDefinition, Plan, RunOnSpark

_FULL_NAME = 2
"""Parts of a full name."""


def retain_history(name: str, retained_ms: int | None, definitions: Definitions, catalog: str) -> Plan:
    """Plan the change of the history that a table keeps.

    Args:
        name: Full name of the table, or the complete one of a table of another catalog.
        retained_ms: Milliseconds; None removes the table's own setting.
        definitions: The definitions of the lake.
        catalog: Name of the lake's catalog.
    """
    if name in definitions.views:
        view = definitions.views[name].definition
        changed = replace(view, retain_history_ms=retained_ms)
        return Plan((ChangeDefinition(changed),) if changed != view else ())
    if name not in definitions.tables:
        return Plan((_property(name, retained_ms, catalog),))
    table = definitions.tables[name].definition
    options = {option: value for option, value in table.options.items() if option != RETAIN_HISTORY}
    if retained_ms is not None:
        options[RETAIN_HISTORY] = retained_ms
    return Plan((ChangeDefinition(replace(table, options=options)),) if options != table.options else ())


def _property(name: str, retained_ms: int | None, catalog: str) -> RunOnSpark:
    parts = name.split(".")
    # After USE, Spark would look for `namespace.table` in another catalog.
    table = ".".join(quoted(part) for part in ([catalog, *parts] if len(parts) == _FULL_NAME else parts))
    if retained_ms is None:
        change = f"UNSET TBLPROPERTIES IF EXISTS ({literal(RETAIN_HISTORY_PROPERTY)})"
    else:
        change = f"SET TBLPROPERTIES {table_properties({RETAIN_HISTORY_PROPERTY: str(retained_ms)})}"
    statement = alter_table(table, change)
    return RunOnSpark(statement, 0, len(statement))
