"""Suggests the name that a person probably meant: the known one most like it, in upper or lower case."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

_SIMILARITY = 0.6
_SUGGESTED = re.compile(r'Did you mean "(.*)"\?', re.DOTALL)


def close_names(name: str, known: Iterable[str], *, most: int = 1, similarity: float = _SIMILARITY) -> list[str]:
    """Return the names among `known` that are most like `name`, the best first; none if nothing is like it.

    Of names with namespaces the last parts are alike, too: `shop.items` is not like `shop.orders`.

    Args:
        name: The name as it was written.
        known: The names that exist.
        most: How many to return at most.
        similarity: From 0 to 1: names that are less alike are left out.
    """
    last = _last_part(name)
    names = {
        each.lower(): each for each in known if SequenceMatcher(None, last, _last_part(each)).ratio() >= similarity
    }
    return [names[each] for each in get_close_matches(name.lower(), names, n=most, cutoff=similarity)]


def _last_part(name: str) -> str:
    return name.lower().rpartition(".")[2]


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return the hint that suggests the name most like `name`; `otherwise` if nothing is like it."""
    close = close_names(name, known)
    return f'Did you mean "{close[0]}"?' if close else otherwise


def suggested_name(hint: str) -> str | None:
    """Return the name that a hint of `did_you_mean` suggests; None for any other hint."""
    found = _SUGGESTED.fullmatch(hint)
    return found[1] if found else None
