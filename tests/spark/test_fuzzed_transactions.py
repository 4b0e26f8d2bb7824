"""A round of damaged transaction topics; `make fuzz` tries more."""

from __future__ import annotations

from random import Random

import pytest
from pyspark.sql import SparkSession

from tests.fuzz import transactions

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("seed", "ended"), [(4, "ended"), (3, "incomplete")])
def test_a_damaged_begin_or_end_loses_no_change_and_splits_no_transaction(
    spark: SparkSession, seed: int, ended: str
) -> None:
    tried = next(transactions.tried(Random(seed), spark))
    assert tried.faults == ()
    assert tried.counts[ended] == 1
    assert tried.counts["rows"] > 100
