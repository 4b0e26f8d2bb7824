"""Takes turns: much work that is done again and again, of which a few threads do some at once."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

Work = TypeVar("Work")
Worker = TypeVar("Worker")

_WAITS_S = 0.1
"""How long a thread waits at once: work that is due sooner may come meanwhile."""


class Turns(Generic[Work]):
    """Work by the time at which it is due: the next turn goes to what has been due for longest.

    Args:
        works: All work, which is due at once.
        stop: Ends everything when set, each thread after the turn that it has begun.
    """

    def __init__(self, works: Sequence[Work], stop: threading.Event) -> None:
        self._stop = stop
        self._lock = threading.Lock()
        self._order = itertools.count()
        self._due = [(0.0, next(self._order), work) for work in works]
        self._left = len(works)

    def run(self, take: Callable[[Work], float | None]) -> None:
        """Take turns until all work has ended, also that of other threads.

        Args:
            take: Does a turn. Returns the seconds until the work is due again; None: it has ended.
        """
        while self._left and not self._stop.is_set():
            work = self._next()
            if work is None:
                self._stop.wait(_WAITS_S)
                continue
            pause_s = take(work)
            with self._lock:
                if pause_s is None:
                    self._left -= 1
                else:
                    heapq.heappush(self._due, (time.monotonic() + pause_s, next(self._order), work))

    def _next(self) -> Work | None:
        with self._lock:
            is_due = bool(self._due) and self._due[0][0] <= time.monotonic()
            return heapq.heappop(self._due)[2] if is_due else None


def take_turns(  # noqa: PLR0913 - work, and who does it
    works: Sequence[Work],
    take: Callable[[Work, Worker], float | None],
    own: Worker,
    another: Callable[[], AbstractContextManager[Worker]],
    at_once: int,
    stop: threading.Event,
) -> None:
    """Do all work until it has ended, in this thread and `at_once - 1` others at most.

    An error of one thread ends all of them. A second Ctrl-C ends this thread at once, and the process does not wait for the
    others.

    Args:
        works: The work.
        take: Does a turn with what a thread works with; see `Turns.run`.
        own: This thread works with it.
        another: Opens what another thread works with.
        at_once: Most threads.
        stop: See `Turns`.
    """
    turns, errors = Turns(works, stop), list[BaseException]()

    def work() -> None:
        try:
            with another() as worker:
                turns.run(lambda of: take(of, worker))
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            errors.append(error)
            stop.set()

    others = [
        threading.Thread(target=work, name=f"lakehold-turns-{number}", daemon=True)
        for number in range(1, min(at_once, len(works)))
    ]
    for other in others:
        other.start()
    try:
        turns.run(lambda of: take(of, own))
    except Exception as error:  # noqa: BLE001 - raised when the others have ended
        errors.append(error)
        stop.set()
    for other in others:
        other.join()
    if errors:
        raise errors[0]
