"""Retention of a table's history: `RETAIN HISTORY` of a fed table or view, a property of other tables, or the lake's setting."""

from __future__ import annotations

from collections.abc import Mapping

from lakehold.model.lake_definitions import Definitions
from lakehold.settings import Settings

RETAIN_HISTORY = "retain_history"
"""The option of a fed table's definition, a whole number of milliseconds."""

RETAIN_HISTORY_PROPERTY = "lakehold.retain-history-ms"
"""The property of a table that no source feeds, a whole number of milliseconds as text."""


def own_retention_ms(definitions: Definitions, table_properties: Mapping[str, str], full_name: str) -> int | None:
    """Return the milliseconds of history that the table itself asks for; None if it asks for none, or unreadably."""
    if full_name in definitions.views:
        return definitions.views[full_name].definition.retain_history_ms
    if full_name in definitions.tables:
        option = definitions.tables[full_name].definition.options.get(RETAIN_HISTORY)
        return option if isinstance(option, int) else None
    written = table_properties.get(RETAIN_HISTORY_PROPERTY, "").strip()
    return int(written) if written.isascii() and written.isdigit() else None


def retention_ms(
    definitions: Definitions, table_properties: Mapping[str, str], full_name: str, settings: Settings
) -> int:
    """Return how many milliseconds before its newest time a table stays readable.

    Args:
        definitions: The definitions of the lake.
        table_properties: The properties of the Iceberg table.
        full_name: `namespace.table`.
        settings: Their `retain_history_ms` applies if the table asks for nothing.
    """
    own_ms = own_retention_ms(definitions, table_properties, full_name)
    return settings.retain_history_ms if own_ms is None else own_ms
