"""Separates keys that differ from keys that only seem to, because they changed between the reads of the two sides. Pure.

lakehold reads a key in the database, then in a snapshot of the lake that has all changes up to that point, then in the database
again. So a round has two states of the database, and one of the lake from between them:

    the lake has one of the two states                          the key is equal
    the database's state stayed the same, the lake's differs    the key is suspected; found twice in a row, it differs
    anything else                                               the key changed meanwhile and is read again
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lakehold.verify.comparison import Difference, Side
from lakehold.verify.digest import NULL_DIGEST
from lakehold.verify.selected_rows import Row

ROUNDS = 6
"""A key that is neither equal nor different after so many rounds is unresolved."""

Rows = Mapping[int, tuple[Row, ...]]
"""The rows of a side by the digest of their key."""


@dataclass
class Resolved:
    """The outcome for keys that seemed to differ. Keys in neither attribute are equal.

    Attributes:
        differing: The rows of keys that differ: the database's and the lake's.
        unresolved: Keys of which `ROUNDS` rounds did not decide whether they are equal or differ, because they kept changing.
    """

    differing: dict[int, tuple[tuple[Row, ...], tuple[Row, ...]]] = field(default_factory=dict)
    unresolved: set[int] = field(default_factory=set)


def resolve(
    before: Rows,
    lake: Rows,
    read_database: Callable[[Sequence[int]], Rows],
    read_lake: Callable[[Sequence[int]], Rows],
) -> Resolved:
    """Read keys again, round by round, until each is equal or differs; give up after `ROUNDS` rounds.

    Args:
        before: The rows of the database, at a point that the lake's snapshot has reached.
        lake: The rows of the lake.
        read_database: Reads rows of the database as they are now.
        read_lake: Reads rows of the lake in a snapshot that has reached what `read_database` read last.
    """
    result = Resolved(unresolved={*before, *lake})
    suspected: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    for number in range(ROUNDS):
        if number:
            lake = read_lake(sorted(result.unresolved))
        after = read_database(sorted(result.unresolved))
        found: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        for key in sorted(result.unresolved):
            first, ours, last = before.get(key, ()), lake.get(key, ()), after.get(key, ())
            if _digests(ours) in (_digests(first), _digests(last)):
                result.unresolved.discard(key)
            elif _is_unchanged(first, last):
                found[key] = (_digests(last), _digests(ours))
                if suspected.get(key) == found[key]:
                    result.unresolved.discard(key)
                    result.differing[key] = (last, ours)
        if not result.unresolved:
            break
        suspected, before = found, after
    return result


def difference(database: Sequence[Row], lake: Sequence[Row], columns: Sequence[str]) -> Difference:
    """Describe how the rows of one key differ; at least one side has a row.

    Args:
        database: The rows of the key in the database.
        lake: The rows of the key in the lake.
        columns: Names of the compared columns, in the order of `Row.columns`.
    """
    key = (database or lake)[0].names
    if not lake:
        return Difference(key, Side.ONLY_IN_DATABASE)
    if not database:
        return Difference(key, Side.ONLY_IN_LAKE)
    if len(database) > 1 or len(lake) > 1:
        return Difference(key, Side.SEVERAL_ROWS)
    pairs = list(zip(columns, database[0].columns, lake[0].columns, strict=True))
    # `NULL_DIGEST` is unsigned. Rows have digests as Spark's bigint, which is signed.
    null = NULL_DIGEST - (1 << 64) if NULL_DIGEST >> 63 else NULL_DIGEST
    return Difference(
        key,
        Side.VALUES_DIFFER,
        columns=tuple(name for name, wanted, found in pairs if wanted != found),
        nulls=tuple(name for name, wanted, found in pairs if wanted != found and found == null),
    )


def _digests(rows: Sequence[Row]) -> tuple[int, ...]:
    return tuple(sorted(row.digest for row in rows))


def _is_unchanged(first: Sequence[Row], last: Sequence[Row]) -> bool:
    """Return whether a key has the same rows at both reads.

    A row's version changes whenever the row is written, even with equal values. Versions are compared if all are known.
    """
    versions = [sorted(row.version for row in rows) for rows in (first, last)]
    are_known = all(version for each in versions for version in each)
    return _digests(first) == _digests(last) and (not are_known or versions[0] == versions[1])
