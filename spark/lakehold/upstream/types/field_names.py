"""Names of columns as a connector writes them: for Avro, Debezium replaces characters that a name may not have by `_`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lakehold.upstream.found.columns import FoundColumn

_IN_AVRO = re.compile(r"[A-Za-z0-9_]")


def is_avro(config: Mapping[str, str]) -> bool:
    """Return whether a connector of this configuration writes Avro, for which Debezium changes names."""
    return config.get("value.converter", "").endswith(".AvroConverter")


def field_name(column: str, config: Mapping[str, str]) -> str:
    """Return the name that a connector of this configuration gives a column."""
    if not is_avro(config):
        return column
    # Java has two characters for one beyond the first 65536.
    written = "".join(c if _IN_AVRO.match(c) else "_" * (len(c.encode("utf-16-be")) // 2) for c in column)
    return f"_{written}" if written[:1].isdecimal() else written


def colliding_columns(
    columns: Sequence[FoundColumn], config: Mapping[str, str]
) -> list[tuple[FoundColumn, FoundColumn]]:
    """Return pairs of columns to which a connector would give one name: the column that keeps it, and the other.

    Debezium fails at such a table, for all of its tables. The columns of the key keep their names first, then the older ones.
    """
    first: dict[str, FoundColumn] = {}
    pairs = []
    for column in sorted(columns, key=lambda c: not c.is_key):
        kept = first.setdefault(field_name(column.name, config), column)
        if kept is not column:
            pairs.append((kept, column))
    return pairs


def as_written(columns: Sequence[FoundColumn], config: Mapping[str, str]) -> tuple[FoundColumn, ...]:
    """Return the columns that a connector of this configuration writes, by the names that it gives them.

    A column whose name in messages is that of another one is skipped.
    """
    out = [column for _, column in colliding_columns(columns, config)]
    return tuple(replace(column, name=field_name(column.name, config)) for column in columns if column not in out)
