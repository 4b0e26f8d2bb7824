"""Ranges of random histories equal a plain model, however commits divide the history."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehold.publish.history_ranges import RangeState, SeveralRows, ranges
from lakehold.subscribe.envelope import debezium

Key = tuple[int | None, str]
Values = tuple[int | None, float | None]
State = dict[Key, Values]
Range = tuple[Any, ...]

ROW = pa.schema([("a", pa.int64()), ("b", pa.string()), ("x", pa.int64()), ("y", pa.float64())])
DIFFS = pa.schema([("mz_timestamp", pa.int64()), ("mz_diff", pa.int64()), *ROW])
KEYS = st.tuples(st.none() | st.integers(0, 1), st.sampled_from("pq"))
VALUES = st.tuples(st.none() | st.integers(0, 1), st.none() | st.sampled_from([0.0, 1.5, float("nan")]))
STATES = st.lists(st.dictionaries(KEYS, VALUES, max_size=4), min_size=1, max_size=8)
TRACKED = st.frozensets(st.sampled_from("xy"))


def same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)  # NaN equals NaN.


def changes(before: State, after: State, timestamp: int) -> pa.Table:
    diffs = [
        dict(zip(DIFFS.names, (timestamp, diff, *key, *state[key]), strict=True))
        for key in sorted(before.keys() | after.keys(), key=repr)
        if not same(before.get(key), after.get(key))
        for diff, state in ((-1, before), (1, after))
        if key in state
    ]
    shaped = list(debezium([pa.Table.from_pylist(diffs, DIFFS)], (0, 1)))
    return pa.concat_tables(shaped) if shaped else None


def modelled(states: list[State], tracked: frozenset[str], first: int) -> list[Range]:
    """Walk through the history of each key, one timestamp after the other; the table begins to know it at `first`."""
    found: list[Range] = []
    for key in {key for state in states for key in state}:
        current: list[Any] | None = None
        for timestamp, state in enumerate(states):
            if timestamp < first or (timestamp > 0 and same(states[timestamp - 1].get(key), state.get(key))):
                continue
            values = state.get(key)
            moved = current is not None and (
                values is None or any(not same(current[1]["xy".index(c)], values["xy".index(c)]) for c in tracked)
            )
            if current is not None and moved:
                found.append((*key, *current[1], current[0], timestamp))
                current = None
            if values is not None:
                current = [timestamp if current is None else current[0], values]
        if current is not None:
            found.append((*key, *current[1], current[0], None))
    return sorted(found, key=repr)


def merged(table: list[Range], rows: list[dict[str, Any]], states: list[str]) -> list[Range]:
    """Merge ranges as a table does."""
    found = list(table)
    for row, state in zip(rows, states, strict=True):
        key, end = (row["a"], row["b"]), row["valid_to"]
        new = (*key, row["x"], row["y"], row["valid_from"], end)
        current = [r for r in table if r[:2] == key and r[5] is None]
        if state in (RangeState.UPDATE, RangeState.END) and current:
            found.remove(current[0])
            values = new if state == RangeState.UPDATE else current[0]
            found.append((*values[:4], current[0][4], end))
            continue
        assert not (state == RangeState.INSERT and current)
        if state != RangeState.END:
            assert end is None or row["valid_from"] < end
            found.append(new)
    return found


@given(states=STATES, tracked=TRACKED, commits=st.sets(st.integers(1, 7)), first=st.integers(0, 2))
def test_ranges_equal_a_model_however_commits_divide_the_history(
    states: list[State], tracked: frozenset[str], commits: set[int], first: int
) -> None:
    table: list[Range] = []
    waiting: list[pa.Table] = []
    for timestamp, state in enumerate(states):
        rows = changes(states[timestamp - 1] if timestamp else {}, state, timestamp) if timestamp >= first else None
        waiting += [] if rows is None else [rows]
        if waiting and (timestamp in commits or timestamp == len(states) - 1):
            made = ranges(pa.concat_tables(waiting), 2, tracked)
            plain = made.rows.to_pylist()
            for row in plain:
                assert row["is_current"] == (row["valid_to"] is None)
                for name in ("valid_from", "valid_to"):
                    row[name] = None if row[name] is None else int(row[name].timestamp() * 1000)
            table, waiting = merged(table, plain, made.states.to_pylist()), []
    assert repr(sorted(table, key=repr)) == repr(modelled(states, tracked, first))


def test_a_key_with_several_rows_at_one_time_is_refused() -> None:
    def row(timestamp: int, diff: int, x: int) -> dict[str, Any]:
        return dict(zip(DIFFS.names, (timestamp, diff, 1, "p", x, 0.0), strict=True))

    for rows, at in ([row(5, 1, 0), row(5, 1, 1)], 5), ([row(5, 1, 0), row(6, 1, 1)], 6):
        shaped = pa.concat_tables(list(debezium([pa.Table.from_pylist(rows, DIFFS)], (0, 1))))
        with pytest.raises(SeveralRows) as violated:
            ranges(shaped, 2, "x")
        assert (violated.value.key, violated.value.timestamp_ms) == ((1, "p"), at)
