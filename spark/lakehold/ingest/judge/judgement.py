"""The judgement of one table's changes: judged once, and again only where what arrived asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from lakehold.definitions import Envelope
from lakehold.ingest.changes import Changes
from lakehold.ingest.judge.arrivals import Arrivals
from lakehold.ingest.judge.by_spark import BySpark
from lakehold.ingest.judge.in_driver import InDriver
from lakehold.ingest.judge.judging import Judging
from lakehold.ingest.marks import Marks
from lakehold.ingest.snapshots import Reach, advanced, begins_anew


@dataclass(frozen=True)
class Judgement:
    """The changes as judged, and what they amount to.

    Args:
        frame: See `Judging.frame`.
        arrived: Counts.
        marks: Of the table after the batch.
        replaces_all: What the batch does not bring goes (TRUNCATE).
    """

    frame: DataFrame
    arrived: Arrivals
    marks: Marks
    replaces_all: bool


@contextmanager
def judgement_of(  # noqa: PLR0913 - changes, and what was before them
    changes: Changes,
    envelope: Envelope,
    marks: Marks,
    *,
    are_few: bool,
    reach: Reach,
    sequence_number: int | None,
) -> Iterator[Judgement]:
    """Judge the changes of one batch to one table; they can be read until the context ends.

    Args:
        changes: The changes.
        envelope: The table's envelope.
        marks: Of the table before the batch.
        are_few: They fit into the driver.
        reach: How far the batch reads the table's topic.
        sequence_number: See `lakehold.ingest.snapshots.advanced`.
    """
    judging: Judging = InDriver(changes, envelope, marks) if are_few else BySpark(changes, envelope, marks)
    try:
        arrived = judging.judge()
        after = arrived.truncate_position
        anew = False
        new_marks = marks
        if envelope is not Envelope.UPSERT:
            anew = begins_anew(marks, arrived)
            new_marks = advanced(marks, arrived, reach=reach, sequence_number=sequence_number)
        if anew or after is not None:
            not_below = arrived.snapshot_position if anew else None
            again = judging.judge(after=after, not_below=not_below)
            # What a truncate or a newer snapshot took was no repetition.
            arrived = replace(
                again, truncates=arrived.truncates, repeated=arrived.repeated, went_back=arrived.went_back
            )
        if arrived.kept:
            judging.fill()
        yield Judgement(judging.frame(), arrived, new_marks, replaces_all=arrived.truncates > 0)
    finally:
        judging.release()
