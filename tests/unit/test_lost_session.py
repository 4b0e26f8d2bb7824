"""A Spark Connect server that stopped, or was started again, is a reason for a whole batch to wait, and no fault of a table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors.exceptions.connect import SparkConnectException

from lakehold.errors import UpstreamUnavailable
from lakehold.lake import Lake
from lakehold.settings import load_settings
from lakehold.spark_errors import explained, session_lost
from lakehold.spark_retries import WhileServerRuns
from lakehold.subscribe.output_batches import OutputChunk, batches


@pytest.mark.parametrize(
    "text",
    [
        "[NO_ACTIVE_SESSION] No active Spark session found. Please create a new Spark session before running the code.",
        "(java.lang.IllegalStateException) Cannot call methods on a stopped SparkContext.",
        "[INVALID_HANDLE.SESSION_CLOSED] The handle 1 is invalid. Session was closed.",
        "[INVALID_HANDLE.SESSION_CHANGED] The handle 1 is invalid. The existing Spark server driver instance has restarted.",
        "[RESPONSE_ALREADY_RECEIVED] INVALID_HANDLE.SESSION_NOT_FOUND on the server but responses were already received from it.",
    ],
)
def test_a_session_that_the_server_does_not_have_can_be_opened_again(text: str) -> None:
    lost = session_lost(SparkConnectException(text))
    assert lost is not None
    assert lost.retryable
    assert lost.code == "spark-unreachable"


@pytest.mark.parametrize(
    "text",
    [
        "[INVALID_HANDLE.OPERATION_ABANDONED] The handle 1 is invalid. Operation was considered abandoned because of inactivity.",
        "[RESPONSE_ALREADY_RECEIVED] INVALID_HANDLE.OPERATION_NOT_FOUND on the server but responses were already received.",
    ],
)
def test_a_statement_that_the_server_gave_up_leaves_its_session(text: str) -> None:
    lost: list[str] = []
    policy = WhileServerRuns("sc://127.0.0.1:1", lambda: lost.append("session"))
    assert not policy.can_retry(SparkConnectException(text))
    assert lost == []
    error = session_lost(SparkConnectException(text))
    assert error is not None
    assert error.retryable
    assert error.code == "spark-statement"


@pytest.mark.parametrize(
    "error",
    [SparkConnectException("[DIVIDE_BY_ZERO] Division by zero."), ValueError("[NO_ACTIVE_SESSION] No session.")],
)
def test_other_errors_are_not_lost_sessions(error: Exception) -> None:
    assert session_lost(error) is None


def test_an_error_of_grpc_is_explained_by_its_details() -> None:
    error = explained(
        "<_MultiThreadedRendezvous of RPC that terminated with:\n\tstatus = StatusCode.UNKNOWN\n"
        '\tdetails = "Java heap space"\n\tdebug_error_string = "UNKNOWN:Java heap space"\n>'
    )
    assert (error.message, error.code) == ("java heap space", "spark")


def test_a_statement_over_which_spark_stopped_says_where_to_look() -> None:
    error = explained(
        "(java.lang.IllegalStateException) Cannot call methods on a stopped SparkContext.\nThis stopped …"
    )
    assert error.code == "spark-unreachable"
    assert "lakehold spark status" in error.hint


def test_an_error_of_a_python_function_in_a_stage_is_the_last_one_of_its_traceback() -> None:
    error = explained(
        "An error occurred while calling o1.collect.\n: org.apache.spark.SparkException: Job aborted due to stage failure: Task "
        "0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in stage 1.0 (TID 1) (host executor driver): "
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        "  File \"rates.py\", line 3, in rate\n    rates[name]\nKeyError: 'EUR'\n\n"
        "During handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n"
        '  File "rates.py", line 5, in rate\n    raise ValueError("no rate") from None\nValueError: no rate\n\n'
        "\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)\n"
    )
    assert (error.message, error.detail, error.code) == ("a Python function failed: ValueError: no rate", "", "spark")


def test_rows_that_are_read_after_their_server_has_gone_say_so() -> None:
    def output() -> Iterator[OutputChunk]:
        yield OutputChunk(1, pa.table({"id": [1]}))
        raise SparkConnectException("[INVALID_HANDLE.SESSION_CLOSED] The handle 1 is invalid. Session was closed.")

    batch = next(batches(output(), ("id",)))
    with pytest.raises(UpstreamUnavailable) as gone:
        list(batch)
    assert gone.value.code == "spark-unreachable"


def test_a_lake_that_uses_the_session_of_another_follows_it_to_the_next_one(tmp_path: Path) -> None:
    sessions: list[Any] = [object()]
    with Lake(load_settings(warehouse=str(tmp_path / "lake")), lambda: sessions[-1]) as lake:
        assert lake.spark is sessions[0]
        sessions.append(object())
        assert lake.spark is sessions[1]
