"""Explains why rows of a table may differ, as far as the lake, the database or the differences show it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from lakehold.definitions import ConnectionType, Table
from lakehold.iceberg.data_tables import SnapshotState
from lakehold.model.readers import TableProgress
from lakehold.object_names import full_name_text
from lakehold.times import iso
from lakehold.upstream.types.captured_columns import sent_type
from lakehold.verify.compared_columns import ComparedColumn
from lakehold.verify.comparison import Difference, Side

_REPLACES = "replace"
"""The operation of a snapshot that rewrites files and changes no row."""


def reason_of_standby(replayed_ms: int) -> str:
    """Say how far the database is, if it is a standby."""
    return (
        f"the database is a standby, which had replayed the log of its primary up to {iso(replayed_ms)} UTC: "
        "later changes are not compared, and differ where the lake has them."
    )


def reason_of_copy(full_name: str, history: Sequence[SnapshotState]) -> str:
    """Say why rows may differ of a table that lakehold does not capture; `history` has its snapshots, newest first."""
    newest = f"; its newest snapshot is of {iso(history[0].committed_at_ms)} UTC" if history else ""
    return (
        f"{full_name} is not captured from the database{newest}: rows that changed in the database differ until the writer "
        "of the table takes the changes."
    )


def reasons(  # noqa: PLR0913 - all that is known of a table
    table: Table,
    differences: Sequence[Difference],
    columns: Sequence[ComparedColumn],
    database: ConnectionType,
    progress: TableProgress,
    history: Sequence[SnapshotState],
) -> Iterator[str]:
    """Yield a sentence for each possible reason why rows differ.

    Args:
        table: The captured table.
        differences: Keys that differ, at least one.
        columns: The compared columns.
        database: The kind of database.
        progress: What ingests have recorded of the table, such as the number of its messages in error.
        history: Its snapshots, newest first.
    """
    foreign = [s for s in history if not s.is_of(table.source) and s.summary.get("operation") != _REPLACES]
    if foreign:
        newest = foreign[0]
        yield (
            f"snapshots of the table that no ingest wrote: {len(foreign)}, the newest at "
            f"{iso(newest.committed_at_ms)} UTC (snapshot {newest.snapshot_id}): somebody else changed the table."
        )
    if progress.open_errors:
        yield (
            f"{progress.open_errors} messages of the table are in error and were not applied: SELECT * FROM "
            f"mz_catalog.mz_source_errors WHERE table_name = '{table.full_name}'."
        )
    if not table.applies_truncates and any(each.side is Side.ONLY_IN_LAKE for each in differences):
        yield (
            f"{table.full_name} ignores TRUNCATE, because it was created WITH (TRUNCATE = 'ignore'): rows that are only "
            f"in the lake go with ALTER SOURCE {full_name_text(table.source)} RESNAPSHOT."
        )
    differing = Counter(name for difference in differences for name in difference.columns)
    nulls = Counter(name for difference in differences for name in difference.nulls)
    # Of several rows with one key it is not known which of their columns differ.
    has_several = any(each.side is Side.SEVERAL_ROWS for each in differences)
    for column in columns:
        if not differing[column.name] and not (column.is_missing and has_several):
            continue
        if column.is_missing:
            yield (
                f"column {column.name} is in the database and not in the lake's table: it comes with the next change of a row, "
                f"or with ALTER SOURCE {full_name_text(table.source)} RESNAPSHOT."
            )
        elif nulls[column.name] == differing[column.name] and column.found.has_default:
            yield (
                f"column {column.name} is null in the lake and has a default in the database: rows that are older than the "
                f"column get their values with ALTER SOURCE {full_name_text(table.source)} RESNAPSHOT."
            )
        lost = sent_type(column.found, database).lost_text
        if lost:
            yield f"column {column.name} ({column.found.text}): {lost}."
