"""The time that a statement names after AS OF, and the timestamp that it stands for on the tables' timelines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakehold.timeline.stops import first_in_sync
from lakehold.timeline.table_timeline import Timeline
from lakehold.timeline.timelines import Timelines, common_window


@dataclass(frozen=True)
class AsOf:
    """A time at which a statement reads its tables: `AS OF [AT LEAST] t`, `AS OF EARLIEST` or `AS OF LATEST`.

    Attributes:
        at_ms: Epoch milliseconds; None for the latest time at which all tables are readable.
        at_least: Whether the first readable time after `at_ms` replaces it if it is no longer readable.
    """

    at_ms: int | None = None
    at_least: bool = False

    @property
    def exact_ms(self) -> int | None:
        """Return the time if only this one will do, whatever is readable; else None."""
        return None if self.at_least else self.at_ms

    def load(self, timelines: Timelines, names: Sequence[str], *later_ms: int) -> dict[str, Timeline]:
        """Build the timelines of `names`, reaching back to this time and, as far as others write them, up to `later_ms`.

        For tables with foreign writers, which know nothing of lakehold, it waits as long as one of their commits may take.

        Raises:
            DefinitionError: A table does not exist.
            NotReadable: A table's first snapshot is not complete.
        """
        if self.at_ms is None:
            return timelines.after_foreign_lag(names, later_ms)
        found = timelines.after_foreign_lag(names, [self.at_ms, *later_ms])
        return {name: timelines.reaching(timeline, self.at_ms) for name, timeline in found.items()}

    def resolve(self, timelines: Sequence[Timeline]) -> int:
        """Choose the timestamp at which to read tables with these timelines; the tables need not be readable then."""
        since_ms, upper_ms = common_window(timelines)
        if self.at_ms is None:
            return upper_ms - 1
        return _first_readable(timelines, max(self.at_ms, since_ms)) if self.at_least else self.at_ms


LATEST = AsOf()
EARLIEST = AsOf(0, at_least=True)


def _first_readable(timelines: Sequence[Timeline], at_ms: int) -> int:
    """Return the first timestamp from `at_ms` onward at which no table was stopped and no version is expired."""
    stops = [stop for timeline in timelines for stop in timeline.stops]
    last_ms = None
    while at_ms != last_ms:
        last_ms = at_ms
        at_ms = max(_first_remaining(timeline, first_in_sync(stops, at_ms)) for timeline in timelines)
    return at_ms


def _first_remaining(timeline: Timeline, at_ms: int) -> int:
    """Return `at_ms`, or the time of the next version that remains if the one at `at_ms` has been expired."""
    version = timeline.version_at(at_ms)
    if version is None or version.remains:
        return at_ms
    return next((v.mz_timestamp for v in timeline.shown if v.mz_timestamp > at_ms and v.remains), at_ms)
