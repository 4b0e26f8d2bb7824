"""Rows that a change would not find, because a connector snapshot sent their values in another form. Pure.

MySQL and MariaDB send the rows of a snapshot as texts, and log changes in binary form. A table without a key finds a row by all
its values, another table by those of its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lakehold.object_names import full_name_text
from lakehold.upstream.differences.gaps import whole_row_tables
from lakehold.upstream.found.columns import FoundColumn
from lakehold.upstream.found.found import Found
from lakehold.upstream.types.captured_columns import sent_type
from lakehold.upstream.types.field_names import as_written
from lakehold.upstream.wanted.wanted import CapturedTable, Wanted


def unfound_hints(tables: Iterable[CapturedTable], wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield a sentence for each table whose snapshotted rows some changes would not find."""
    keyless = {table.object_id for table in whole_row_tables(wanted, found)}
    for table in tables:
        is_keyless, in_lake = table.object_id in keyless, full_name_text(table.full_name)
        columns = [
            column
            for column in _identifying(table, wanted, found, is_keyless=is_keyless)
            if sent_type(column, wanted.capture.database).differs_in_snapshot
        ]
        if columns:
            named = ", ".join(f"{column.name} ({column.text})" for column in columns)
            harm = "stops the table (row-missing)" if is_keyless else "leaves the row as it was"
            yield (
                f"a snapshot has values of {named} in another form than changes, and {in_lake} finds rows by them: a change of a "
                f"row that came in a snapshot {harm}. Drop {in_lake} and create it again with KEY (…) of other columns, unless "
                "such rows never change"
            )


def _identifying(table: CapturedTable, wanted: Wanted, found: Found, *, is_keyless: bool) -> Sequence[FoundColumn]:
    """Return the columns by which the lake's table finds a row."""
    columns = as_written(found.columns.get(table.upstream, ()), wanted.config)
    if listed := table.key or (table.columns if is_keyless else ()):
        return [column for column in columns if column.name in listed]
    return columns if is_keyless else [column for column in columns if column.is_key]
