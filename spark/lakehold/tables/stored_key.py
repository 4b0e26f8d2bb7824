"""The columns of an Iceberg table, and its key: those that identified its rows when it was created, as a table property."""

from __future__ import annotations

import json
from collections.abc import Sequence

from lakehold.iceberg.data_tables import TableState
from lakehold.tables.column_types import ColumnType

KEY = "lakehold.key"
"""Table property: the key's columns, by commas or as JSON."""


def key_text(key: Sequence[str]) -> str:
    """Join the columns by commas; as JSON if a name has a comma, or begins as JSON would."""
    by_commas = ",".join(key)
    return by_commas if by_commas.count(",") == len(key) - 1 and by_commas[:1] != "[" else json.dumps(key)


def _key_names(text: str) -> list[str]:
    return json.loads(text) if text.startswith("[") else text.split(",")


def is_keyless(state: TableState | None) -> bool:
    """Return whether a table was written without a key. It stays so: later message keys say nothing about its rows."""
    if state is None or state.current is None or KEY not in state.properties:
        return False
    return not any(_key_names(state.properties[KEY]))


def stored_key(state: TableState | None) -> tuple[ColumnType, ...]:
    """Return the key that the table was created with; empty without a table."""
    names = _key_names(state.properties.get(KEY, "")) if state is not None else []
    columns = {c.name: c for c in stored_columns(state)}
    return tuple(columns[name] for name in names if name in columns)


def stored_columns(state: TableState | None) -> tuple[ColumnType, ...]:
    """Return the columns of the table; empty without a table."""
    return tuple(ColumnType(f.name, f.field_type) for f in state.schema.fields) if state is not None else ()
