"""Lanes: the topics of a batch are decoded and written in parallel, in lanes that share nothing but the lake.

A lane is a thread with a Spark session of its own. A session has one configuration and one set of views, which a statement
uses for its commit, so that threads cannot share one. Lane 0 is the caller's thread. Its session is not the lake's either:
other threads read there, and would see what a statement has staged. The lane that decodes a topic also writes it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack
from typing import TypeVar

from pyspark.sql import SparkSession

from lakehold.remote_session import answers, is_lost

Result = TypeVar("Result")


class OwnSession:
    """A session beside the lake's: opened at its first use.

    Args:
        spark: Returns the lake's session.
        another: Opens one more session over the same catalog until its context ends.
    """

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        another: Callable[[SparkSession], AbstractContextManager[SparkSession]],
    ) -> None:
        self._spark = spark
        self._another = another
        self._beside: SparkSession | None = None
        self._own: SparkSession | None = None
        self._opened = ExitStack()
        self._opening = threading.Lock()

    def get(self) -> SparkSession:
        """Return the session."""
        # A lake whose server restarted has another session: those beside the former one are lost as well.
        main = self._spark()
        with self._opening:
            # Only a session that is used learns that its server restarted.
            if self._own is not None and is_lost(self._own) and not answers(main):
                main = self._spark()
            if self._own is None or self._beside is not main or is_lost(self._own):
                self._own, self._beside = self._opened.enter_context(self._another(main)), main
            return self._own

    def close(self) -> None:
        """Close the session if it was opened."""
        self._opened.close()


class Lanes:
    """The lanes of one lake; their threads and sessions are made at the first use.

    Args:
        spark: Returns the lake's session.
        another: Opens one more session over the same catalog until its context ends.
        at_once: The number of lanes.
    """

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        another: Callable[[SparkSession], AbstractContextManager[SparkSession]],
        at_once: int,
    ) -> None:
        self._spark = spark
        self._another = another
        self._first = OwnSession(spark, another)
        self._threads = [
            ThreadPoolExecutor(1, thread_name_prefix=f"lakehold-lane-{number}") for number in range(1, at_once)
        ]
        self._own = threading.local()
        self._sessions = [self._first]

    def spark(self) -> SparkSession:
        """Return the session of this thread's lane."""
        own: OwnSession = getattr(self._own, "session", self._first)
        return own.get()

    def of(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Choose a lane for each topic, the largest first, so that all lanes have about as much to do.

        `sizes` has the number of records of each topic, about. Returns the number of each topic's lane, from 0.
        """
        lanes, loads = {}, [0] * (len(self._threads) + 1)
        for topic in sorted(sizes, key=lambda topic: (-sizes[topic], topic)):
            lanes[topic] = loads.index(min(loads))
            loads[lanes[topic]] += sizes[topic]
        return lanes

    def run(self, work: Sequence[tuple[int, Callable[[], Result]]]) -> list[Result]:
        """Run work, each function in the lane whose number it comes with, and return the results in the order of `work`.

        An error is raised after all have ended: no table is left in the middle of a write.
        """
        ended: list[Future[Result]] = [Future() for _ in work]
        others = [
            self._threads[lane - 1].submit(self._run_in_own_session, do, future)
            for (lane, do), future in zip(work, ended, strict=True)
            if lane
        ]
        try:
            for (lane, do), future in zip(work, ended, strict=True):
                if not lane:
                    _run(do, future)
        except BaseException:
            # After an interrupt, work that has not begun is cancelled.
            for other in others:
                other.cancel()
            raise
        finally:
            wait(others)
        return [future.result() for future in ended]

    def run_in_each(self, work: Callable[[], Result]) -> list[Result]:
        """Run the same work in every lane at once, and return the results; errors as in `run`."""
        return self.run([(lane, work) for lane in range(len(self._threads) + 1)])

    def close(self) -> None:
        """End the threads and their sessions."""
        for thread in self._threads:
            thread.shutdown()
        for session in self._sessions:
            session.close()

    def _run_in_own_session(self, do: Callable[[], Result], future: Future[Result]) -> None:
        try:
            if not hasattr(self._own, "session"):
                self._own.session = OwnSession(self._spark, self._another)
                self._sessions.append(self._own.session)
            future.set_result(do())
        # Whatever it is, the caller waits for it.
        except BaseException as error:  # noqa: BLE001
            future.set_exception(error)


def _run(do: Callable[[], Result], future: Future[Result]) -> None:
    try:
        future.set_result(do())
    except Exception as error:  # noqa: BLE001 - it is the caller's
        future.set_exception(error)
