"""Combines the requests of many threads: each commit takes all requests that came during the commit before it.

Advances of holds use it: hundreds of readers that each move a hold cause a few commits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

Request = TypeVar("Request")
Outcome = TypeVar("Outcome")


class GroupCommit(Generic[Request, Outcome]):
    """A queue whose requests are committed in rounds: a request that comes during a round waits for the next one.

    Args:
        run: Commits a round of requests, and returns an outcome for each, in order. An exception among the outcomes refuses
            its request.
    """

    def __init__(self, run: Callable[[Sequence[Request]], Sequence[Outcome | Exception]]) -> None:
        self._run = run
        self._turn = threading.Condition()
        self._is_running = False
        self._waiting: list[tuple[Request, Future[Outcome]]] = []

    def submit(self, request: Request) -> Outcome:
        """Commit `request` in a round that this or another thread runs, and return its outcome.

        Raises the exception that refused the request, or the one that its whole round failed with.
        """
        mine: Future[Outcome] = Future()
        with self._turn:
            self._waiting.append((request, mine))
            self._turn.wait_for(lambda: mine.done() or not self._is_running)
            if mine.done():
                return mine.result()
            self._is_running = True
            requests, self._waiting = self._waiting, []
        try:
            self._run_round(requests)
        finally:
            with self._turn:
                self._is_running = False
                self._turn.notify_all()
        return mine.result()

    def _run_round(self, requests: Sequence[tuple[Request, Future[Outcome]]]) -> None:
        try:
            outcomes = self._run([request for request, _ in requests])
        except BaseException as error:
            for _, future in requests:
                future.set_exception(error)
            raise
        for (_, future), outcome in zip(requests, outcomes, strict=True):
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
