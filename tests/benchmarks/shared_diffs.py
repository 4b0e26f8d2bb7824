"""Many subscriptions or views over the same changes of one table in one process, against one alone."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from io import StringIO
from pathlib import Path
from statistics import mean

from lakehold.cli.command_output import JsonOutput
from lakehold.cli.publish import run_publish
from lakehold.lake import Lake, connect
from lakehold.progress import NoProgress
from tests.benchmarks.figures import Figure, seconds
from tests.benchmarks.merges import Table

CHANGES = 10_000

_WARM_UP = 3

_KINDS = (
    "bench.{table}",
    "bench.{table} ENVELOPE UPSERT (KEY (k))",
    "bench.{table} ENVELOPE DEBEZIUM (KEY (k))",
    "bench.{table} WITHIN TIMESTAMP ORDER BY n DESC",
    "(SELECT k, n FROM bench.{table})",
    "(SELECT k, v AS value FROM bench.{table} WHERE n < {n}) ENVELOPE UPSERT (KEY (k))",
    "(SELECT * FROM bench.{table} WHERE n = {n})",
    "(SELECT n, k FROM bench.{table} WHERE n NOT IN ({n}, 50)) ENVELOPE DEBEZIUM (KEY (k))",
)
"""Statements with different shapes, projections and filters, which subscriptions use in turns."""

_VIEWS = (
    "KEY (k) AS SELECT * FROM bench.{table}",
    "KEY (k) AS SELECT k, upper(v) AS v FROM bench.{table} WHERE n < {n}",
    "KEY (n) AS SELECT n, count(*) AS rows, sum(k) AS total FROM bench.{table} GROUP BY n",
    "AS SELECT n, length(v) AS length FROM bench.{table} WHERE n NOT IN ({n}, 50)",
    "KEY (b) AS SELECT k % 10 AS b, sum(n) AS total FROM bench.{table} GROUP BY k % 10",
    "KEY (k) AS SELECT k, n FROM bench.{table}",
    "KEY (n, b) AS SELECT n, k % 2 AS b, count(*) AS rows FROM bench.{table} GROUP BY n, k % 2",
    "AS SELECT * FROM bench.{table} WHERE n = {n}",
)
"""Materialized views, which lakehold uses in turns."""

Ask = Callable[[Lake, str, range], object]
"""A function that reads the newest changes through the subscriptions of a group."""

_ALONE = "alone"


def read(lake: Lake, directory: Path, rows: int, counts: Sequence[int], runs: int) -> list[Figure]:
    """Run as many SUBSCRIBEs as each of `counts` over the same changes, reading their rows as Arrow tables."""
    table = Table(lake, directory, "read", rows)

    def ask(reader: Lake, _group: str, numbers: range) -> None:
        *_, before, after = (v.mz_timestamp for v in reader.timelines.of(["bench.read"])["bench.read"].versions)
        for number in numbers:
            statement = _statement("read", number)
            window = f"WITH (SNAPSHOT = false) AS OF {before} UP TO {after + 1}"
            chunks = list(reader.open_subscription(f"SUBSCRIBE {statement} {window}").chunks())
            assert chunks or "n =" in statement

    return _figures("subscriptions", table, counts, runs, ask)


def published(lake: Lake, directory: Path, rows: int, counts: Sequence[int], runs: int) -> list[Figure]:
    """Publish as many subscriptions as each of `counts`, one after the other, to a table each."""
    table = Table(lake, directory, "published", rows)
    for group, count in ((_ALONE, len(_KINDS)), *((str(count), count) for count in counts)):
        for number in range(count):
            statement = f"{_statement('published', number)} WITH (SNAPSHOT = false)"
            lake.sql(f"CREATE SUBSCRIPTION s{group}_{number} INTO out.s{group}_{number} AS SUBSCRIBE {statement}")
            lake.publish(f"s{group}_{number}")

    def ask(reader: Lake, group: str, numbers: range) -> None:
        for number in numbers:
            assert reader.publish(f"s{group}_{number}")

    return _figures("subscriptions published", table, counts, runs, ask, each=None)


def refreshed(lake: Lake, directory: Path, rows: int, counts: Sequence[int], runs: int) -> list[Figure]:
    """Refresh as many materialized views as each of `counts`, as `lakehold publish` does."""
    table = Table(lake, directory, "viewed", rows)
    for group, count in ((_ALONE, len(_VIEWS)), *((str(count), count) for count in counts)):
        for number in range(count):
            view = _VIEWS[number % len(_VIEWS)].format(table="viewed", n=number + 20)
            lake.sql(f"CREATE MATERIALIZED VIEW out.v{group}_{number} {view}")
            lake.publish(f"out.v{group}_{number}")

    def ask(reader: Lake, group: str, numbers: range) -> None:
        shown = StringIO()
        names = [f"out.v{group}_{number}" for number in numbers]
        assert run_publish(reader, names, JsonOutput(shown, sys.stderr), NoProgress(), follow=False) == 0
        assert shown.getvalue().count("\n") >= len(names)

    return _figures("views refreshed", table, counts, runs, ask, each=0.3)


def _figures(
    what: str, table: Table, counts: Sequence[int], runs: int, ask: Ask, *, each: float | None = 0.1
) -> list[Figure]:
    """Measure `ask` for each of `counts`, beside the mean of each kind alone, in turns over the same changes.

    The goal is that each one takes at most the share `each` of one alone; None: no goal.

    Each count and each kind alone has its own lake in this process, so that no measurement uses another one's cached diffs.
    """
    took: dict[int, list[float]] = {count: [] for count in counts}
    alone: list[float] = []
    with ExitStack() as stack:

        def reader() -> Lake:
            return stack.enter_context(connect(table.lake.settings.warehouse, spark=table.lake.spark))

        sharing, by_themselves = {count: reader() for count in counts}, [reader() for _ in _KINDS]
        for run in range(runs + _WARM_UP):
            chosen = random.Random(run).sample(range(table.rows), CHANGES)
            table.change([(k, f"new {run}", (k + run + 1) % 97) for k in chosen])
            table.ingest()
            alone.append(
                mean(
                    seconds(partial(ask, one, _ALONE, range(number, number + 1)))
                    for number, one in enumerate(by_themselves)
                )
            )
            for count in counts:
                took[count].append(seconds(partial(ask, sharing[count], str(count), range(count))))
    warm = slice(_WARM_UP, None)
    return [
        Figure(
            f"{count} {what}, the same {CHANGES:,} changes",
            "s",
            tuple(took[count][warm]),
            "one alone, the mean of eight kinds",
            tuple(alone[warm]),
            goal=1 + each * count if each is not None else None,
        )
        for count in counts
    ]


def _statement(table: str, number: int) -> str:
    return _KINDS[number % len(_KINDS)].format(table=table, n=number)
