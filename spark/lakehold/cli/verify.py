"""`lakehold verify`: writes which keys of captured tables differ from the database, and possible reasons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lakehold.cli.command_output import Output, TableOutput
from lakehold.errors import LakeholdError
from lakehold.lake import Lake
from lakehold.progress import Progress
from lakehold.sql.result import Result
from lakehold.verify.comparison import Comparison

DIFFERENCE_COLUMNS = ("table", "key", "difference", "columns")
"""Columns of the table for people: one row for each key that differs."""

COMPARISON_COLUMNS = (
    *("table", "upstream", "at", "snapshot_id", "equal", "rows_in_database", "rows_in_lake", "different", "complete"),
    *("unresolved", "key", "columns", "skipped", "differences", "reasons"),
)
"""Fields of the output for programs: one object for each table.

If not `complete`, the comparison ended early and more keys may differ. `unresolved` keys kept changing while they were read.
"""


EQUAL, DIFFERENT, NOT_COMPARED = 0, 1, 2
"""Exit codes, as those of diff(1); of several tables the worst counts."""


def run_verify(  # noqa: PLR0913 - a command's options
    lake: Lake,
    tables: Sequence[str],
    output: Output,
    progress: Progress,
    *,
    connection: str | None = None,
    upstream: str | None = None,
) -> int:
    """Compare tables, and write what differs. If one cannot be compared, the others are compared nevertheless.

    Args:
        lake: The lake.
        tables: Full names.
        output: Takes what differs.
        progress: Shows how much is read.
        connection: The connection to the database, if lakehold does not capture the table.
        upstream: The table in that database.

    Returns:
        The exit code.
    """
    code = EQUAL
    for table in tables:
        try:
            found = lake.verify(table, connection=connection, upstream=upstream, progress=progress)
        except LakeholdError as error:
            output.error(error)
            code = NOT_COMPARED
            continue
        code = max(code, EQUAL if found.is_equal else DIFFERENT)
        _write(found, output)
    return code


def _write(found: Comparison, output: Output) -> None:
    if not isinstance(output, TableOutput):
        output.result(Result(COMPARISON_COLUMNS, [_row(found)]))
    elif found.differences:
        rows = [
            (found.full_name, ", ".join(map(str, each.key)), each.side.value, ", ".join(each.columns))
            for each in found.differences
        ]
        output.result(Result(DIFFERENCE_COLUMNS, rows))
    output.notice(found.summary)
    for column in found.skipped:
        output.notice(f"column {column.name} of {found.full_name} was not compared: {column.reason}")
    for reason in found.reasons:
        output.notice(reason)


def _row(found: Comparison) -> tuple[Any, ...]:
    return (
        found.full_name,
        found.upstream,
        found.at_ms,
        found.snapshot_id,
        found.is_equal,
        found.rows_in_database,
        found.rows_in_lake,
        found.different,
        found.is_whole,
        found.unresolved,
        list(found.key),
        list(found.columns),
        [{"column": column.name, "reason": column.reason} for column in found.skipped],
        [
            {"key": list(each.key), "difference": each.side.value, "columns": list(each.columns)}
            for each in found.differences
        ],
        list(found.reasons),
    )
