"""Measure the time from a commit in PostgreSQL to a row that readers of the lake see, under pgbench's load.

Floor: the time from the commit to Kafka, in the same run, and a bare MERGE of one batch's changes into a copy of each table, one
after the other. That is the least work, unless a part is done while the next changes arrive.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Event
from time import sleep, time

from lakehold.cli.poll_backoff import pause_after
from lakehold.ingest.several_sources import SourceFailed
from lakehold.lake import Lake
from tests.benchmarks.drain import BareTables
from tests.benchmarks.figures import Figure, seconds
from tests.benchmarks.first_load import stack_for_benchmark
from tests.benchmarks.pgbench import TABLES, Bank
from tests.stack_fixtures import SourceDatabase

_WARM_UP_S = 40.0
_IDLE_MS = 10_000
"""The idle time of `lakehold ingest --follow`."""
_SENT_WITHIN_S = 3.0
"""The time after a commit within which its changes reach Kafka."""
_MERGES = 7
_WARM_MERGES = 4


def lags(lake: Lake, rates: Sequence[float], length_s: float, over: str = "") -> list[Figure]:
    """Follow each load, of some transactions a second, for some seconds after it has warmed up; `over` names a long time."""
    figures = []
    with stack_for_benchmark() as addresses:
        database = SourceDatabase(addresses)
        bank = Bank(lake, database, branches=1, max_records=500_000)
        bare = BareTables(lake, bank, addresses.kafka, addresses.registry)
        for rate in rates:
            with _loaded(bank, rate):
                _follow(lake, time() + _WARM_UP_S)
                starts, start_s = bare.ends(), time()
                ended_s = start_s + length_s
                shown_s = _follow(lake, ended_s + _SENT_WITHIN_S)
            to_row_s = _rows_s(lake, shown_s, start_s, ended_s)
            per_batch = max(1, len(to_row_s) // len(shown_s))
            floor_s = statistics.median(_kafka_s(bare, starts["history"])) + _merging_s(bare, starts, per_batch)
            figures += _figures(f"commit to row, {rate:g} transactions/s{over}", to_row_s, floor_s)
        bank.source.catch_up()
        bank.assert_equal()
        database.drop()
    return figures


def _figures(name: str, to_row_s: Sequence[float], floor_s: float) -> list[Figure]:
    ordered, third = sorted(to_row_s), len(to_row_s) // 3
    p50_s, p99_s = (ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.99))
    early_s, late_s = statistics.median(to_row_s[: third + 1]), statistics.median(to_row_s[-third - 1 :])
    floor = "commit to Kafka, and a bare MERGE per table"
    return [
        Figure(f"{name}, p50", "s", (p50_s,), floor, (floor_s,), 1.0),
        Figure(f"{name}, p99", "s", (p99_s,), floor, (floor_s,), 1.8),
        Figure(f"{name}, the last third of the time, p50", "s", (late_s,), "the first third", (early_s,), 1.3),
    ]


@contextmanager
def _loaded(bank: Bank, per_s: float) -> Iterator[None]:
    is_over = Event()
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(bank.run_until, is_over, per_s)
        try:
            yield
        finally:
            is_over.set()
            running.result()


def _follow(lake: Lake, until_s: float) -> dict[int, float]:
    """Ingest as `--follow` does, until a batch that began after `until_s` (epoch seconds) is readable.

    Returns:
        The time (epoch seconds) at which each batch with changes was readable, by its timestamp.
    """
    shown_s: dict[int, float] = {}
    while not any(timestamp_ms > until_s * 1000 for timestamp_ms in shown_s):
        began_s, has_changes = time(), False
        for report in lake.batches_together(["live"], idle_ms=_IDLE_MS):
            if isinstance(report, SourceFailed):
                raise report.error
            assert not report.stopped
            has_changes |= report.records > 0
            if report.tables:
                shown_s[report.timestamp_ms] = time()
        sleep(pause_after(time() - began_s, has_changes=has_changes))
    return shown_s


def _rows_s(lake: Lake, shown_s: Mapping[int, float], start_s: float, ended_s: float) -> list[float]:
    """Return the seconds from each commit in [start_s, ended_s) to its row in the lake, in the order of commits."""
    found = lake.sql(
        "SUBSCRIBE (SELECT CAST(unix_micros(CAST(mtime AS TIMESTAMP)) AS DOUBLE) / 1e6 AS at_s FROM live.history) "
        f"WITH (SNAPSHOT = false) AS OF {min(shown_s) - 1} UP TO {max(shown_s) + 1}"
    )
    at, when = found.columns.index("at_s"), found.columns.index("mz_timestamp")
    rows = sorted((row[at], shown_s[row[when]]) for row in found.rows if start_s <= row[at] < ended_s)
    return [shown - at_s for at_s, shown in rows]


def _kafka_s(bare: BareTables, start: int) -> list[float]:
    """Return the seconds from each commit to its message."""
    changes = bare.changes("history", start, bare.ends()["history"])
    sent = changes.selectExpr("unix_millis(timestamp) / 1e3 - after.mtime / 1e6 AS lag_s").toArrow()
    return [float(lag_s) for lag_s in sent["lag_s"].to_pylist()]


def _merging_s(bare: BareTables, starts: Mapping[str, int], transactions: int) -> float:
    """Return the median seconds of merging the changes of some transactions, which were read before."""
    took_s = []
    for _ in range(_MERGES):
        read = {
            table: bare.last_changes(table, starts[table], starts[table] + transactions).persist() for table in TABLES
        }
        for last in read.values():
            last.count()
        took_s.append(sum(seconds(partial(bare.merge, table, last)) for table, last in read.items()))
        for last in read.values():
            last.unpersist()
    return statistics.median(took_s[_WARM_MERGES:])
