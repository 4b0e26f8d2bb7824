"""Finds the keys that seem to differ between two sides, from the sums of their buckets and the digests of their rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from lakehold.verify.digest import BucketSums
from lakehold.verify.resolving import Rows
from lakehold.verify.selected_rows import Selection, by_key, differing_keys

_ROWS_AT_ONCE = 1_000_000
"""About how many rows of differing buckets are fetched at once: their digests are in memory."""
_KEYS_AT_ONCE = 10_000


class Side(Protocol):
    """One of the two sides of a comparison."""

    def selected(self, selection: Selection) -> list[pa.RecordBatch]:
        """Return the digests of the rows that `selection` names."""


@dataclass(frozen=True)
class Seeming:
    """The rows of keys that seem to differ, by the digest of their key.

    Attributes:
        wanted: Those of the side with which the lake is compared.
        lake: Those of the lake's table.
    """

    wanted: Rows
    lake: Rows


def seeming(wanted: Side, lake: Side, theirs: BucketSums, ours: BucketSums) -> Iterator[Seeming]:
    """Yield the keys that seem to differ, in portions: as many buckets as fit in memory, then as many keys of theirs."""
    buckets = theirs.differing(ours)
    sizes = np.cumsum((theirs.rows + ours.rows)[buckets])
    while len(buckets):
        count = max(1, int(np.searchsorted(sizes, _ROWS_AT_ONCE, side="right")))
        selection = Selection(buckets[:count])
        rows = wanted.selected(selection), lake.selected(selection)
        keys = differing_keys(*rows)
        for first in range(0, len(keys), _KEYS_AT_ONCE):
            some = keys[first : first + _KEYS_AT_ONCE]
            yield Seeming(by_key(rows[0], some), by_key(rows[1], some))
        sizes = sizes[count:] - sizes[count - 1]
        buckets = buckets[count:]
