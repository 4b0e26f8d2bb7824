"""Requests of many threads, done together: as many commits as fit one behind the other, not as many as requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

Request = TypeVar("Request")
Outcome = TypeVar("Outcome")


class GroupCommit(Generic[Request, Outcome]):
    """Whoever comes while a round runs waits for it to end and goes with the next one.

    Args:
        run: Does what it is given as one commit: an outcome for each request, in order; an exception refuses one of them.
    """

    def __init__(self, run: Callable[[Sequence[Request]], Sequence[Outcome | Exception]]) -> None:
        self._run = run
        self._turn = threading.Condition()
        self._is_running = False
        self._waiting: list[tuple[Request, Future[Outcome]]] = []

    def submit(self, request: Request) -> Outcome:
        """The outcome of `request`, whichever thread did it; raises what refused it, or what the whole round failed with."""
        mine: Future[Outcome] = Future()
        with self._turn:
            self._waiting.append((request, mine))
            self._turn.wait_for(lambda: mine.done() or not self._is_running)
            if mine.done():
                return mine.result()
            self._is_running = True
            taken, self._waiting = self._waiting, []
        try:
            self._run_round(taken)
        finally:
            with self._turn:
                self._is_running = False
                self._turn.notify_all()
        return mine.result()

    def _run_round(self, taken: Sequence[tuple[Request, Future[Outcome]]]) -> None:
        try:
            outcomes = self._run([request for request, _ in taken])
        except BaseException as error:
            for _, future in taken:
                future.set_exception(error)
            raise
        for (_, future), outcome in zip(taken, outcomes, strict=True):
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
