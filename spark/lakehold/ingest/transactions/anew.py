"""A snapshot that a connector takes anew: its rows are in one batch, with all of them, as events of a transaction are. Pure.

It shows what upstream was at one moment, over all tables. Taken in parts it would show tables of different moments; a first
snapshot may be, as nothing of it can be read before it is complete.

It is over when something says so that was sent behind it: its last row, or an event or END of a later transaction. Its rows may
be written later than that to other partitions. All have come when each partition shows something later, or was read to where it
ended behind a look that saw what says so, once as much time has passed as a partition may lag, or a Kafka transaction has ended
behind that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from lakehold.ingest.transactions.log import Begin, End, Kind, Log, Run
from lakehold.model.marks import Position
from lakehold.model.offsets import Offsets, TopicPartition
from lakehold.model.places import is_behind


@dataclass(frozen=True)
class Anew:
    """Rows of a snapshot taken anew in a stretch, and of abandoned ones before it.

    Args:
        log: The stretch.
        first: Where the first of these snapshots stands upstream.
        position: Where the last of them does: the one that counts.
    """

    log: Log
    first: Position
    position: Position

    @cached_property
    def begins(self) -> Offsets:
        """Where each partition that has rows of them, or events behind the first, has the first one of those."""
        found = {}
        for tp, runs in self.log.runs.items():
            here = [run.first for run in runs if self._is_of_it(run) or run.is_behind(self.first)]
            if here:
                found[tp] = here[0]
        return found

    @property
    def records(self) -> int:
        """How many rows have come."""
        return sum(run.records for runs in self.log.runs.values() for run in runs if self._is_of_it(run))

    @property
    def without_rows(self) -> frozenset[str]:
        """Topics of readable tables that have none of its rows."""
        having = {tp.topic for tp, runs in self.log.runs.items() for run in runs if self._is_of_last(run)}
        return frozenset(self.log.shown) - having

    @cached_property
    def over_ms(self) -> int | None:
        """When the first was sent that says that it is over (epoch milliseconds); None: nothing says so yet."""
        events = (run.sent_ms for runs in self.log.runs.values() for run in runs if self._says_over(run))
        return min((*events, *(end.sent_ms for end in self._ends_behind(self.position))), default=None)

    @property
    def is_whole(self) -> bool:
        """Whether all of its rows have come."""
        return self._is_over and all(map(self._is_past, self.log.runs)) and all(map(self._has_ends, self.log.ends))

    @property
    def _is_over(self) -> bool:
        """Whether it is, and what had been sent by then has been written."""
        until_ms, over_ms = self.log.arrived_until_ms, self.over_ms
        if over_ms is None:
            return False
        if until_ms is None or over_ms <= until_ms:
            return True
        ahead = self.log.may_be_ahead
        return any(end not in ahead for end in self._ends_behind(self.position))

    def before(self) -> Log:
        """The stretch as far as it shows nothing of them, nor of what was committed behind the first."""
        log = self.log
        stops = {**log.stops, **self.begins}
        is_later = self._later(self.first)
        for tp in log.ends:
            entries: Iterable[Begin | End] = (*log.begins[tp], *log.ends[tp])
            stops[tp] = min((entry.offset for entry in entries if is_later(entry)), default=log.stops[tp])
        return replace(
            log,
            stops=stops,
            runs={tp: [run for run in runs if run.last < stops[tp]] for tp, runs in log.runs.items()},
            begins={tp: [each for each in begun if each.offset < stops[tp]] for tp, begun in log.begins.items()},
            ends={
                tp: [_followed(end, log.stops[tp], stops[tp]) for end in ends if end.offset < stops[tp]]
                for tp, ends in log.ends.items()
            },
            unread=log.unread | {tp for tp, stop in stops.items() if stop < log.stops[tp]},
            followed_later=frozenset(self.begins),
        )

    def behind(self) -> Log:
        """The stretch without what was committed before the last of them: that shows what it did, also what never came whole."""
        log, is_later = self.log, self._later(self.position)
        return replace(
            log,
            runs={tp: [run for run in runs if self._stays(run)] for tp, runs in log.runs.items()},
            begins={tp: [each for each in begun if is_later(each)] for tp, begun in log.begins.items()},
            ends={tp: [each for each in ends if is_later(each)] for tp, ends in log.ends.items()},
        )

    def _later(self, position: Position) -> Callable[[Begin | End], bool]:
        """Whether a BEGIN or an END is of a transaction that was committed behind a position, as far as can be known."""
        later = {run.transaction for runs in self.log.runs.values() for run in runs if run.is_behind(position)}
        later.update(end.transaction for end in self._ends_behind(position))
        first: dict[str, tuple[int, ...]] = {}
        for end in (end for ends in self.log.ends.values() for end in ends if end.transaction in later):
            if end.place is not None:
                first[end.place.log] = min(end.place.at, first.get(end.place.log, end.place.at))

        def is_later(entry: Begin | End) -> bool:
            at = entry.place
            return entry.transaction in later or (at is not None and at.log in first and at.at >= first[at.log])

        return is_later

    def _stays(self, run: Run) -> bool:
        return run.is_behind(self.position) or run.kind is not Kind.EVENTS or run.position is None

    def _is_of_it(self, run: Run) -> bool:
        return run.is_snapshot and run.position is not None and run.position >= self.first

    def _is_of_last(self, run: Run) -> bool:
        return run.is_snapshot and run.position == self.position

    def _says_over(self, run: Run) -> bool:
        return run.is_behind(self.position) or (run.is_last_row and run.position == self.position)

    def _is_past(self, tp: TopicPartition) -> bool:
        """Whether nothing of it can come any more to a partition."""
        if any(run.is_behind(self.position) for run in self.log.runs[tp]):
            return True
        return self.log.is_read_to_its_end(tp)

    def _has_ends(self, tp: TopicPartition) -> bool:
        """Whether no END can come any more to a partition of the transaction topic of what was committed before it."""
        is_later = self._later(self.position)
        entries: Iterable[Begin | End] = (*self.log.begins[tp], *self.log.ends[tp])
        if any(map(is_later, entries)):
            return True
        return tp not in self.log.unread and self.log.stops[tp] >= self.log.written.get(tp, 0)

    def _ends_behind(self, position: Position) -> Iterator[End]:
        """The ENDs that stand behind a position, as far as places tell."""
        for ends in self.log.ends.values():
            yield from (end for end in ends if is_behind(end.place, position))


def taken_anew(log: Log) -> Anew | None:
    """What the stretch has of snapshots that are newer than what readable tables show; None: nothing."""
    positions = [
        run.position
        for tp, runs in log.runs.items()
        if tp.topic in log.shown
        for run in runs
        if run.is_snapshot and run.position is not None and _is_newer(run.position, log.shown[tp.topic])
    ]
    return Anew(log, min(positions), max(positions)) if positions else None


def shown_by(shown: Iterable[tuple[str, Position | None]]) -> Mapping[str, Position | None]:
    """By topic the snapshot that its tables show, of several the earliest."""
    found: dict[str, Position | None] = {}
    for topic, position in shown:
        before = found.get(topic, position)
        found[topic] = None if position is None or before is None else min(position, before)
    return found


def _is_newer(position: Position, shown: Position | None) -> bool:
    return shown is None or position > shown


def _followed(end: End, stop: int, shorter: int) -> End:
    """An END of a partition that is left earlier: a control record behind it stays what it is."""
    has_control_record = end.followed_by < stop - end.offset - 1
    return replace(end, followed_by=max(0, shorter - end.offset - 1 - int(has_control_record)))
