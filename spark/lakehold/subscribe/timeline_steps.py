"""Steps of a table: its changes from one snapshot to the next, each at its timestamp.

SUBSCRIBE reads the diff of each step (`table_diffs`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakehold.timeline.table_timeline import Timeline


@dataclass(frozen=True)
class Step:
    """A table's change at `mz_timestamp`, from the snapshot `before` to the snapshot `after`: ids; None is an empty table."""

    mz_timestamp: int
    before: int | None
    after: int | None


def steps(timeline: Timeline, after_exclusive_ms: int, until_exclusive_ms: int) -> Iterator[Step]:
    """Yield a step for each snapshot that the table showed after `after_exclusive_ms` and before `until_exclusive_ms`.

    The first step begins with the snapshot at `after_exclusive_ms`. Expired snapshots have no step: the next one covers them.
    """
    version = timeline.at(after_exclusive_ms)
    before = version.snapshot_id if version is not None else None
    for version in timeline.between(after_exclusive_ms, until_exclusive_ms):
        yield Step(version.mz_timestamp, before, version.snapshot_id)
        before = version.snapshot_id


def net_step(timeline: Timeline, after_exclusive_ms: int, until_exclusive_ms: int) -> Iterator[Step]:
    """Yield the steps of the interval as one, at the timestamp of the last, as if no snapshot in between existed."""
    found = list(steps(timeline, after_exclusive_ms, until_exclusive_ms))
    if found:
        yield Step(found[-1].mz_timestamp, found[0].before, found[-1].after)
