"""A Spark Connect server that was started again is one reason for a whole batch to wait, and no fault of a table."""

from __future__ import annotations

import pytest
from pyspark.errors.exceptions.connect import SparkConnectException

from lakehold.spark_errors import session_lost


@pytest.mark.parametrize(
    "text",
    [
        "[NO_ACTIVE_SESSION] No active Spark session found. Please create a new Spark session before running the code.",
        "[INVALID_HANDLE.SESSION_CHANGED] The handle 1 is invalid. The existing Spark server driver instance has restarted.",
    ],
)
def test_a_session_that_the_server_does_not_know_can_be_opened_again(text: str) -> None:
    lost = session_lost(SparkConnectException(text))
    assert lost is not None
    assert lost.retryable
    assert lost.code == "spark-unreachable"


@pytest.mark.parametrize(
    "error",
    [SparkConnectException("[DIVIDE_BY_ZERO] Division by zero."), ValueError("[NO_ACTIVE_SESSION] No session.")],
)
def test_other_errors_are_not_lost_sessions(error: Exception) -> None:
    assert session_lost(error) is None
