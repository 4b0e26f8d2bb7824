"""`lakehold ingest --follow` of several sources that wait for transactions reports each of them once."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lakehold.cli import ingest
from lakehold.cli.command_output import JsonOutput
from lakehold.cli.poll_backoff import PollBackoff
from lakehold.ingest.batch import BatchReport
from lakehold.lake import Lake
from lakehold.model.readers import MAIN_READER, Waiting
from lakehold.progress import NoProgress


class Polls:
    """A stand-in for the event that ends the command: it is set after a number of pauses, which take no time."""

    def __init__(self, number: int) -> None:
        self._left = number

    def is_set(self) -> bool:
        return self._left == 0

    def wait(self, _pause_s: float) -> None:
        self._left -= 1


class WaitingLake:
    """A stand-in for a lake whose sources wait for the rest of a transaction since 1970."""

    def __init__(self) -> None:
        named = SimpleNamespace(source=lambda name: SimpleNamespace(name=name), tables_of=lambda _: ())
        self.definitions = SimpleNamespace(definitions=lambda: named)

    def batches_together(self, sources: Sequence[str], **_: Any) -> Iterator[BatchReport]:
        for source in sources:
            waiting = Waiting(f"{source}-7", 1, 0, (f"{source}.t",), "Its END is missing.")
            yield BatchReport(source, MAIN_READER, 1_000, 0, waiting=waiting)


def test_sources_that_wait_at_the_same_time_are_reported_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "stop_on_signal", lambda: Polls(3))
    monkeypatch.setattr(PollBackoff, "is_due", lambda *_: True)
    notices = io.StringIO()
    output = JsonOutput(io.StringIO(), notices)
    assert ingest.run_ingest(cast("Lake", WaitingLake()), ["a", "b"], output, NoProgress(), follow=True)
    assert notices.getvalue().splitlines() == [
        f"notice: {source}.t: waiting for the rest of transaction {source}-7. Its END is missing." for source in "ab"
    ]
