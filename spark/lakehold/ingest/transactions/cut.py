"""Where a batch ends, so that it holds whole transactions only: the rule of `lakehold.ingest.transactions`. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from operator import itemgetter

from lakehold.ingest.transactions.anew import Anew, taken_anew
from lakehold.ingest.transactions.arrival import Arrival
from lakehold.ingest.transactions.log import Kind, Log, Run
from lakehold.model.marks import Position
from lakehold.model.offsets import Offsets, TopicPartition
from lakehold.model.passed import Mark, Passed, Replaced
from lakehold.model.places import Place


@dataclass(frozen=True)
class Blocked:
    """What keeps a batch from taking more of what has come.

    Args:
        transaction: As its END or its events name it; empty: it is a snapshot taken anew.
        arrived: How many of its events or rows have come.
        lacking: By topic how many have come and how many its END counts, where some have not.
        repeats: The topic that repeats from an earlier point, and has not yet come as far as it was; empty: none does.
        came: A number that grows while more of it comes, however much of what there is was looked at.
    """

    transaction: str
    arrived: int
    lacking: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    repeats: str = ""
    came: int = 0


@dataclass(frozen=True)
class Cut:
    """Where a batch ends.

    Args:
        stops: Of each partition (exclusive), the transaction topic's included.
        passed: What has been taken when it is done.
        blocked: What stands behind it, if anything does.
        is_uncertain: What stands behind it has come whole, and something earlier may stand where was not looked yet.
        waiting: Topics with events behind it.
        unsettled: Topics that may have rows of a snapshot behind it.
        uncounted: Topics whose events no END counts: they are not named as Debezium names them.
        is_followed: What stands behind it can be taken from this same stretch, when it is done.
        lacks_rows: A snapshot taken anew stands behind it, or may, of which something may be missing in any partition.
        over_ms: ... when it was sent that it is over (epoch milliseconds); None: nothing says so yet.
    """

    stops: Offsets
    passed: Passed
    blocked: Blocked | None
    is_uncertain: bool
    waiting: frozenset[str]
    unsettled: frozenset[str]
    uncounted: frozenset[str]
    is_followed: bool = False
    lacks_rows: bool = False
    over_ms: int | None = None


@dataclass(frozen=True)
class _Stop:
    """Where one partition is left.

    Args:
        offset: None: where the stretch ends.
        mark: Its furthest event by then.
        repeated: The first run of a repetition that has not come as far.
    """

    offset: int | None
    mark: Mark | None
    repeated: Run | None


def cut(log: Log, passed: Passed) -> Cut:
    """Where a batch that reads `log` ends.

    Args:
        log: From the reader's position on.
        passed: What was taken up to there.
    """
    anew = taken_anew(log)
    return _cut_at_transactions(log, passed) if anew is None else _cut_at_snapshot(log, passed, anew)


def _cut_at_snapshot(log: Log, passed: Passed, anew: Anew) -> Cut:
    """The same of a stretch with a snapshot taken anew: before all of its rows, or behind them."""
    before = _cut_at_transactions(anew.before(), passed)
    if any(before.stops[tp] > log.starts[tp] for tp in log.runs):
        return replace(before, blocked=None, is_uncertain=False, is_followed=True)
    if anew.is_whole:
        found = _cut_at_transactions(anew.behind(), passed)
        replaced = Replaced(anew.position, anew.without_rows)
        unsettled = found.unsettled - {tp.topic for tp in log.runs}
        return replace(found, passed=replace(found.passed, replaced=replaced), unsettled=unsettled)
    is_over = anew.over_ms is not None
    return replace(
        before,
        blocked=None if is_over else Blocked("", anew.records),
        is_uncertain=is_over,
        waiting=frozenset(tp.topic for tp in anew.begins),
        lacks_rows=True,
        over_ms=anew.over_ms,
    )


def _cut_at_transactions(log: Log, passed: Passed) -> Cut:
    """The same of a stretch whose rows of snapshots pass."""
    arrival = Arrival(log, passed)
    last = _last_whole(log, arrival)
    found = {tp: _stop(arrival.ranked(tp), last, passed, passed.marks.get(tp)) for tp in log.runs}
    stops = {tp: log.stops[tp] if stop.offset is None else stop.offset for tp, stop in found.items()}
    if last < len(arrival.ends) or arrival.without_end:
        stops = {tp: _before_unreadable(log, arrival, last, tp, at) for tp, at in stops.items()}
    later = {end.transaction for end in arrival.ends[last:]}
    for tp in log.ends:
        stops[tp] = _stop_of_transactions(log, arrival, tp, later)
    return Cut(
        stops={**log.stops, **stops},
        passed=_taken(log, arrival, last, passed, found, stops),
        blocked=_blocked(arrival, last, found),
        is_uncertain=_is_uncertain(arrival, last),
        waiting=_topics_behind(log, stops, Kind.EVENTS),
        unsettled=_topics_behind(log, stops, Kind.SNAPSHOT, Kind.SNAPSHOT_END)
        if log.reaches_now
        else frozenset(tp.topic for tp in log.runs),
        uncounted=arrival.uncounted,
        lacks_rows=arrival.in_sight < min(arrival.complete, arrival.certain),
    )


def _last_whole(log: Log, arrival: Arrival) -> int:
    """The rank of the last transaction that the batch takes, with all before it."""
    torn = [*_out_of_order(log, arrival), *_before_unranked(arrival)]
    last = min(arrival.complete, arrival.certain, arrival.in_sight)
    for low, high in sorted(torn, key=itemgetter(1), reverse=True):
        if low <= last <= high:
            last = low - 1
    return last


def _out_of_order(log: Log, arrival: Arrival) -> Iterator[tuple[int, int]]:
    """Ranks (low and high inclusive) that tear: a partition has a later transaction before one of them."""
    for tp in log.runs:
        highest = 0
        for rank, run in arrival.ranked(tp):
            if rank and run.new:
                if rank < highest:
                    yield rank, highest - 1
                highest = max(highest, rank)


def _before_unranked(arrival: Arrival) -> Iterator[tuple[int, int]]:
    """Ranks at or behind the place of a transaction that has no END: its END is lost, or in a partition that is late."""
    lowest: dict[str, tuple[int, ...]] = {}
    for run in arrival.without_end:
        if run.place is not None:
            lowest[run.place.log] = min(run.place.at, lowest.get(run.place.log, run.place.at))
    for rank, end in enumerate(arrival.ends, 1):
        if end.place is not None and end.place.log in lowest and end.place.at >= lowest[end.place.log]:
            yield rank, len(arrival.ends)
            return


def _stop(runs: Iterable[tuple[int, Run]], last: int, passed: Passed, mark: Mark | None) -> _Stop:
    """Where a partition with these `runs` and that `mark` is left, when transactions up to rank `last` are taken."""
    repeated: Run | None = None
    for rank, run in runs:
        if rank > last:
            return _Stop(run.first if repeated is None else repeated.first, mark, repeated)
        if run.place is None or run.position is None:
            repeated = None
        elif mark is None or _is_reached(mark, run, run.place, run.position, passed):
            repeated, mark = None, Mark(run.place, run.position)
        elif repeated is None:
            repeated = run
    return _Stop(None if repeated is None else repeated.first, mark, repeated)


def _before_unreadable(log: Log, arrival: Arrival, last: int, tp: TopicPartition, stop: int) -> int:
    """Where a partition is left that would be at `stop`: before what is unreadable and may be of a later transaction.

    That would lack it for ever, were it taken before. What was sent before the last END that is taken is of no later one.
    """
    taken = max((run.last for rank, run in arrival.ranked(tp) if rank <= last and run.last < stop), default=-1)
    until_ms = arrival.ends[last - 1].sent_ms if last else -1
    behind = (run for run in log.runs[tp] if run.kind is Kind.UNREADABLE and taken < run.first < stop)
    return next((run.first for run in behind if run.sent_ms >= until_ms), stop)


def _is_reached(mark: Mark, run: Run, place: Place, position: Position, passed: Passed) -> bool:
    """Whether a run is at the furthest event of its partition or behind it.

    Positions tell of two logs only while they are of one server: what is new in another log is behind it in any case.
    """
    if place.log == mark.place.log:
        return mark.is_reached_by(place, position)
    return position >= mark.position or (run.new > 0 and not passed.has(place))


def _stop_of_transactions(log: Log, arrival: Arrival, tp: TopicPartition, later: Collection[str]) -> int:
    """Where a partition of the transaction topic is left: before the first END of `later` transactions.

    Also before a BEGIN behind which nothing is taken, if its transaction may have no END: it is read again with its event.
    """
    stop = next((end.offset for end in log.ends[tp] if end.transaction in later), log.stops[tp])
    last_taken = max((end.offset for end in log.ends[tp] if end.offset < stop), default=-1)
    behind = (begin for begin in log.begins[tp] if last_taken < begin.offset < stop)
    return next((begin.offset for begin in behind if arrival.is_open(begin)), stop)


def _taken(  # noqa: PLR0913 - what was found, and what was before it
    log: Log,
    arrival: Arrival,
    last: int,
    passed: Passed,
    found: Mapping[TopicPartition, _Stop],
    stops: Offsets,
) -> Passed:
    """What has been taken when the batch is done."""
    commits = {end.place.log: end.place.at for end in arrival.ends[:last] if end.place is not None}
    marks = {tp: stop.mark for tp, stop in found.items() if stop.mark is not None}
    nothing_left = log.reaches_now and last == len(arrival.ends)

    def still_shows_its_beginning(tp: TopicPartition) -> bool:
        if tp in log.ends:
            return last == 0
        first = next((rank for rank, _ in arrival.ranked(tp)), None)
        return not nothing_left if first is None else first > last

    return Passed(
        commits={**passed.commits, **commits},
        marks={**passed.marks, **marks},
        cut_off=frozenset(filter(still_shows_its_beginning, passed.cut_off)),
        begun=_still_begun(log, passed, stops),
    )


def _still_begun(log: Log, passed: Passed, stops: Offsets) -> Mapping[str, int]:
    begun = Counter(passed.begun)
    for tp, begins in log.begins.items():
        begun.update(begin.transaction for begin in begins if begin.offset < stops[tp])
    ended = {end.transaction for tp, ends in log.ends.items() for end in ends if end.offset < stops[tp]}
    return {transaction: count for transaction, count in begun.items() if transaction not in ended}


def _topics_behind(log: Log, stops: Offsets, *kinds: Kind) -> frozenset[str]:
    """Topics that have runs of some kinds behind `stops`."""
    behind = ((tp, takewhile(partial(_ends_at_least, stops[tp]), reversed(runs))) for tp, runs in log.runs.items())
    return frozenset(tp.topic for tp, runs in behind if any(run.kind in kinds for run in runs))


def _ends_at_least(offset: int, run: Run) -> bool:
    return run.last >= offset


def _blocked(arrival: Arrival, last: int, stops: Mapping[TopicPartition, _Stop]) -> Blocked | None:
    """The first transaction that is not taken, and why."""
    if last == arrival.complete and last < len(arrival.ends):
        end = arrival.ends[last]
        return Blocked(end.shown_id, arrival.arrived(end.transaction), arrival.lacking(last + 1))
    without_end = min(arrival.without_end, key=_by_place, default=None)
    if without_end is not None:
        return Blocked(without_end.shown_id, arrival.arrived(without_end.transaction))
    if _is_uncertain(arrival, last):
        return None
    if last < len(arrival.ends):
        end = arrival.ends[last]
        return Blocked(end.shown_id, arrival.arrived(end.transaction))
    for tp, stop in sorted(stops.items()):
        if stop.repeated is not None:
            run = stop.repeated
            return Blocked(run.shown_id, arrival.arrived(run.transaction), repeats=tp.topic)
    return None


def _is_uncertain(arrival: Arrival, last: int) -> bool:
    return last == min(arrival.certain, arrival.in_sight) < arrival.complete


def _by_place(run: Run) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Order runs by their transactions; those of one by their events, so that each look names the same one."""
    return run.place.at if run.place is not None else (), run.position or ()
