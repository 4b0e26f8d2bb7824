"""How much history a table keeps: `RETAIN HISTORY` of a fed table, a table property of any other, else the lake's setting."""

from __future__ import annotations

from collections.abc import Mapping

from lakehold.model.definitions import Definitions
from lakehold.settings import Settings

RETAIN_HISTORY = "retain_history"
"""The option of a fed table's definition, a whole number of milliseconds."""

RETAIN_HISTORY_PROPERTY = "lakehold.retain-history-ms"
"""The property of a table that no source feeds, a whole number of milliseconds as text."""


def own_retention_ms(definitions: Definitions, table_properties: Mapping[str, str], full_name: str) -> int | None:
    """The milliseconds of history that the table itself asks for; None when it says nothing that can be read."""
    if full_name in definitions.tables:
        option = definitions.tables[full_name].definition.options.get(RETAIN_HISTORY)
        return option if isinstance(option, int) else None
    written = table_properties.get(RETAIN_HISTORY_PROPERTY, "").strip()
    return int(written) if written.isascii() and written.isdigit() else None


def retention_ms(
    definitions: Definitions, table_properties: Mapping[str, str], full_name: str, settings: Settings
) -> int:
    """The milliseconds of history that a table keeps readable behind its newest time.

    Args:
        definitions: Of the lake.
        table_properties: Of the Iceberg table.
        full_name: `namespace.table`.
        settings: `retain_history_ms` counts where the table says nothing.
    """
    own_ms = own_retention_ms(definitions, table_properties, full_name)
    return settings.retain_history_ms if own_ms is None else own_ms
