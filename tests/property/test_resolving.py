"""Keys that move are never taken for keys that differ, however the reads fall; keys that differ are found."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from lakehold.verify.resolving import Rows, resolve
from lakehold.verify.selected_rows import Row

_KEYS = range(4)

History = list[int | None]
"""The value of a key after each change; None: it has no row."""


class _World:
    """A database whose keys go through their histories, and a lake that follows later; it lies about some keys.

    Args:
        histories: Of each key.
        steps: How many changes of each key come between two reads, in turn.
        lies: What the lake has for a key, whatever the database has.
    """

    def __init__(self, histories: Sequence[History], steps: Sequence[int], lies: dict[int, int | None]) -> None:
        self._histories = histories
        self._steps = steps
        self._lies = lies
        self._reads = 0
        self._at = 0
        self._last_at = 0

    def _advance(self) -> None:
        self._at += self._steps[self._reads % len(self._steps)]
        self._reads += 1

    def read_database(self, keys: Sequence[int]) -> Rows:
        self._advance()
        self._last_at = self._at
        return {key: _row(self._value(key, self._at), self._version(key, self._at)) for key in keys}

    def read_lake(self, keys: Sequence[int]) -> Rows:
        self._advance()
        return {key: _row(self._lies.get(key, self._value(key, self._at))) for key in keys}

    def _value(self, key: int, at: int) -> int | None:
        history = self._histories[key]
        return history[min(at, len(history) - 1)]

    def _version(self, key: int, at: int) -> int:
        return min(at, len(self._histories[key]) - 1) + 1


def _row(value: int | None, version: int = 0) -> tuple[Row, ...]:
    return () if value is None else (Row(value, version, names=(str(value),)),)


_HISTORIES = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=14), min_size=len(_KEYS), max_size=len(_KEYS))
_STEPS = st.lists(st.integers(0, 3), min_size=1, max_size=8)


@given(histories=_HISTORIES, steps=_STEPS)
def test_a_key_that_moves_does_not_differ(histories: list[History], steps: list[int]) -> None:
    world = _World(histories, steps, {})
    # The first read is of all rows, without their versions.
    before = {key: _row(*(row.digest for row in rows)) for key, rows in world.read_database(_KEYS).items()}
    lake = world.read_lake(_KEYS)
    assert not resolve(before, lake, world.read_database, world.read_lake).differing


@given(histories=_HISTORIES, steps=_STEPS, lies=st.dictionaries(st.sampled_from(_KEYS), st.none() | st.just(9)))
def test_a_key_that_differs_is_found_once_it_rests(
    histories: list[History], steps: list[int], lies: dict[int, int | None]
) -> None:
    world = _World(histories, [*steps, 14], lies)
    before, lake = world.read_database(_KEYS), world.read_lake(_KEYS)
    while world._at < 14:
        before, lake = world.read_database(_KEYS), world.read_lake(_KEYS)
    found = resolve(before, lake, world.read_database, world.read_lake)
    assert found.differing.keys() == lies.keys()
    assert not found.unresolved


def test_a_key_that_changes_all_the_time_is_equal_if_the_lake_has_one_of_its_rows() -> None:
    histories: list[History] = [[*range(1, 40)] for _ in _KEYS]
    for steps, unresolved in (([1, 0], set()), ([0, 1], set()), ([1, 1], {*_KEYS})):
        world = _World(histories, steps, {})
        before, lake = world.read_database(_KEYS), world.read_lake(_KEYS)
        found = resolve(before, lake, world.read_database, world.read_lake)
        assert not found.differing
        assert found.unresolved == unresolved, steps
