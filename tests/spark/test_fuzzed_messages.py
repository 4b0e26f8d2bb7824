"""A round of damaged messages; `make fuzz` tries more."""

from __future__ import annotations

from random import Random

import pytest
from pyspark.sql import SparkSession

from tests.fuzz import messages

pytestmark = pytest.mark.spark


def test_a_damaged_message_is_an_error_and_takes_no_other_along(spark: SparkSession) -> None:
    tried = next(messages.tried(Random(1), spark))
    assert tried.faults == ()
    assert tried.counts["rows"] > tried.inputs / 2
    assert tried.counts["error: undecodable-value"] > 100
