"""Random histories of two tables, read back from random timestamps: the sums of the diffs equal the tables' rows.

A history is a list of Spark statements. The model is `SELECT … VERSION AS OF` of each version, mapped to the current columns by
field id. `REPLAY_EXAMPLES` in the environment sets the number of histories.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from lakehold.errors import NotReadable
from lakehold.lake import Lake
from tests.conftest import LakeFactory
from tests.random_histories import FORMATS, LEFT_AND_EXPIRED, PLACES, Bag, Change, Past, Row, histories, made, one_of

pytestmark = pytest.mark.spark

EXAMPLES = int(os.environ.get("REPLAY_EXAMPLES", "1"))
READ_HERE = 200_000
LAG_MS = 20


def bag_of(rows: Iterable[Row]) -> Bag:
    """Sum raw diffs by row."""
    found: Bag = Counter()
    for row in rows:
        found[row[2:]] += row[1]
    return found


def is_bag(diffs: Bag) -> Bag:
    """Return the rows with a positive count; a negative count fails."""
    assert all(count >= 0 for count in diffs.values()), diffs
    return +diffs


def assert_replays(rows: Sequence[Row], times: Sequence[int], expected: Callable[[int], Bag | None]) -> None:
    """Assert that raw `rows` up to each time sum to the rows expected then, unless these are unknown (None)."""
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    assert {row[0] for row in rows} <= {*times}
    for ms in times:
        wanted = expected(ms)
        if wanted is not None:
            assert is_bag(bag_of(row for row in rows if row[0] <= ms)) == wanted, ms


def assert_consolidated(rows: Sequence[Row]) -> None:
    """Assert that a timestamp has at most one diff of each row, and no diff of zero."""
    assert all(row[1] for row in rows)
    assert not [row for row, count in Counter((row[0], *row[2:]) for row in rows).items() if count > 1]


def from_upserts(rows: Iterable[Row], at_ms: int) -> dict[int, Row]:
    """Replay an `ENVELOPE UPSERT` up to a time; return the last values of each key."""
    state: dict[int, Row] = {}
    for ms, kind, key, *values in rows:
        if ms > at_ms:
            break
        if kind == "upsert":
            state[key] = tuple(values)
        else:
            assert kind == "delete", (ms, kind, key)
            assert set(values) <= {None}
            del state[key]
    return state


def from_debezium(rows: Iterable[Row], at_ms: int) -> dict[int, Row]:
    """Replay an `ENVELOPE DEBEZIUM` up to a time, checking each before; return the last values of each key."""
    state: dict[int, Row] = {}
    for ms, kind, key, *sides in rows:
        if ms > at_ms:
            break
        before, after = tuple(sides[: len(sides) // 2]), tuple(sides[len(sides) // 2 :])
        if kind == "insert":
            assert key not in state
        else:
            assert kind in ("upsert", "delete"), (ms, kind, key)
            assert state.pop(key) == before
        if kind != "delete":
            state[key] = after
    return state


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(changes=histories("s.t"), layout=FORMATS, few=st.sampled_from([0, 3]), begins=PLACES, resumes=PLACES)
@example(changes=LEFT_AND_EXPIRED, layout=(2, "merge-on-read"), few=3, begins=0, resumes=1)
def test_random_histories_of_tables_are_replayed(
    make_lake: LakeFactory,
    changes: list[tuple[str, Change]],
    layout: tuple[int, str],
    few: int,
    begins: int,
    resumes: int,
) -> None:
    lake = make_lake(foreign_lag_ms=LAG_MS)
    past = made(lake, changes, unique=False, layout=layout)
    by_spark = reader_of(lake, make_lake, few)
    name = "s.t"
    times = past.times([name])
    as_of_ms = one_of(past.readable([name]), begins)
    resumed_ms = one_of([ms for ms in past.readable([name]) if ms >= as_of_ms], resumes)
    later = [ms for ms in times if ms >= as_of_ms]

    rows = lake.sql(f"SUBSCRIBE {name} AS OF {as_of_ms}").rows
    assert_consolidated(rows)
    assert_replays(rows, later, lambda ms: past.state(name, ms) if past.is_known(name, ms) else None)
    assert by_spark.sql(f"SUBSCRIBE {name} AS OF {as_of_ms}").rows == rows

    first = lake.sql(f"SUBSCRIBE {name} AS OF {as_of_ms} UP TO {resumed_ms + 1}").rows
    rest = lake.sql(f"SUBSCRIBE {name} WITH (SNAPSHOT = false) AS OF {resumed_ms}").rows
    assert [*first, *rest] == rows

    assert_resumes_from_any_progress(lake, name, as_of_ms, rows, past)
    assert_gaps_are_errors(lake, name, past)


def assert_resumes_from_any_progress(lake: Lake, name: str, as_of_ms: int, rows: Sequence[Row], past: Past) -> None:
    """Assert that a reader who resumes from any progress row gets exactly the rest of the rows."""
    with_progress = lake.sql(f"SUBSCRIBE {name} WITH (PROGRESS) AS OF {as_of_ms}").rows
    assert [(row[0], *row[2:]) for row in with_progress if not row[1]] == rows
    frontiers = [row[0] for row in with_progress if row[1]]
    assert frontiers == sorted({as_of_ms, *(row[0] + 1 for row in rows)}) or not rows
    for frontier in frontiers[1:]:
        if past.is_known(name, frontier - 1):
            rest = lake.sql(f"SUBSCRIBE {name} WITH (SNAPSHOT = false) AS OF {frontier - 1}").rows
            assert rest == [row for row in rows if row[0] >= frontier], frontier


def assert_gaps_are_errors(lake: Lake, name: str, past: Past) -> None:
    """Assert that no timestamp of an expired snapshot can be read."""
    for version in past.histories[name].versions:
        if not past.is_known(name, version.mz_timestamp):
            with pytest.raises(NotReadable):
                lake.sql(f"SUBSCRIBE {name} AS OF {version.mz_timestamp}")


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(changes=histories("s.t", "s.u"), layout=FORMATS, few=st.sampled_from([0, 3, READ_HERE]), begins=PLACES)
def test_random_histories_are_replayed_through_queries(
    make_lake: LakeFactory, changes: list[tuple[str, Change]], layout: tuple[int, str], few: int, begins: int
) -> None:
    lake = make_lake(foreign_lag_ms=LAG_MS)
    past = made(lake, changes, unique=False, layout=layout)
    reader = reader_of(lake, make_lake, few)
    t, u = past.histories.get("s.t"), past.histories.get("s.u")

    def check(query: str, names: Sequence[str], result: Callable[..., Bag]) -> None:
        """Assert that the diffs of `query` sum to `result` of the first two columns of each table."""
        as_of_ms = one_of(past.readable(names), begins)

        def expected(ms: int) -> Bag | None:
            if not all(past.is_known(name, ms) for name in names):
                return None
            return result(*(_first_two(past.state(name, ms)) for name in names))

        rows = reader.sql(f"SUBSCRIBE ({query}) AS OF {as_of_ms}").rows
        assert_consolidated(rows)
        assert_replays(rows, [ms for ms in past.times(names) if ms >= as_of_ms], expected)

    if t is not None:
        check(f"SELECT {t.key} + 10, {t.value} FROM s.t WHERE {t.key} % 2 = 0", ["s.t"], _even)
        check(f"SELECT {t.key} % 2, count(*), sum({t.value}) FROM s.t GROUP BY {t.key} % 2", ["s.t"], _sums)
    if t is not None and u is not None:
        join = f"SELECT a.{t.key}, a.{t.value}, b.{u.value} FROM s.t AS a JOIN s.u AS b ON a.{t.key} = b.{u.key}"
        check(join, ["s.t", "s.u"], _joined)


def _first_two(rows: Bag) -> Bag:
    found: Bag = Counter()
    for row, count in rows.items():
        found[row[:2]] += count
    return found


def _even(rows: Bag) -> Bag:
    found: Bag = Counter()
    for (k, v), count in rows.items():
        if k % 2 == 0:
            found[k + 10, v] += count
    return found


def _sums(rows: Bag) -> Bag:
    counts: Counter[int] = Counter()
    sums: dict[int, int | None] = {}
    for (k, v), count in rows.items():
        counts[k % 2] += count
        before = sums.get(k % 2)
        sums[k % 2] = before if v is None else (before or 0) + v * count
    return Counter((group, counts[group], total) for group, total in sums.items())


def _joined(left: Bag, right: Bag) -> Bag:
    found: Bag = Counter()
    for (a, v), count in left.items():
        for (b, w), times in right.items():
            if a == b:
                found[a, v, w] += count * times
    return found


@settings(
    max_examples=max(1, EXAMPLES // 2),
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(changes=histories("s.t"), layout=FORMATS, few=st.sampled_from([0, 3, READ_HERE]), begins=PLACES)
def test_random_histories_are_replayed_through_envelopes(
    make_lake: LakeFactory, changes: list[tuple[str, Change]], layout: tuple[int, str], few: int, begins: int
) -> None:
    """Replay both envelopes of a table with unique keys to its rows at every time."""
    lake = make_lake(foreign_lag_ms=LAG_MS)
    past = made(lake, changes, unique=True, layout=layout)
    reader = reader_of(lake, make_lake, few)
    name, history = "s.t", past.histories["s.t"]
    as_of_ms = one_of(past.readable([name]), begins)
    key = f"(KEY ({history.key.upper()})) AS OF {as_of_ms}"
    upserts = reader.sql(f"SUBSCRIBE {name} ENVELOPE UPSERT {key}").rows
    debezium = reader.sql(f"SUBSCRIBE {name} ENVELOPE DEBEZIUM {key}").rows
    for ms in past.readable([name]):
        if ms >= as_of_ms:
            expected = {row[0]: row[1:] for row in past.state(name, ms)}
            assert from_upserts(upserts, ms) == expected
            assert from_debezium(debezium, ms) == expected
    for rows in (upserts, debezium):
        keys = [(row[0], row[2]) for row in rows]
        assert keys == sorted(set(keys))
    assert [row[:3] for row in upserts] == [
        (ms, "upsert" if kind == "insert" else kind, key) for ms, kind, key, *_ in debezium
    ]


def reader_of(lake: Lake, make_lake: LakeFactory, driver_diff_max_rows: int) -> Lake:
    """Open the lake again, with a reader that leaves larger diffs to Spark."""
    return make_lake(
        lake.settings.warehouse,
        catalog_name=lake.settings.catalog_name,
        foreign_lag_ms=LAG_MS,
        driver_diff_max_rows=driver_diff_max_rows,
    )
