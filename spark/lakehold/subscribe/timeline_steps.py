"""Steps of a table: its changes from one snapshot to the next, each at its timestamp."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakehold.timeline.timelines import Timeline


@dataclass(frozen=True)
class Step:
    """A table's change from one snapshot to another at `mz_timestamp`; None stands for an empty table."""

    mz_timestamp: int
    before: int | None
    after: int | None


def steps(timeline: Timeline, after_exclusive_ms: int, until_exclusive_ms: int) -> Iterator[Step]:
    """Yield the table's changes of snapshot in the interval."""
    version = timeline.at(after_exclusive_ms)
    before = version.snapshot_id if version is not None else None
    for version in timeline.between(after_exclusive_ms, until_exclusive_ms):
        yield Step(version.mz_timestamp, before, version.snapshot_id)
        before = version.snapshot_id
