"""The order in which transactions commit, and what comes next after one that has no END. Pure."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from operator import itemgetter

from lakehold.ingest.transactions.log import End
from lakehold.model.offsets import TopicPartition
from lakehold.model.passed import Passed

OPEN = 0
"""In place of a rank: of what has none."""


def next_behind_open(found: Iterable[tuple[tuple[int, ...], int]]) -> Iterator[int]:
    """Yield the ranks that come next after what is open, in the order of the first numbers."""
    before = None
    for _, rank in sorted(found):
        if before == OPEN and rank != OPEN:
            yield rank
        before = rank


def new_ends(ends: Mapping[TopicPartition, Sequence[End]], passed: Passed) -> Iterator[End]:
    """Yield one END of each transaction that was not taken, in the order of commits.

    ENDs of one log are ordered by their places: in several partitions, or after a beginning that was deleted, they stand in
    another order. ENDs of different logs, and those without places, keep the order of their partition; ENDs of several partitions
    are ordered by when they were sent.
    """
    found = [end for end in merge(*ends.values(), key=_sent) if not passed.has(end.place)]
    by_place: defaultdict[str, deque[tuple[tuple[int, ...], End]]] = defaultdict(deque)
    for at, end in sorted(((end.place.at, end) for end in found if end.place is not None), key=itemgetter(0)):
        by_place[_log_of(end)].append((at, end))
    seen: set[str] = set()
    for end in found:
        of_log = by_place[_log_of(end)]
        while of_log and end.place is not None and of_log[0][0] <= end.place.at:
            _, earlier = of_log.popleft()
            if earlier.transaction not in seen:
                seen.add(earlier.transaction)
                yield earlier
        if end.place is None and end.transaction not in seen:
            seen.add(end.transaction)
            yield end


def _sent(end: End) -> int:
    return end.sent_ms


def _log_of(end: End) -> str:
    return "" if end.place is None else end.place.log
