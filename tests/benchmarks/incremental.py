"""SUBSCRIBEs of aggregates and joins, 1,000 changed facts a timestamp: by size, against the whole computation and the diff."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from lakehold.lake import Lake, connect
from lakehold.sql.result import Result
from lakehold.subscribe.query_relation import QueryRelation
from lakehold.subscribe.sorting import Sorting
from tests.benchmarks.figures import Figure, seconds

CHANGES = 1_000
_CUSTOMERS = 10_000
_FILE_ROWS = 500_000
_WARM_UP = 3
_WHOLE_RUNS = 2

_QUERIES = {
    "an aggregate": "SELECT c, count(*) AS facts, sum(n) AS total FROM bench.{fact} GROUP BY c",
    "a join": "SELECT f.k, f.n, d.name FROM bench.{fact} f JOIN bench.customers d ON f.c = d.c",
    "an aggregate over a join": (
        "SELECT d.region, count(*) AS facts, sum(f.n) AS total"
        " FROM bench.{fact} f JOIN bench.customers d ON f.c = d.c GROUP BY d.region"
    ),
}


def by_size(lake: Lake, rows: int, runs: int) -> list[Figure]:
    """Measure each query on a table and one ten times as large, after each change."""
    with _like(lake) as reader:
        return _by_size(reader, rows, runs)


def _like(lake: Lake) -> Lake:
    """Open the lake again, without the wait for commits of other writers: there are none."""
    same = {name: getattr(lake.settings, name) for name in ("warehouse", "catalog_uri", "catalog_name")}
    return connect(**same, foreign_lag_ms=0, spark=lake.spark)


def _by_size(lake: Lake, rows: int, runs: int) -> list[Figure]:
    lake.sql(
        "CREATE NAMESPACE IF NOT EXISTS bench; CREATE TABLE bench.customers (c INT, name STRING, region INT) USING iceberg"
    )
    customers = lake.spark.range(0, _CUSTOMERS, 1, 1)
    customers.selectExpr(
        "CAST(id AS INT) AS c", "concat('name ', id) AS name", "CAST(id % 50 AS INT) AS region"
    ).writeTo("bench.customers").append()
    sizes = (rows, rows * 10)
    for size in sizes:
        _create(lake, size)
    took: dict[tuple[str, int], list[float]] = {}
    first: dict[str, list[float]] = {}
    whole: dict[str, list[float]] = {name: [] for name in _QUERIES}
    for run in range(runs + _WARM_UP):
        for size in sizes:
            window = _changed(lake, size, run)
            bare = partial(_answered, lake, f"SUBSCRIBE bench.fact_{size} {window}", 2 * CHANGES)
            took.setdefault(("the diff", size), []).append(seconds(bare))
            for name, query in _QUERIES.items():
                text = query.format(fact=f"fact_{size}")
                seen = seconds(partial(_answered, lake, f"SUBSCRIBE ({text}) {window}", 50))
                took.setdefault((name, size), []).append(seen)
                if size == sizes[-1] and not run:
                    first[name] = [seen]
                if size == sizes[-1] and run < _WHOLE_RUNS:
                    whole[name].append(seconds(partial(_whole, lake, text, window)))
    return list(_figures(took, first, whole, sizes))


def _figures(
    took: dict[tuple[str, int], list[float]],
    first: dict[str, list[float]],
    whole: dict[str, list[float]],
    sizes: tuple[int, int],
) -> Iterator[Figure]:
    small, large = sizes
    warm = {key: tuple(values[_WARM_UP:]) for key, values in took.items()}
    for name in _QUERIES:
        of = f"changes of {name} of {large:,} rows"
        values = warm[name, large]
        yield Figure(of, "s", values, f"the same of {small:,} rows", warm[name, small], goal=1.5)
        yield Figure(of, "s", values, "computed whole at both ends", tuple(whole[name]), goal=0.1)
        goal = 3.0 if name == "an aggregate" else None
        yield Figure(of, "s", values, "the diff of the table", warm["the diff", large], goal)
        yield Figure(
            f"the first {of}", "s", tuple(first[name]), "computed whole at both ends", tuple(whole[name]), None
        )


def _create(lake: Lake, size: int) -> None:
    name = f"bench.fact_{size}"
    lake.sql(
        f"CREATE TABLE {name} (k BIGINT, c INT, n BIGINT, v STRING) USING iceberg"
        " TBLPROPERTIES ('format-version' = '3', 'write.update.mode' = 'merge-on-read')"
    )
    columns = (
        "id AS k",
        f"CAST(pmod(xxhash64(id), {_CUSTOMERS}) AS INT) AS c",
        "id % 97 AS n",
        "concat('value ', id) AS v",
    )
    step = min(_FILE_ROWS, size)
    for start in range(0, size, step):
        lake.spark.range(start, start + step, 1, 1).selectExpr(*columns).writeTo(name).append()


def _changed(lake: Lake, size: int, run: int) -> str:
    """Change facts in the newest file, and return the clauses of a SUBSCRIBE to this change."""
    name = f"bench.fact_{size}"
    rows = min(_FILE_ROWS, size)
    lake.sql(f"UPDATE {name} SET n = n + 1 WHERE k >= {size - rows} AND k % {rows // CHANGES} = {run}")
    *_, before, after = (version.mz_timestamp for version in lake.timelines.of([name])[name].versions)
    return f"WITH (SNAPSHOT = false) AS OF {before} UP TO {after + 1}"


def _answered(lake: Lake, statement: str, at_least: int) -> None:
    found: Result = lake.sql(statement)
    assert len(found.rows) >= at_least, f"{len(found.rows)} rows"


def _whole(lake: Lake, query: str, window: str) -> None:
    """Compute a query at both ends of a change, and subtract."""
    opened = lake.open_subscription(f"SUBSCRIBE ({query}) {window}")
    whole: QueryRelation = opened.subscription.relation.whole  # type: ignore[attr-defined]
    tables = whole.changes(opened.timelines, opened.window.as_of_ms, opened.window.until_ms, Sorting())
    assert sum(table.num_rows for table in tables)
