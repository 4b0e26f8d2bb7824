"""`lakehold ingest --follow` of several sources that wait for transactions reports each of them once."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lakehold.cli import ingest
from lakehold.cli.command_output import JsonOutput
from lakehold.cli.ingest import BatchesTogether
from lakehold.cli.interrupt import INTERRUPTED
from lakehold.cli.poll_backoff import PollBackoff
from lakehold.definitions import Format, FormatType, Source
from lakehold.ingest.batch_report import BatchReport
from lakehold.lake import Lake
from lakehold.model.lake_definitions import Definitions, Entry
from lakehold.model.readers import MAIN_READER, Waiting
from lakehold.progress import NoProgress

POLLS = 3


class WaitingLake:
    """A stand-in for a lake whose sources wait for the rest of a transaction since 1970.

    Args:
        names: The sources.
        stop: Ends the command when each was polled a few times.
    """

    def __init__(self, names: Sequence[str], stop: Event) -> None:
        sources = {
            name: Entry(name, Source(name, Format(FormatType.JSON), None, path=f"/{name}"), "", 0) for name in names
        }
        self.definitions = SimpleNamespace(definitions=lambda: Definitions(sources=sources))
        self.settings = SimpleNamespace(sources_at_once=2)
        self._names, self._stop = names, stop
        self._polled = Counter[str]()

    def batches_together(self, sources: Sequence[str], **_: Any) -> Generator[BatchReport, None, None]:
        for source in sources:
            waiting = Waiting(f"{source}-7", 1, 0, (f"{source}.t",), "Its END is missing.")
            yield BatchReport(source, MAIN_READER, 1_000, 0, waiting=waiting)
            self._polled[source] += 1
        if all(self._polled[name] >= POLLS for name in self._names):
            self._stop.set()

    @contextmanager
    def batches_beside(self) -> Iterator[BatchesTogether]:
        yield self.batches_together


def test_sources_that_wait_at_the_same_time_are_reported_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, notices = Event(), io.StringIO()
    monkeypatch.setattr(ingest, "stop_on_signal", lambda: stop)
    monkeypatch.setattr(ingest, "pause_after", lambda *_, **__: 0)
    monkeypatch.setattr(PollBackoff, "is_due", lambda *_: True)
    lake, output = cast("Lake", WaitingLake(["a", "b"], stop)), JsonOutput(io.StringIO(), notices)
    assert ingest.run_ingest(lake, ["a", "b"], output, NoProgress(), follow=True) == 0
    assert sorted(notices.getvalue().splitlines()) == [
        f"notice: {source}.t: waiting for the rest of transaction {source}-7. Its END is missing." for source in "ab"
    ]


def test_an_ingest_that_is_interrupted_within_a_backlog_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, taken = Event(), list[int]()

    def backlog(_: Sequence[str], **__: Any) -> Generator[BatchReport, None, None]:
        for timestamp_ms in range(1_000, 1_005):
            taken.append(timestamp_ms)
            yield BatchReport("a", MAIN_READER, timestamp_ms, 1)

    def interrupted(sources: Sequence[str], **given: Any) -> Generator[BatchReport, None, None]:
        for report in backlog(sources, **given):
            if len(taken) == 2:
                stop.set()
            yield report

    waiting = WaitingLake(["a"], stop)
    monkeypatch.setattr(ingest, "stop_on_signal", lambda: stop)
    for batches, code, count in ((interrupted, INTERRUPTED, 2), (backlog, 0, 5)):
        monkeypatch.setattr(waiting, "batches_together", batches)
        output = JsonOutput(io.StringIO(), io.StringIO())
        assert ingest.run_ingest(cast("Lake", waiting), ["a"], output, NoProgress(), follow=False) == code
        assert len(taken) == count
        taken.clear()
        stop.clear()
