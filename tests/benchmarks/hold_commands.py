"""The commands of a person who works with holds: single commands, a listing, the limits of MAX LAG, many concurrent advances."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lakehold.lake import Lake
from tests.benchmarks.figures import Figure, seconds
from tests.benchmarks.merges import Table

_TABLES = 50
_HOLDS = 1_000
_CALLERS = 50
_ADVANCES = 10
"""Advances of each caller, one after the other."""

_COMMAND_S = 0.5
_LISTING_S = 3.0
_WARM_UP = 2


def commands(lake: Lake, directory: Path, rows: int, runs: int) -> list[Figure]:
    """Measure each statement about a hold on a table of `rows` rows with a few snapshots."""
    table = Table(lake, directory, "commanded", rows)
    name = f"bench.{table.name}"
    for run in range(5):
        table.change([(run, "new", run)])
        table.ingest()
    since_ms, upper_ms = (getattr(lake.timelines.of([name])[name], bound) for bound in ("since_ms", "upper_ms"))
    took: dict[str, list[float]] = {}
    for _ in range(runs + _WARM_UP):
        for what, statement in {
            "CREATE HOLD": f"CREATE HOLD kept ON {name} AT {since_ms}",
            "ALTER HOLD … ADVANCE": f"ALTER HOLD kept ADVANCE TO {upper_ms - 1}",
            "ALTER HOLD … RENAME": "ALTER HOLD kept RENAME TO renamed",
            "SHOW HOLDS": "SHOW HOLDS",
            "DROP HOLD": "DROP HOLD renamed",
        }.items():
            took.setdefault(what, []).append(seconds(_run(lake, statement)))
    return [_within(what, values[_WARM_UP:], _COMMAND_S) for what, values in took.items()]


def many(lake: Lake, runs: int) -> list[Figure]:
    """Measure 1,000 holds on 50 tables, and 50 callers that advance ten times each; no advance may be lost."""
    lake.sql("CREATE NAMESPACE IF NOT EXISTS many")
    for table in range(_TABLES):
        lake.sql(f"CREATE TABLE many.t{table} USING iceberg AS SELECT 1 AS k")
    made = seconds(
        lambda: [
            lake.sql(f"CREATE HOLD many_{n} ON many.t{n % _TABLES}, many.t{(n + 1) % _TABLES}") for n in range(_HOLDS)
        ]
    )
    listed = [seconds(_run(lake, "SHOW HOLDS")) for _ in range(runs)]
    enforced = [seconds(lake.holds.enforce_lag) for _ in range(runs)]
    first_ms = max(line.since_ms or 0 for line in lake.timelines.of([f"many.t{n}" for n in range(_TABLES)]).values())

    def advance(caller: int) -> None:
        for step in range(1, _ADVANCES + 1):
            lake.holds.advance(f"many_{caller}", first_ms + step)

    with ThreadPoolExecutor(_CALLERS) as threads:
        advanced = seconds(lambda: list(threads.map(advance, range(_CALLERS))))
    times_ms = {hold.name: hold.at_ms for hold in lake.holds.all()}
    assert all(times_ms[f"many_{caller}"] == first_ms + _ADVANCES for caller in range(_CALLERS)), (
        "no advance may be lost"
    )
    count = _CALLERS * _ADVANCES
    return [
        _within(f"CREATE HOLD, each of {_HOLDS:,} on {_TABLES} tables", [made / _HOLDS], _COMMAND_S),
        _within(f"SHOW HOLDS of {_HOLDS:,}", listed, _LISTING_S),
        _within(f"MAX LAG of {_HOLDS:,} holds enforced", enforced, _LISTING_S),
        _within(f"{count} ADVANCE by {_CALLERS} callers", [advanced], count / 100),
    ]


def _run(lake: Lake, statement: str) -> Callable[[], object]:
    return lambda: lake.sql(statement)


def _within(what: str, took: list[float], goal_s: float) -> Figure:
    return Figure(what, "s", tuple(took), f"{goal_s:g} s", (goal_s,) * len(took), goal=1.0)
