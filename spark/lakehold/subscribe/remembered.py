"""A cache, shared by threads, for values that never change and are slow to compute."""

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
    """A least-recently-used cache in which threads wait for each other instead of computing a value twice.

    Args:
        at_most: Number of values that are kept.
    """

    def __init__(self, at_most: int) -> None:
        self._values: LRUCache[Key, Value] = LRUCache(at_most)
        self._awaited: dict[Key, Future[Value]] = {}
        self._lock = Lock()

    def of(self, key: Key, find_out: Callable[[], Value]) -> Value:
        """Return the value of `key`, computing it if necessary. Of several threads one computes it, and the others wait."""
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
            # Waiting threads then try to compute the value themselves.
            answer.cancel()
            raise
        with self._lock:
            self._values[key] = value
            del self._awaited[key]
        answer.set_result(value)
        return value
