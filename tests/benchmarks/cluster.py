"""A lake on a cluster, its files in S3 that answers after 20 ms, against a lake on this machine: the same work in turn."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from multiprocessing import get_context
from multiprocessing.managers import BaseManager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from pyarrow.fs import FileSelector
from pyiceberg.io.pyarrow import PyArrowFileIO
from rich.console import Console

from lakehold.lake import Lake, connect
from lakehold.settings import ENVIRONMENT_PREFIX, load_settings
from lakehold.spark_server import lifecycle
from tests.benchmarks.diffs import DIFF, answered, like, rows_of, versions
from tests.benchmarks.figures import Figure, seconds
from tests.benchmarks.many_tables import ManyTables
from tests.benchmarks.merges import Table, spread
from tests.counted_lake import CountedPlace, counted_place
from tests.spark_cluster import running_cluster
from tests.spark_connect import free_port

ANSWERS_AFTER_S = 0.02
_COMMAND_S = 2.0
_STATEMENT = "SELECT count(*) AS rows FROM many.t0"
_CHANGES = 100
_WARM_UP = 3
_READERS = 64
_SMALL_BYTES = 1 << 16
_FILES_A_TIMESTAMP = 9
"""Files that SUBSCRIBE reads of each timestamp; PyArrow makes two requests for each, one of them for its size."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of the work.

    Args:
        rows: Rows of the table that takes 10,000 changes.
        ticking_rows: Rows of the table whose changes SUBSCRIBE reads.
        timestamps: Timestamps that SUBSCRIBE reads, with 100 changes each.
        tables: Tables of the source of which a batch changes all.
    """

    rows: int
    ticking_rows: int
    timestamps: int
    tables: int


class Work:
    """The measured work in one lake; each method returns the seconds that it took."""

    def __init__(self, lake: Lake, directory: Path, sizes: Sizes) -> None:
        self._lake, self._sizes, self._run = lake, sizes, 0
        self._merged = Table(lake, directory, "merged", sizes.rows)
        self._many = ManyTables(lake, directory, sizes.tables)
        ticking = Table(lake, directory, "ticking", sizes.ticking_rows)
        for run in range(sizes.timestamps):
            keys = random.Random(run).sample(range(sizes.ticking_rows), _CHANGES)
            ticking.change([(k, f"new {run}", run) for k in keys])
            ticking.ingest()
        times = versions(lake, "bench.ticking")
        self._subscribe = DIFF.format("bench.ticking", times[-1 - sizes.timestamps], times[-1] + 1)

    def merge(self) -> float:
        self._run += 1
        self._merged.change(spread(self._sizes.rows, self._run))
        return self._merged.ingest()

    def one_table(self) -> float:
        self._run += 1
        return self._many.ingest(1, self._run)

    def all_tables(self) -> float:
        self._run += 1
        return self._many.ingest(self._sizes.tables, self._run)

    def subscribe_again(self) -> float:
        return answered(partial(rows_of, self._lake, self._subscribe), self._sizes.timestamps * _CHANGES)

    def subscribe_first(self) -> float:
        with like(self._lake) as fresh:
            fresh.sql("SHOW TABLES")
            return answered(partial(rows_of, fresh, self._subscribe), self._sizes.timestamps * _CHANGES)

    def statement(self) -> float:
        return seconds(lambda: self._lake.sql(_STATEMENT))


def cluster(lake: Lake, directory: Path, sizes: Sizes, runs: int) -> list[Figure]:
    """Measure the work of a batch, of SUBSCRIBE and of a command on a cluster of two workers."""
    directory.mkdir(parents=True)
    with _far_lake(directory) as (settings, place), _Elsewhere(ctx=get_context("spawn")) as elsewhere:
        here = Work(lake, directory / "here", sizes)
        far = elsewhere.Work(settings, directory / "there", sizes)
        works: dict[str, dict[str, Callable[[], float]]] = {
            "merge": {"far": far.merge, "here": here.merge},
            "subscribe first": {
                "far": far.subscribe_first,
                "here": here.subscribe_first,
                "bare": partial(_bare_reads, settings, sizes.timestamps),
            },
            "subscribe again": {"far": far.subscribe_again, "here": here.subscribe_again},
            "tables": {"all": far.all_tables, "one": far.one_table},
            "command": {"command": partial(_command, settings, directory), "statement": far.statement},
        }
        took = {what: _in_turn(place, what, runs, measured) for what, measured in works.items()}
    own = [whole - of for whole, of in zip(took["command"]["command"], took["command"]["statement"], strict=True)]
    timestamps = f"{sizes.timestamps} timestamps of SUBSCRIBE on a cluster"
    return [
        _figure(
            f"10,000 changes into {sizes.rows:,} rows on a cluster, plan to commit",
            took["merge"]["far"],
            "the same on this machine",
            took["merge"]["here"],
            2.0,
        ),
        *(
            _figure(
                f"{timestamps}, {shown}",
                took[f"subscribe {how}"]["far"],
                "local files",
                took[f"subscribe {how}"]["here"],
                3.0,
            )
            for how, shown in (("first", "the first time"), ("again", "again"))
        ),
        _figure(
            f"{timestamps}, the first time",
            took["subscribe first"]["far"],
            f"{_READERS} bare readers of {_FILES_A_TIMESTAMP * sizes.timestamps:,} files",
            took["subscribe first"]["bare"],
            None,
        ),
        _figure(
            f"{_CHANGES} changes in each of {sizes.tables} tables on a cluster, plan to commit",
            took["tables"]["all"],
            "in one of them",
            took["tables"]["one"],
            8.0,
        ),
        _figure(
            "a command against a running Connect server, beyond its statement",
            own,
            f"{_COMMAND_S:g} s",
            [_COMMAND_S] * len(own),
            1.0,
        ),
    ]


def _figure(name: str, values: list[float], floor: str, floors: list[float], goal: float | None) -> Figure:
    return Figure(name, "s", tuple(values), floor, tuple(floors), goal)


def _in_turn(
    place: CountedPlace, what: str, runs: int, measured: dict[str, Callable[[], float]]
) -> dict[str, list[float]]:
    """Measure some work in turn, without runs that warm up; print the requests of the last run."""
    took: dict[str, list[float]] = {name: [] for name in measured}
    for run in range(runs + _WARM_UP):
        for name, measure in measured.items():
            with place.counted() as requests:
                took[name].append(measure())
            if run == runs + _WARM_UP - 1 and requests.store:
                kinds = ", ".join(f"{count} {kind}" for kind, count in requests.store.most_common())
                Console(width=200).print(
                    f"{what}, {name}: {took[name][-1]:.2f} s, {requests.store.total()} requests"
                    f" ({kinds}), {requests.one_after_the_other} one after the other,"
                    f" {requests.store_bytes / 2**20:.1f} MiB, {requests.catalog} statements in the catalog"
                )
    return {name: values[_WARM_UP:] for name, values in took.items()}


def _bare_reads(settings: dict[str, Any], timestamps: int) -> float:
    """Read as many files of the lake as a first SUBSCRIBE to `timestamps`, and nothing else: a limit of store and client."""
    io = PyArrowFileIO(settings["catalog_properties"])
    bucket = settings["warehouse"].split("/")[2]
    within = FileSelector(f"{bucket}/lake", recursive=True)
    small = [each.path for each in io.fs_by_scheme("s3", bucket).get_file_info(within) if 0 < each.size <= _SMALL_BYTES]
    paths = list(islice(cycle(small), _FILES_A_TIMESTAMP * timestamps))

    def read(path: str) -> None:
        with io.new_input(f"s3://{path}").open() as stream:
            stream.read()

    with ThreadPoolExecutor(_READERS) as readers:
        return seconds(lambda: list(readers.map(read, paths)))


def _command(settings: dict[str, Any], directory: Path) -> float:
    """Run a command on the running server, as a process of its own."""
    values = {name: json.dumps(value) if isinstance(value, dict) else str(value) for name, value in settings.items()}
    environment = {f"{ENVIRONMENT_PREFIX}{name.upper()}": value for name, value in values.items()}
    # An installed lakehold has its bytecode: compiling 200 modules at each start would be measured as well.
    environment |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(directory / "bytecode")}
    started = perf_counter()
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lakehold")), "sql", _STATEMENT],
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    took = perf_counter() - started
    assert done.returncode == 0, done.stderr
    return took


@contextmanager
def _far_lake(directory: Path) -> Iterator[tuple[dict[str, Any], CountedPlace]]:
    """Run a cluster, a Connect server and the lake's servers; yields the settings of a lake whose requests are counted."""
    with (
        counted_place(directory / "servers", delay_s=ANSWERS_AFTER_S) as place,
        running_cluster(directory / "spark") as cluster,
    ):
        of_lake = place.new_lake(directory / "servers")
        server = load_settings(
            **of_lake,
            spark_master=cluster.master.url,
            spark_driver_memory="4g",
            spark_conf=cluster.spark_conf(free_port()),
        )
        try:
            remote = lifecycle.up(directory / "connect", server, free_port())
            yield {**of_lake, "spark_remote": remote}, place
        finally:
            lifecycle.down(directory / "connect")


def _on_the_cluster(settings: dict[str, Any], directory: Path, sizes: Sizes) -> Work:
    return Work(connect(**settings), directory, sizes)


class _Elsewhere(BaseManager):
    """A process beside this one: PySpark has either a session of its own or those of Spark Connect, not both."""

    if TYPE_CHECKING:
        Work = staticmethod(_on_the_cluster)


_Elsewhere.register("Work", _on_the_cluster)
