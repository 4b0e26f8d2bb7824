"""Deduplicates one table's changes: decides once, and again only if the batch truncates or re-snapshots the table."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from lakehold.definitions import Envelope
from lakehold.ingest.deduplicate.carriers import Carrier, DriverRows
from lakehold.ingest.deduplicate.counting import statistics_of
from lakehold.ingest.deduplicate.engine import Engine, Rule
from lakehold.ingest.deduplicate.snapshots import SnapshotReadEnds, advanced, begins_snapshot
from lakehold.ingest.deduplicate.statistics import BatchStatistics
from lakehold.ingest.envelope.change_columns import Changes
from lakehold.model.high_water_marks import HighWaterMarks


@dataclass(frozen=True)
class Deduplicated:
    """The changes of a batch with the decisions on them.

    Args:
        frame: See `Carrier.frame`.
        statistics: Their statistics.
        high_water_marks: The table's high-water marks after the batch.
        replaces_all: Whether rows that the batch does not contain are deleted: by TRUNCATE, or by a snapshot that a table
            without a key did not show yet.
        unsent: The columns whose values some applied change keeps from a row that the batch deletes before it.
    """

    frame: DataFrame
    statistics: BatchStatistics
    high_water_marks: HighWaterMarks
    replaces_all: bool
    unsent: frozenset[str] = frozenset()


def deduplicated(
    carrier: Carrier, envelope: Envelope, rule: Rule, *, read_ends: SnapshotReadEnds, sequence_number: int | None
) -> Deduplicated:
    """Deduplicate the changes of one batch to one table; they can be read until their carrier is released.

    Args:
        carrier: The carrier of the changes.
        envelope: The table's envelope.
        rule: The rule by which they are deduplicated.
        read_ends: The offsets up to which the batch reads the table's topic.
        sequence_number: See `lakehold.ingest.deduplicate.snapshots.advanced`.
    """
    headers, changes, high_water_marks = carrier.headers, carrier.changes, rule.high_water_marks
    engine = Engine(headers, rule)
    decisions = engine.deduplicate()
    found = statistics_of(headers, decisions, high_water_marks)
    is_resnapshot, moved = False, high_water_marks
    if envelope.has_positions:
        is_resnapshot = begins_snapshot(high_water_marks, found, is_multiset=changes.is_multiset)
        # Rows without a key go when the snapshot begins: later, only some of the equal rows would be older ones.
        older = None if changes.is_multiset else sequence_number
        moved = advanced(high_water_marks, found, read_ends=read_ends, sequence_number=older)
    shown = high_water_marks.snapshot
    shows_resnapshot = (
        read_ends.resnapshot is not None and shown is not None and shown.position[:2] == read_ends.resnapshot[:2]
    )
    not_below = found.snapshot_position if is_resnapshot else shown.position if shown and shows_resnapshot else None
    if not_below is not None or found.truncates:
        decisions = engine.deduplicate(
            truncates=decisions.counts & headers.is_truncate, not_below=not_below, are_all_placed=is_resnapshot
        )
        # Changes that a truncate or a newer snapshot made obsolete are not repeats.
        again = statistics_of(headers, decisions, high_water_marks)
        found = replace(again, truncates=found.truncates, repeated=found.repeated)
    values = {c.name for c in changes.columns if c.name not in changes.key}
    givers = engine.givers(decisions, values)
    unsent = {headers.kept.names[code] for code in headers.kept.codes[(givers >= 0) & headers.is_delete[givers]]}
    replaces_all = found.truncates > 0 or (is_resnapshot and changes.is_multiset)
    return Deduplicated(carrier.frame(decisions, givers), found, moved, replaces_all, frozenset(unsent))


def statistics_of_few(changes: Changes, rule: Rule) -> BatchStatistics:
    """Deduplicate a few changes, a sample of a batch, for their statistics alone; see `deduplicated`."""
    headers = DriverRows(changes).headers
    return statistics_of(headers, Engine(headers, rule).deduplicate(), rule.high_water_marks)
