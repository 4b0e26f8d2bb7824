"""The lag of many small sources in one lake, beside one with a backlog: from a message's arrival until its row is readable.

It is measured with `lakehold ingest --all --follow`, and with the DAG `lakehold_ingest` on two schedules.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from lakehold.lake import connect
from lakehold.orchestration.pools import WRITERS
from tests.airflow_live import live_airflow
from tests.benchmarks.figures import Figure
from tests.many_sources import ManySources
from tests.stack_fixtures import open_directory
from tests.waiting import wait_for

_RUNS = 5
_SLOTS = 4
_BATCH_RECORDS = 50_000
_BATCHES = 20
_WITHIN_S = 1_800.0
_GOAL = 2.0
_SCHEDULES = {"a DAG run a minute": "* * * * *", "a DAG run after the other": "@continuous"}


def lags(directory: Path, count: int) -> list[Figure]:
    """Measure `count` short sources and a long one under each of the ways to ingest them."""
    figures = []
    with _followed(directory / "follow", count) as many:
        figures += _measured(many, "follow")
    for name, schedule in _SCHEDULES.items():
        with _scheduled(directory / name.replace(" ", "-"), count, schedule) as many:
            figures += _measured(many, name)
    return figures


@contextmanager
def _followed(directory: Path, count: int) -> Iterator[ManySources]:
    """Run `lakehold ingest --all --follow` until the block ends."""
    directory.mkdir(parents=True)
    warehouse = str(directory / "lake")
    with connect(warehouse, schemas="", expectations="") as lake:
        many = ManySources(lake, directory / "messages", count, _BATCH_RECORDS)
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name("lakehold")), "ingest", "--all", "--follow", "--quiet"],
            cwd=directory,
            env={**os.environ, "LAKEHOLD_WAREHOUSE": warehouse},
            stdout=subprocess.DEVNULL,
        )
        try:
            yield many
            assert process.poll() is None
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


@contextmanager
def _scheduled(directory: Path, count: int, schedule: str) -> Iterator[ManySources]:
    """Run a live Airflow, whose DAG ingests the sources beside a small shop, until the block ends."""
    directory.mkdir(parents=True)
    variables = {"LAKEHOLD_INGEST_SCHEDULE": schedule}
    with open_directory() as stack_directory, live_airflow(directory, stack_directory, variables) as live:
        live.set_slots(WRITERS, _SLOTS)
        yield ManySources(live.lake, directory / "messages", count, _BATCH_RECORDS)


def _measured(many: ManySources, way: str) -> list[Figure]:
    _lags(many, [many.short])
    alone = [[source] for source in many.short[:_RUNS]]
    figures = [_figure(many, f"{way}, one source changes", alone), _figure(many, f"{way}, all change", [many.short])]
    many.fill(_BATCHES)
    figures.append(_figure(many, f"{way}, one changes beside a backlog", alone))
    assert many.has_backlog(), "give the long source more batches"
    return figures


def _figure(many: ManySources, name: str, rounds: Sequence[Sequence[str]]) -> Figure:
    readable_s, batch_s = zip(*_lags(many, rounds), strict=True)
    return Figure(name, "s", readable_s, "its own batch", batch_s, _GOAL)


def _lags(many: ManySources, rounds: Sequence[Sequence[str]]) -> list[tuple[float, float]]:
    """Send a message to each source of a round, and wait for their rows, round after round."""
    found = []
    for sources in rounds:
        sent = [many.send(source) for source in sources]
        wait_for(partial(many.is_readable, sent), within_s=_WITHIN_S)
        found += [(lag.readable_ms / 1000, lag.batch_ms / 1000) for lag in many.lags(sent)]
    return found
