"""What never changes and takes time to find out, kept for several threads."""

from __future__ import annotations

from collections.abc import Callable, Hashable
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
        self._lock = Lock()

    def of(self, key: Key, find_out: Callable[[], Value]) -> Value:
        """The value of `key`; two threads that ask for it at once may both find it out."""
        with self._lock:
            found = self._values.get(key)
        if found is None:
            found = find_out()
            with self._lock:
                self._values[key] = found
        return found
