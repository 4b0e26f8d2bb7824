"""Unreadable records that may be of a transaction are counted as the rule says it, run after run."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehold.ingest.transactions.completeness import Unreadable


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), highest=st.integers(1, 6), count=st.integers(0, 12))
def test_unreadable_records_near_a_transaction_are_counted(seed: int, highest: int, count: int) -> None:
    random = Random(seed)
    unreadable, events, offset = [], [], 0
    for _ in range(count):
        records = random.randint(1, 3)
        if random.random() < 0.5:
            events.append((random.randint(0, highest), offset, offset + records - 1))
        else:
            unreadable.append((offset, records))
        offset += records + random.randrange(2)
    first, records_of = np.array(unreadable, int).reshape(-1, 2).T
    of_rank, first_event, last_event = np.array(events, int).reshape(-1, 3).T
    found = Unreadable((first, records_of), (of_rank, first_event, last_event), highest, offset)
    ranks = np.arange(1, highest + 1)
    for rank, near in zip(ranks.tolist(), found.near(ranks).tolist(), strict=True):
        after = max((last for of_run, _, last in events if 0 < of_run < rank), default=-1)
        before = next((first for of_run, first, _ in events if of_run > rank), offset)
        assert near == sum(records for first, records in unreadable if after < first < before)
