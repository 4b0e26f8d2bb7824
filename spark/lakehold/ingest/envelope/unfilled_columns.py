"""Remembers new columns whose values in older rows nobody knows, because no database can be asked about them. Pure.

The messages of a topic do not show that `ALTER TABLE … ADD COLUMN c int DEFAULT 5` filled the rows from before, or that a column
only got another name. Such a column is *unfilled*: null in older rows of the lake. The table remembers the column, and the log
position up to which messages may lack it. A later connector snapshot brings all rows with it. Until then `lakehold status` and
the status page report the column.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from lakehold.iceberg.data_tables import TableState
from lakehold.model.high_water_marks import HighWaterMarks, Position
from lakehold.object_names import full_name_text, object_text
from lakehold.spark_sql import literal

UNFILLED = "lakehold.unfilled-columns"
"""Table property: log positions by column, as JSON. A connector snapshot at a later position has the column in all rows."""


def with_unfilled(
    properties: Mapping[str, str], columns: Collection[str], marks: HighWaterMarks
) -> dict[str, Position]:
    """Return the value of `UNFILLED` with more columns, as a mapping.

    Args:
        properties: The properties of the Iceberg table.
        columns: The columns to add.
        marks: High-water marks: messages up to them may lack the columns.
    """
    snapshot = () if marks.snapshot is None else (marks.snapshot.position,)
    position = max((*marks.positions.values(), *snapshot), default=(0, 0, 0, 0))
    return {**json.loads(properties.get(UNFILLED, "{}")), **dict.fromkeys(sorted(columns), position)}


def unfilled_columns(state: TableState, marks: HighWaterMarks) -> tuple[str, ...]:
    """Return the columns that may lack values in older rows; empty once a connector snapshot has brought them."""
    shown = marks.snapshot.position if marks.snapshot is not None and marks.snapshot.complete else None
    present = {field.name for field in state.schema.fields}
    found: dict[str, list[int]] = json.loads(state.properties.get(UNFILLED, "{}"))
    return tuple(
        name for name, position in found.items() if name in present and (shown is None or [*shown] <= [*position])
    )


def unfilled_detail(columns: Collection[str]) -> str:
    """Describe unfilled columns, in a sentence without its full stop."""
    is_one = len(columns) == 1
    names = f"column{'' if is_one else 's'} {', '.join(map(object_text, columns))}"
    return (
        f"{names} {'is' if is_one else 'are'} null in rows from before, which may have a value upstream: a DEFAULT, or one "
        "from under an earlier name"
    )


def unfilled_hint(full_name: str) -> str:
    """Return the sentences that say how unfilled columns of a table get their values."""
    return (
        "Have the connector snapshot the table again: this ends when the lake has all rows of a later snapshot. Otherwise "
        "change each of these rows upstream, or find that they are null there, and then run "
        f"ALTER TABLE {full_name_text(full_name)} UNSET TBLPROPERTIES ({literal(UNFILLED)})."
    )
