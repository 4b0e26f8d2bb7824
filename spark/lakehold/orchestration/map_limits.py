"""Limits how many items a task is mapped over.

Airflow fails a task that returns more than `[core] max_map_length` items for another task, by default 1,024.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

MOST_ITEMS = 500
"""The UI still shows so many tasks, and an Airflow with a lower limit than usual accepts them."""


def joined(groups: Sequence[Sequence[str]]) -> list[list[str]]:
    """Join neighbours until at most `MOST_ITEMS` groups remain, in their order."""
    size = ceil(len(groups) / MOST_ITEMS)
    return [
        [name for group in groups[first : first + size] for name in group] for first in range(0, len(groups), size or 1)
    ]


def limited(found: Sequence[list[str]]) -> list[list[str]]:
    """Return pairs of a name and its error text, of which one that comes last may stand for many: `and 476 more`.

    The ones with an error come first, so that each gets its own task if possible.
    """
    if len(found) <= MOST_ITEMS:
        return [*found]
    ordered = sorted(found, key=lambda pair: not pair[1])
    shown, rest = ordered[: MOST_ITEMS - 1], ordered[MOST_ITEMS - 1 :]
    return [*shown, [f"and {len(rest)} more", "\n\n".join(f"{name}: {error}" for name, error in rest if error)]]
