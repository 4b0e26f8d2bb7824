"""What never changes and takes time to find out, kept for several threads."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from threading import Lock
from typing import Generic, TypeVar

from cachetools import LRUCache

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Remembered(Generic[Key, Value]):
    """Values by key; those that were asked for least recently go first.

    Args:
        at_most: Values that are kept.
    """

    def __init__(self, at_most: int) -> None:
        self._values: LRUCache[Key, Value] = LRUCache(at_most)
        self._awaited: dict[Key, Future[Value]] = {}
        self._lock = Lock()

    def of(self, key: Key, find_out: Callable[[], Value]) -> Value:
        """The value of `key`. Of threads that ask for it at once one finds it out, and the others wait for it."""
        while True:
            with self._lock:
                found = self._values.get(key)
                if found is not None:
                    return found
                answer = self._awaited.get(key)
                if answer is None:
                    mine = self._awaited[key] = Future[Value]()
            if answer is None:
                return self._found(key, mine, find_out)
            with suppress(CancelledError):
                return answer.result()

    def _found(self, key: Key, answer: Future[Value], find_out: Callable[[], Value]) -> Value:
        try:
            value = find_out()
        except BaseException:
            with self._lock:
                del self._awaited[key]
            # Those who wait for it ask themselves.
            answer.cancel()
            raise
        with self._lock:
            self._values[key] = value
            del self._awaited[key]
        answer.set_result(value)
        return value
