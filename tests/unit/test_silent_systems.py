"""A scrape while brokers or connectors are silent: they count as problems, and keep no answer of the others away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest

from lakehold.definitions import Capture, ConnectionType, Format, FormatType, Source
from lakehold.lake import Lake, connect
from lakehold.metrics.status_collector import StatusReader
from lakehold.model.lake_definitions import Definitions, Entry
from lakehold.upstream.sources import CapturedSources
from tests.waiting import wait_for

WAITS_S = 0.5


class Connectors:
    """Kafka Connect of each source: one that is silent answers when it is released."""

    def __init__(self) -> None:
        self.silent: dict[str, Event] = {}
        self.begun, self.ended = Counter[str](), Counter[str]()

    def problems_of(self, name: str, _: Definitions) -> Sequence[str]:
        self.begun[name] += 1
        if name in self.silent:
            self.silent[name].wait()
        self.ended[name] += 1
        return ("its connector is stopped",) if name == "stopped" else ()


@pytest.fixture
def connectors(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connectors]:
    made = Connectors()
    monkeypatch.setattr(CapturedSources, "problems_of", made.problems_of)
    yield made
    for event in made.silent.values():
        event.set()


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with connect(str(tmp_path)) as lake:
        yield lake


def define(lake: Lake, *names: str) -> None:
    capture = Capture(ConnectionType.POSTGRES, "pg", "connect", "shop")
    sources = [Entry(name, Source(name, Format(FormatType.JSON), capture=capture), "", 0) for name in names]
    lake.definitions.change(lambda known: known.with_entries(sources))


def problems(reader: StatusReader) -> float | None:
    values = {sample.name: sample.value for family in reader.collect() for sample in family.samples}
    return values.get("lakehold_capture_problems")


@pytest.fixture
def scrape(lake: Lake) -> Iterator[Callable[[], float | None]]:
    with closing(StatusReader(lake, WAITS_S)) as reader:
        yield lambda: problems(reader)


def test_a_silent_connector_is_a_problem_and_is_asked_once_at_a_time(
    lake: Lake, connectors: Connectors, scrape: Callable[[], float | None]
) -> None:
    assert scrape() == 0, "nothing is captured"
    define(lake, "shop", "stopped", "silent")
    connectors.silent["silent"] = Event()
    assert [scrape() for _ in range(3)] == [2, 2, 2]
    assert connectors.begun["shop"] > connectors.begun["silent"] == 1

    connectors.silent.pop("silent").set()
    wait_for(lambda: connectors.ended["silent"] == 1)
    wait_for(lambda: scrape() == 1)


def test_connectors_that_wait_to_be_asked_are_no_problem(
    lake: Lake, connectors: Connectors, scrape: Callable[[], float | None]
) -> None:
    silent = [f"a{number}" for number in range(8)]
    define(lake, *silent, "late")
    connectors.silent = {name: Event() for name in silent}
    assert scrape() == len(silent)
    assert connectors.begun["late"] == 0
    connectors.silent[silent[0]].set()
    wait_for(lambda: connectors.ended["late"] == 1)
    assert scrape() == len(silent) - 1
