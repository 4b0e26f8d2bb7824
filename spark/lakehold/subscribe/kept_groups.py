"""States of groups that one process keeps between reads: a subscription goes on where it, or an equal one, stopped."""

from __future__ import annotations

from collections.abc import Hashable
from threading import Lock

from cachetools import LRUCache

from lakehold.subscribe.group_state import GroupState

_MOST_GROUPS = 500_000
_QUERIES_REMEMBERED = 1_000


class KeptGroups:
    """A cache of states; the least recently used ones are evicted first. A state belongs to one reader at a time."""

    def __init__(self) -> None:
        self._kept: LRUCache[Hashable, GroupState] = LRUCache(
            _MOST_GROUPS, getsizeof=lambda state: 1 + len(state.groups)
        )
        self._too_many: LRUCache[Hashable, bool] = LRUCache(_QUERIES_REMEMBERED)
        self._lock = Lock()

    def has_too_many(self, query: Hashable) -> bool:
        """Return whether a query was found to have too many groups to keep them."""
        with self._lock:
            return self._too_many.get(query, False)

    def refuse(self, query: Hashable) -> None:
        """Remember that a query has too many groups, so that they are not counted again for each of its reads."""
        with self._lock:
            self._too_many[query] = True

    def take(self, place: Hashable) -> GroupState | None:
        """Return the state of a query at a time, and forget it: the reader changes it."""
        with self._lock:
            found: GroupState | None = self._kept.pop(place, None)
            return found

    def keep(self, place: Hashable, state: GroupState) -> None:
        """Keep a state for the next reader, if it fits."""
        with self._lock:
            if 1 + len(state.groups) <= self._kept.maxsize:
                self._kept[place] = state
