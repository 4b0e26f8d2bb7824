"""Unreadable records that may be of a transaction are counted as the rule says it, run after run."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from lakehold.ingest.transactions.log import Kind, Run
from lakehold.ingest.transactions.unreadable import Unreadable


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), highest=st.integers(1, 6), count=st.integers(0, 12))
def test_unreadable_records_near_a_transaction_are_counted(seed: int, highest: int, count: int) -> None:
    random = Random(seed)
    unreadable, ranked, offset = [], [], 0
    for _ in range(count):
        records = random.randint(1, 3)
        kind = random.choice([Kind.EVENTS, Kind.UNREADABLE])
        run = Run(kind, offset, offset + records - 1, records)
        offset += records + random.randrange(2)
        if kind is Kind.EVENTS:
            ranked.append((random.randint(0, highest), run))
        else:
            unreadable.append(run)
    found = Unreadable(unreadable, ranked, highest, offset)
    for rank in range(1, highest + 1):
        behind = max((run.last for of_run, run in ranked if 0 < of_run < rank), default=-1)
        before = next((run.first for of_run, run in ranked if of_run > rank), offset)
        assert found.near(rank) == sum(run.records for run in unreadable if behind < run.first < before)
