"""Reads the status of a lake for a scrape. What does not answer, or cannot be read, keeps nothing else from being shown."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, TypeVar

from prometheus_client import Metric
from prometheus_client.registry import Collector

from lakehold.errors import LakeholdError
from lakehold.lake import Lake
from lakehold.metrics.status_families import StatusFamilies
from lakehold.overview import gather

ASKED_AT_ONCE = 8
"""Systems that are asked at once: for the ends of topics, and for the state of connectors."""

SCRAPE_WAITS_S = 3.0
"""How long a scrape waits for sources, and for connectors: Prometheus gives a scrape ten seconds by default."""

FRESH_S = 2.0
"""How old the status may be that a scrape gets: several scrapers cost hardly more than one."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class Questions:
    """Questions to systems outside of the lake, some at once. At most one question of a key is under way.

    So a system that is silent for minutes takes one thread, however often the status is read, and others have the rest.

    Args:
        at_once: Most threads.
    """

    def __init__(self, at_once: int) -> None:
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="lakehold-metrics")
        self._under_way: dict[Hashable, Future[Any]] = {}

    def ask(self, key: Hashable, question: Callable[[], Any]) -> Future[Any]:
        """Ask, unless the last question of `key` was not taken yet: it may have been answered too late for its reading."""
        if key not in self._under_way:
            self._under_way[key] = self._threads.submit(question)
        return self._under_way[key]

    def take_answers(self) -> None:
        """Forget the questions that are answered: they can be asked again."""
        self._under_way = {key: future for key, future in self._under_way.items() if not future.done()}

    def close(self) -> None:
        """Begin no more questions."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class StatusReader(Collector):
    """Reads the status of a lake as families, at each collection.

    Args:
        lake: The lake.
        waits_s: How long to wait for what is outside of the lake.
    """

    def __init__(self, lake: Lake, waits_s: float) -> None:
        self._lake, self._waits_s = lake, waits_s
        self._questions = Questions(ASKED_AT_ONCE)

    def collect(self) -> Sequence[Metric]:
        """Read the status.

        Raises:
            LakeholdError: The lake cannot be read; of a single table this is part of the status.
        """
        began_s, found = time.monotonic(), StatusFamilies()
        defined, readers = self._lake.definitions.definitions(), self._lake.batches.all_readers()
        unread = {
            name: self._questions.ask(("ends", name), partial(self._lake.unread, name, defined, readers))
            for name in defined.sources_with_tables
        }
        problems = {
            name: self._questions.ask(("capture", name), partial(self._lake.captured.problems_of, name, defined))
            for name, entry in defined.sources.items()
            if entry.definition.capture is not None
        }
        overview = gather(self._lake, with_lags=False)
        wait([*unread.values(), *problems.values()], max(0, began_s + self._waits_s - time.monotonic()))
        ends, captures = _answers(unread), _answers(problems)
        self._questions.take_answers()
        found.put_lake(overview, ends)
        # A system that does not answer is a problem, too.
        count = sum(1 if lines is None else len(lines) for lines in captures.values())
        found.put("capture_problems", count if captures or not problems else None)
        found.put("up", 1)
        found.put("status_seconds", time.monotonic() - began_s)
        return found.families()

    def close(self) -> None:
        """Begin no more requests."""
        self._questions.close()


class UnreadableCollector(Collector):
    """Collects the status of a lake that cannot be read: `lakehold_up 0` alone."""

    def collect(self) -> Sequence[Metric]:
        """Make the family."""
        found = StatusFamilies()
        found.put("up", 0)
        return found.families()


class StatusCollector(Collector):
    """Collects the status for a registry of Prometheus; a lake that cannot be read is `lakehold_up 0`, and no error."""

    def __init__(self, reader: StatusReader) -> None:
        self._reader, self._lock = reader, threading.Lock()
        self._families: Sequence[Metric] = ()
        self._read_s = -FRESH_S

    def describe(self) -> Sequence[Metric]:
        """Describe nothing: registering must not read the lake."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Read the status, unless that was done just before."""
        with self._lock:
            if time.monotonic() - self._read_s >= FRESH_S:
                self._families, self._read_s = self._read(), time.monotonic()
            yield from self._families

    def _read(self) -> Sequence[Metric]:
        try:
            return self._reader.collect()
        except Exception as error:  # whatever it is, the counters of the process are still shown
            log.warning("the status cannot be read: %s", error, exc_info=not isinstance(error, LakeholdError))
            return UnreadableCollector().collect()


def _answers(requests: Mapping[str, Future[T]]) -> dict[str, T | None]:
    """Return the answers; None for a system that is silent, or fails. One that waits to be asked is left out."""
    return {name: _answer(each) for name, each in requests.items() if each.running() or each.done()}


def _answer(request: Future[T]) -> T | None:
    if not request.done():
        return None
    try:
        return request.result()
    except LakeholdError as error:
        log.info("a source cannot be asked: %s", error)
        return None
