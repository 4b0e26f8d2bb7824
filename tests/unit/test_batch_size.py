"""The batch size of tables that catch up, which adapts so that other tables of the source wait only briefly."""

from __future__ import annotations

from lakehold.ingest.batch_size import BatchSize
from lakehold.ingest.read.reader import Limits


def test_batches_approach_four_seconds_whatever_each_costs() -> None:
    batch_size = BatchSize(Limits(500_000, 1))
    assert batch_size.limits == Limits(50_000, 1)
    for _ in range(20):
        records = batch_size.limits.max_records
        # 1.5 s for each batch, and 40 records a millisecond.
        elapsed_ms = 1_500 + records // 40
        batch_size.took(records, elapsed_ms)
    assert abs(elapsed_ms - 4_000) < 200


def test_a_backfill_ends_even_if_each_batch_costs_more_than_its_time() -> None:
    batch_size = BatchSize(Limits(500_000, 1))
    for _ in range(20):
        batch_size.took(batch_size.limits.max_records, 9_000)
    assert batch_size.limits.max_records == 50_000


def test_no_batch_exceeds_the_limit_of_the_source() -> None:
    batch_size = BatchSize(Limits(60_000, 1))
    batch_size.took(50_000, 10)
    assert batch_size.limits.max_records == 60_000
    assert BatchSize(Limits(10, 1)).limits.max_records == 10
