"""Envelopes of SUBSCRIBE: the worked tables of the specification, and a model that handles one key after the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.types import IcebergType

from lakehold.subscribe.consolidate import consolidated
from lakehold.subscribe.envelope import debezium, upsert
from lakehold.subscribe.project import arrow_type
from tests.iceberg_values import diff_table, exactly, in_chunks, row_order, table, types, values

Row = tuple[Any, ...]
Envelope = Callable[[Iterable[pa.Table], Sequence[int]], Iterator[pa.Table]]

# The history of the specification's kv_store: inserted, updated, inserted, deleted, then two values for key 1.
KV_STORE = [
    (100, 1, 1, 2),
    (100, 1, 2, 4),
    (200, -1, 1, 2),
    (200, 1, 1, 10),
    (300, 1, 3, 6),
    (400, -1, 1, 10),
    (400, -1, 2, 4),
    (400, -1, 3, 6),
    (500, 1, 1, 11),
    (500, 1, 1, 12),
]
UPSERTED = [
    (100, "upsert", 1, 2),
    (100, "upsert", 2, 4),
    (200, "upsert", 1, 10),
    (300, "upsert", 3, 6),
    (400, "delete", 1, None),
    (400, "delete", 2, None),
    (400, "delete", 3, None),
    (500, "key_violation", 1, None),
]
AS_DEBEZIUM = [
    (100, "insert", 1, None, 2),
    (100, "insert", 2, None, 4),
    (200, "upsert", 1, 2, 10),
    (300, "insert", 3, None, 6),
    (400, "delete", 1, 10, None),
    (400, "delete", 2, 4, None),
    (400, "delete", 3, 6, None),
    (500, "key_violation", 1, None, None),
]


def kv(rows: Sequence[Row]) -> pa.Table:
    return table([(name, pa.int64()) for name in ("mz_timestamp", "mz_diff", "key", "value")], rows)


def rows_of(tables: Iterable[pa.Table]) -> list[Row]:
    return [row for part in tables for row in zip(*(column.to_pylist() for column in part.columns), strict=True)]


@pytest.mark.parametrize("chunk_rows", [1, 2, 3, 100])
def test_the_specifications_tables_are_reproduced(chunk_rows: int) -> None:
    diffs = kv(KV_STORE)
    chunks = [diffs.slice(begin, chunk_rows) for begin in range(0, diffs.num_rows, chunk_rows)]
    assert rows_of(upsert(chunks, [0])) == UPSERTED
    assert rows_of(debezium(chunks, [0])) == AS_DEBEZIUM


@pytest.mark.parametrize(
    "group",
    [
        pytest.param([(1, 2, 1, 5)], id="the same row twice"),
        pytest.param([(1, -2, 1, 5)], id="the same row taken away twice"),
        pytest.param([(1, 1, 1, 5), (1, 1, 1, 6)], id="two new values"),
        pytest.param([(1, -1, 1, 5), (1, -1, 1, 6)], id="two retractions"),
        pytest.param([(1, -2, 1, 5), (1, 1, 1, 6)], id="two retractions of one value and a new one"),
        pytest.param([(1, -1, 1, 5), (1, 2, 1, 6)], id="a retraction and a new value twice"),
        pytest.param([(1, -2, 1, 5), (1, 2, 1, 6)], id="both twice"),
        pytest.param([(1, -1, 1, 5), (1, 1, 1, 6), (1, 1, 1, 7)], id="a mix"),
        pytest.param([(1, (-1) ** i, 1, i) for i in range(9)], id="a long mix"),
    ],
)
@pytest.mark.parametrize("chunk_rows", [1, 2, 100])
def test_everything_else_is_a_key_violation(group: list[Row], chunk_rows: int) -> None:
    diffs = kv([*group, (1, 1, 2, 5)])
    chunks = [diffs.slice(begin, chunk_rows) for begin in range(0, diffs.num_rows, chunk_rows)]
    assert rows_of(upsert(chunks, [0])) == [(1, "key_violation", 1, None), (1, "upsert", 2, 5)]
    assert rows_of(debezium(chunks, [0])) == [(1, "key_violation", 1, None, None), (1, "insert", 2, None, 5)]


def test_a_new_value_that_sorts_before_the_old_one_is_an_update() -> None:
    assert rows_of(debezium([kv([(1, 1, 1, 5), (1, -1, 1, 9)])], [0])) == [(1, "upsert", 1, 9, 5)]


def test_columns_come_in_the_order_of_the_key_then_of_the_table() -> None:
    names = ("mz_timestamp", "mz_diff", "a", "b", "c", "d")
    diffs = table([(name, pa.int64()) for name in names], [(1, 1, 10, 11, 12, 13)])
    (upserted,) = upsert([diffs], [2, 0])
    assert upserted.column_names == ["mz_timestamp", "mz_state", "c", "a", "b", "d"]
    assert rows_of([upserted]) == [(1, "upsert", 12, 10, 11, 13)]
    (changed,) = debezium([diffs], [2, 0])
    assert changed.column_names == ["mz_timestamp", "mz_state", "c", "a", "before_b", "before_d", "after_b", "after_d"]


@pytest.mark.parametrize("envelope", [upsert, debezium])
def test_a_table_may_be_all_key(envelope: Envelope) -> None:
    assert [row[1] for row in rows_of(envelope([kv([(1, 1, 1, 2), (1, -1, 3, 4)])], [0, 1]))][1] == "delete"


@pytest.mark.parametrize("envelope", [upsert, debezium])
def test_no_diffs_give_no_rows(envelope: Envelope) -> None:
    assert rows_of(envelope([], [0])) == []
    assert rows_of(envelope([kv([]), kv([])], [0])) == []


@pytest.mark.parametrize("envelope", [upsert, debezium])
def test_only_the_last_key_of_a_chunk_waits_for_the_next(envelope: Envelope) -> None:
    seen = []

    def chunks() -> Iterator[pa.Table]:
        for begin in range(0, 100, 10):
            seen.append(begin)
            yield kv([(1, 1, key, 0) for key in range(begin, begin + 10)])

    first = next(iter(envelope(chunks(), [0])))
    assert first.num_rows == 9
    assert seen == [0]


@dataclass
class Changes:
    """Consolidated diffs of some types under a key, and the positions where chunks end."""

    types: list[IcebergType]
    key: list[int]
    rows: pa.Table
    cuts: list[int]

    def chunks(self) -> list[pa.Table]:
        """Cut the diffs into tables, each of several Arrow chunks."""
        edges = [0, *sorted(self.cuts), self.rows.num_rows]
        return [in_chunks(self.rows.slice(b, e - b), [1]) for b, e in itertools.pairwise(edges)]


@st.composite
def changes(draw: st.DrawFn) -> Changes:
    of = draw(st.lists(types(), min_size=1, max_size=3))
    key = draw(st.lists(st.sampled_from(range(len(of))), min_size=1, unique=True))
    pools = [draw(st.lists(values(kind), min_size=1, max_size=2)) for kind in of]
    entry = st.tuples(st.integers(1, 2), st.sampled_from([-2, -1, -1, 1, 1, 2]), *map(st.sampled_from, pools))
    diffs = consolidated(diff_table(of, draw(st.lists(entry, max_size=12))), key)
    return Changes(of, key, diffs, draw(st.lists(st.integers(0, diffs.num_rows), max_size=4)))


def model(of: Changes) -> Iterator[tuple[int, Row, Row | None, Row | None]]:
    """Yield timestamp, key, values before and values after of each group, in the order of the diffs."""
    values_at = [i for i in range(len(of.types)) if i not in of.key]
    image = row_order([of.types[i] for i in of.key])
    rows = rows_of([of.rows])
    for _, members in itertools.groupby(rows, lambda row: (row[0], image([row[2 + i] for i in of.key]))):
        group = list(members)
        signs = sorted(row[1] for row in group)
        before, after = (
            next((tuple(row[2 + i] for i in values_at) for row in group if row[1] == sign), None) for sign in (-1, 1)
        )
        known = signs in ([-1], [1], [-1, 1])
        yield group[0][0], tuple(group[0][2 + i] for i in of.key), before if known else None, after if known else None


def output(of: Changes, prefixes: Sequence[str], rows: list[Row]) -> pa.Table:
    """Build the rows of an envelope with the columns it should have."""
    values_at = [i for i in range(len(of.types)) if i not in of.key]
    key = [("c", arrow_type(of.types[i])) for i in of.key]
    rest = [(f"{prefix}c", arrow_type(of.types[i])) for prefix in prefixes for i in values_at]
    return table([("mz_timestamp", pa.int64()), ("mz_state", pa.string()), *key, *rest], rows)


@settings(deadline=None)
@given(changes())
def test_upsert_gives_the_value_of_each_key(of: Changes) -> None:
    nothing = (None,) * (len(of.types) - len(of.key))
    expected = [
        (
            timestamp,
            "upsert" if after is not None else "delete" if before is not None else "key_violation",
            *key,
            *(after or nothing),
        )
        for timestamp, key, before, after in model(of)
    ]
    result = pa.concat_tables([output(of, [""], []), *upsert(of.chunks(), of.key)])
    assert exactly(result) == exactly(output(of, [""], expected))


@settings(deadline=None)
@given(changes())
def test_debezium_gives_the_values_before_and_after(of: Changes) -> None:
    states = {(False, False): "key_violation", (True, False): "delete", (False, True): "insert", (True, True): "upsert"}
    nothing = (None,) * (len(of.types) - len(of.key))
    expected = [
        (timestamp, states[before is not None, after is not None], *key, *(before or nothing), *(after or nothing))
        for timestamp, key, before, after in model(of)
    ]
    result = pa.concat_tables([output(of, ["before_", "after_"], []), *debezium(of.chunks(), of.key)])
    assert exactly(result) == exactly(output(of, ["before_", "after_"], expected))
