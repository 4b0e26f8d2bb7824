"""Tables with awkward values and random histories, and random queries over them, for incremental SUBSCRIBEs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lakehold.lake import Lake
from lakehold.timeline.table_timeline import Timeline

COLUMNS = {
    "r.fact": {
        "id": "INT",
        "k": "INT",
        "g": "STRING",
        "n": "INT",
        "big": "BIGINT",
        "m": "DECIMAL(10, 2)",
        "wide": "DECIMAL(38, 4)",
        "f": "DOUBLE",
        "b": "BOOLEAN",
        "day": "DATE",
        "at": "TIMESTAMP",
    },
    "r.dim": {"k": "INT", "name": "STRING", "region": "INT", "rate": "DECIMAL(5, 3)", "f": "DOUBLE"},
    "r.region": {"region": "INT", "zone": "STRING"},
}

_VALUES = {
    "INT": ["0", "1", "2", "3", "NULL"],
    "STRING": ["'a'", "'b'", "''", "'ä'", "'\U0001f600'", "NULL"],
    "BIGINT": ["0", "-7", "9007199254740993", "1000000000000", "NULL"],
    "DECIMAL(10, 2)": ["0.00", "-1.50", "99999999.99", "0.01", "0.02", "NULL"],
    "DECIMAL(38, 4)": ["1.0000", "9999999999999999999999999999999999.9999", "-2.5000", "NULL"],
    "DECIMAL(5, 3)": ["1.000", "0.333", "NULL"],
    "DOUBLE": ["0.0D", "-0.0D", "CAST('NaN' AS DOUBLE)", "CAST('Infinity' AS DOUBLE)", "1.5D", "-2.25D", "NULL"],
    "BOOLEAN": ["true", "false", "NULL"],
    "DATE": ["DATE'2026-11-27'", "DATE'+12026-01-01'", "DATE'0001-01-01'", "NULL"],
    "TIMESTAMP": ["TIMESTAMP'2026-11-27 12:00:00.123456 UTC'", "TIMESTAMP'2026-11-28 00:00:00 UTC'", "NULL"],
}


def create(lake: Lake) -> None:
    """Create the tables, each with its first rows."""
    lake.sql("CREATE NAMESPACE r")
    for name, columns in COLUMNS.items():
        listed = ", ".join(f"{column} {of}" for column, of in columns.items())
        lake.sql(
            f"CREATE TABLE {name} ({listed}) USING iceberg TBLPROPERTIES ('format-version' = '3',"
            " 'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read')"
        )


def change(lake: Lake, name: str, chosen: random.Random) -> None:
    """Change a table at random: rows come, often equal ones, go, or get other values."""
    kind = chosen.choice(["insert", "insert", "update", "delete"])
    key = "region" if name == "r.region" else "k"
    if kind == "insert":
        insert(lake, name, chosen, chosen.choice([1, 3, 8]))
    elif kind == "update":
        column = chosen.choice([c for c in COLUMNS[name] if c != "id"])
        lake.sql(f"UPDATE {name} SET {column} = {_value(name, column, chosen)} WHERE {key} = {chosen.randrange(4)}")
    else:
        where = chosen.choice([f"{key} = {chosen.randrange(4)}", f"{key} IS NULL", f"{key} < 2"])
        lake.sql(f"DELETE FROM {name} WHERE {where}")


def insert(lake: Lake, name: str, chosen: random.Random, count: int) -> None:
    """Insert rows, some of them twice."""
    rows = [", ".join(_value(name, column, chosen) for column in COLUMNS[name]) for _ in range(count)]
    rows += rows[: chosen.choice([0, 1])]
    types = ", ".join(f"CAST({column} AS {of}) AS {column}" for column, of in COLUMNS[name].items())
    values = ", ".join(f"({row})" for row in rows)
    lake.sql(f"INSERT INTO {name} SELECT {types} FROM VALUES {values} AS v({', '.join(COLUMNS[name])})")


def _value(name: str, column: str, chosen: random.Random) -> str:
    of = COLUMNS[name][column]
    return f"CAST({chosen.choice(_VALUES[of])} AS {of})"


def dated(timelines: Mapping[str, Timeline]) -> dict[str, Timeline]:
    """Give the versions of all tables the same timestamps 1, 2, 3, …, so that they change together."""
    found = {}
    for name, timeline in timelines.items():
        versions = tuple(replace(version, mz_timestamp=1 + n) for n, version in enumerate(timeline.versions))
        found[name] = replace(timeline, versions=versions, since_ms=1, upper_ms=1 + max(len(versions), 1))
    return found


# --- queries ----------------------------------------------------------------------------------------------------------

_FROM = [
    "r.fact AS t",
    "r.fact t JOIN r.dim d ON t.k = d.k",
    "r.fact t LEFT JOIN r.dim d ON t.k = d.k",
    "r.dim d LEFT JOIN r.fact t ON d.k = t.k AND t.n > 0",
    "r.fact t JOIN r.dim d ON t.f = d.f",
    "r.fact t JOIN r.dim d ON t.k = d.k JOIN r.region x ON d.region = x.region",
    "r.fact t LEFT JOIN r.dim d ON t.k = d.k JOIN r.region x ON t.n = x.region",
    "r.region x JOIN r.fact t ON x.region = t.k LEFT JOIN r.dim d ON d.k = t.k",
    "r.fact t, r.dim d WHERE t.k = d.k AND t.n IS NOT NULL",
    "r.fact t JOIN r.dim d USING (k)",
    "r.fact t JOIN r.dim d USING (k) JOIN r.region x USING (region)",
]
_KEYS = [
    "t.g",
    "t.n",
    "t.b",
    "t.day",
    "t.at",
    "t.m",
    "t.k % 2",
    "upper(t.g)",
    "date_trunc('DAY', t.at)",
    "d.name",
    "x.zone",
]
_AGGREGATES = [
    "count(*)",
    "count(t.f)",
    "sum(t.n)",
    "sum(t.big)",
    "sum(t.m)",
    "avg(t.n)",
    "avg(t.m)",
    "avg(t.big)",
    "min(t.m)",
    "max(t.g)",
    "min(t.day)",
    "max(t.at)",
    "min(t.n)",
    "bool_and(t.b)",
    "bool_or(t.b)",
    "count_if(t.n > 1)",
    r"count_if(t.g RLIKE r'\w') - count_if(t.g RLIKE r'\W')",
    "sum(t.n * 2) + 1",
    "coalesce(sum(t.m), 0)",
    "max(d.name)",
    "sum(d.rate)",
    "count(x.zone)",
]
_HAVING = ["", "", " HAVING count(*) > 1", " HAVING sum(t.n) > 2 OR min(t.g) IS NULL"]


def queries(chosen: random.Random, count: int) -> Iterator[str]:
    """Yield random queries that are computed incrementally, except those that are `is_whole`."""
    for _ in range(count):
        yield chosen.choice(_FORMS)(chosen)


def _known(texts: Sequence[str], tables: str) -> list[str]:
    names = [name for name in ("t", "d", "x") if f" {name}" in f" {tables} ".replace(",", " ")]
    return [text for text in texts if all(f"{name}." not in text or name in names for name in ("t", "d", "x"))]


def _from(chosen: random.Random) -> tuple[str, str]:
    tables = chosen.choice(_FROM)
    where = "" if "WHERE" in tables else chosen.choice(["", "", " WHERE t.n >= 1", " WHERE t.b OR t.g = 'a'"])
    return tables, where


def _joined(chosen: random.Random) -> str:
    tables, where = _from(chosen)
    items = chosen.choice(["*", "t.*, t.f + 1 AS more", "t.id, t.g, t.f"])
    return f"SELECT {items} FROM {tables}{where}"


def _grouped(chosen: random.Random) -> str:
    tables, where = _from(chosen)
    keys = chosen.sample(_known(_KEYS, tables), chosen.choice([0, 1, 1, 2]))
    calls = chosen.sample(_known(_AGGREGATES, tables), chosen.choice([1, 2, 4]))
    grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
    having = chosen.choice(_HAVING)
    return f"SELECT {', '.join([*keys, *calls])} FROM {tables}{where}{grouped}{having}"


def _distinct(chosen: random.Random) -> str:
    tables, where = _from(chosen)
    return f"SELECT DISTINCT {', '.join(chosen.sample(_known(_KEYS, tables), 2))} FROM {tables}{where}"


def _windowed(chosen: random.Random) -> str:
    over = chosen.choice(
        ["PARTITION BY k ORDER BY n", "PARTITION BY g, f ORDER BY m DESC", "PARTITION BY f ORDER BY n"]
    )
    call = chosen.choice(["rank()", "dense_rank()", "count(*)", "sum(m)", "max(n)"])
    query = f"SELECT id, k, n, {call} OVER ({over}) AS w FROM {chosen.choice(['r.fact', *_SUBQUERIES['r.fact']])}"
    return chosen.choice([query, f"SELECT k, w FROM ({query}) WHERE w > 1"])


def _joined_windows(chosen: random.Random) -> str:
    tables, where = chosen.choice(
        [
            ("r.fact t JOIN r.dim d ON t.k = d.k", "PARTITION BY d.name ORDER BY t.n"),
            ("r.fact t JOIN r.dim d USING (k)", "PARTITION BY t.g, d.region ORDER BY d.name"),
            ("r.fact t LEFT JOIN r.dim d ON t.k = d.k", "PARTITION BY t.k ORDER BY d.region"),
            ("(SELECT k, n AS p FROM r.fact) t JOIN r.region x ON t.k = x.region", "PARTITION BY t.p ORDER BY x.zone"),
        ]
    )
    call = chosen.choice(["rank()", "count(*)", "max(t.k)"]) if "USING" not in tables else "dense_rank()"
    return f"SELECT *, {call} OVER ({where}) AS w FROM {tables}"


def _united(chosen: random.Random) -> str:
    other = chosen.choice(
        [
            "SELECT k, CAST(region AS BIGINT) FROM r.dim",
            "SELECT x.region, t.big FROM r.region x JOIN r.fact t ON t.k = x.region",
        ]
    )
    return chosen.choice(
        [
            f"SELECT k, n FROM r.fact WHERE n > 0 UNION ALL {other} UNION ALL SELECT region, 1 FROM r.region",
            # Both parts have columns `n` and `region`, and only one compares them.
            "SELECT zone, n FROM r.fact, r.region WHERE n = region UNION ALL SELECT name, n FROM r.fact, r.dim WHERE b",
        ]
    )


def _recomputed(chosen: random.Random) -> str:
    call = chosen.choice(
        ["count(DISTINCT n)", "count(DISTINCT n, g)", "count(*) FILTER (WHERE n > 1)", "sum(DISTINCT n)"]
    )
    key = chosen.choice(["k", "f", "g"])
    distinct = chosen.choice(["", "", "", "DISTINCT "])
    return f"SELECT {distinct}{key}, {call} FROM r.fact GROUP BY {chosen.choice([key, '1'])}{', b' if distinct else ''}"


def is_whole(query: str) -> bool:
    """Return whether a query of `queries` has to be computed whole."""
    return query.startswith("SELECT DISTINCT") and "GROUP BY" in query


def _recomputed_over_joins(chosen: random.Random) -> str:
    tables = chosen.choice(["r.fact t JOIN r.dim d ON t.k = d.k", "r.dim d LEFT JOIN r.fact t ON d.k = t.k"])
    call = chosen.choice(["count(DISTINCT t.n)", "count(*) FILTER (WHERE t.n > 1)", "max(t.f)"])
    return f"SELECT d.k, d.name, {call} FROM {tables} GROUP BY d.k, d.name"


_SUBQUERIES = {
    "r.fact": [
        "(SELECT * FROM r.fact WHERE n IS NOT NULL)",
        "(SELECT id, k, g, n + 1 AS n, big, m, wide, f, b, day, at FROM r.fact)",
        "(SELECT * FROM (SELECT *, n AS more FROM r.fact) WHERE more < 3 OR b)",
    ],
    "r.dim": ["(SELECT k, name, region, rate, f FROM r.dim WHERE rate < 1)", "(SELECT * FROM r.dim)"],
    "r.region": ["(SELECT region, zone FROM r.region UNION ALL SELECT k, name FROM r.dim)"],
}
_JOINED_SUBQUERY = "(SELECT f0.* FROM r.fact f0 JOIN r.region r0 ON f0.k = r0.region)"


def _nested(chosen: random.Random) -> str:
    """Read subqueries or WITH instead of tables."""
    query = chosen.choice([_joined, _grouped, _distinct])(chosen)
    first = []
    for name, subqueries in _SUBQUERIES.items():
        if name not in query:
            continue
        known = [*subqueries, _JOINED_SUBQUERY] if name == "r.fact" and "LEFT JOIN r.fact" not in query else subqueries
        subquery = chosen.choice(known)
        if chosen.choice([True, False]):
            alias = f"w_{name[2:]}"
            first.append(f"{alias} AS {subquery}")
            subquery = alias
        query = query.replace(name, subquery)
    return f"WITH {', '.join(first)} {query}" if first else query


def _around_groups(chosen: random.Random) -> str:
    """Read the groups of a subquery."""
    tables, where = _from(chosen)
    key = chosen.choice(_known(_KEYS, tables))
    call = chosen.choice(["count(*)", "sum(t.n)", "max(t.n)"])
    groups = f"SELECT {key} AS a, {call} AS c FROM {tables}{where} GROUP BY {key}{chosen.choice(_HAVING)}"
    return chosen.choice(
        [
            f"SELECT * FROM ({groups}) WHERE c > 1",
            f"SELECT s.a, s.c * 2, s.c + 1 AS c FROM (SELECT * FROM ({groups})) AS s WHERE s.a IS NOT NULL",
            f"WITH s AS ({groups}) SELECT c, count(*), min(a) FROM s GROUP BY c",
            f"SELECT count(*), sum(c) FROM ({groups}) AS s WHERE c < 5",
        ]
    )


_FORMS = [
    _joined,
    _grouped,
    _grouped,
    _distinct,
    _windowed,
    _joined_windows,
    _united,
    _recomputed,
    _recomputed_over_joins,
    _nested,
    _nested,
    _around_groups,
]
