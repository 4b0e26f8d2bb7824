"""Reads the status of a lake for a scrape. What does not answer, or cannot be read, keeps nothing else from being shown."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from prometheus_client import Metric
from prometheus_client.registry import Collector

from lakehold.errors import LakeholdError
from lakehold.lake import Lake
from lakehold.metrics.status_families import StatusFamilies
from lakehold.overview import gather

SOURCES_ASKED_AT_ONCE = 8
"""Sources that are asked at once for the ends of their topics."""

SCRAPE_WAITS_S = 3.0
"""How long a scrape waits for sources, and for connectors: Prometheus gives a scrape ten seconds by default."""

FRESH_S = 2.0
"""How old the status may be that a scrape gets: several scrapers cost hardly more than one."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class StatusReader(Collector):
    """Reads the status of a lake as families, at each collection.

    Args:
        lake: The lake.
        waits_s: How long to wait for what is outside of the lake.
    """

    def __init__(self, lake: Lake, waits_s: float) -> None:
        self._lake, self._waits_s = lake, waits_s
        self._threads = ThreadPoolExecutor(SOURCES_ASKED_AT_ONCE, thread_name_prefix="lakehold-metrics")

    def collect(self) -> Sequence[Metric]:
        """Read the status.

        Raises:
            LakeholdError: The lake cannot be read; of a single table this is part of the status.
        """
        began_s, found = time.monotonic(), StatusFamilies()
        defined, readers = self._lake.definitions.definitions(), self._lake.batches.all_readers()
        requests = {
            source: self._threads.submit(self._lake.unread, source, defined, readers)
            for source in defined.sources_with_tables
        }
        problems = self._threads.submit(self._lake.captured.problems)
        overview = gather(self._lake, with_lags=False)
        futures: list[Future[Any]] = [*requests.values(), problems]
        wait(futures, max(0, began_s + self._waits_s - time.monotonic()))
        found.put_lake(overview, {source: _answer(each) for source, each in requests.items()})
        of_captures = _answer(problems)
        found.put("capture_problems", None if of_captures is None else len(of_captures))
        found.put("up", 1)
        found.put("status_seconds", time.monotonic() - began_s)
        return found.families()

    def close(self) -> None:
        """Begin no more requests."""
        self._threads.shutdown(wait=False, cancel_futures=True)


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


def _answer(request: Future[T]) -> T | None:
    """Return an answer that came in time and without an error; otherwise None, and nobody asks any more."""
    if not request.done():
        request.cancel()
        return None
    try:
        return request.result()
    except LakeholdError as error:
        log.info("a source cannot be asked: %s", error)
        return None
