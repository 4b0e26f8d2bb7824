"""Stack traces of failed connectors, and the reasons that lakehold reports."""

from __future__ import annotations

import pytest

from lakehold.upstream.found.connector_failure import cause_of, with_way_out

_CONNECT = "org.apache.kafka.connect.errors.ConnectException"
_FRAMES = "\tat io.debezium.pipeline.ErrorHandler.setProducerThrowable(ErrorHandler.java:67)\n\t... 5 more\n"


@pytest.mark.parametrize(
    ("trace", "cause"),
    [
        ("", ""),
        (f"{_CONNECT}: Tables differ.\n{_FRAMES}", "ConnectException: Tables differ"),
        (
            f"{_CONNECT}: An exception occurred.\n{_FRAMES}Caused by: io.debezium.DebeziumException: Failed\n{_FRAMES}"
            f"Caused by: org.postgresql.util.PSQLException: ERROR: relation does not exist\n  Position: 15\n{_FRAMES}",
            "PSQLException: ERROR: relation does not exist Position: 15",
        ),
        (
            f"{_CONNECT}: Unrecoverable exception\n{_FRAMES}Caused by: java.util.concurrent.TimeoutException\n{_FRAMES}",
            "ConnectException: Unrecoverable exception (TimeoutException)",
        ),
        (
            f"{_CONNECT}: java.io.EOFException: Connection reset\n{_FRAMES}Caused by: java.io.EOFException\n{_FRAMES}",
            "EOFException: Connection reset",
        ),
        (
            f"{_CONNECT}\n{_FRAMES}Caused by: java.net.UnknownHostException: db.example\n{_FRAMES}"
            f"\tSuppressed: java.io.IOException: closed\n\t\tat x.Y.z(Y.java:1)\n",
            "UnknownHostException: db.example",
        ),
        (f"{_CONNECT}: {_CONNECT}\n{_FRAMES}", "ConnectException, without a message: the worker's log says more"),
        ("Worker stopped", "Worker stopped"),
    ],
)
def test_the_cause_is_the_deepest_message_in_one_line(trace: str, cause: str) -> None:
    assert cause_of(trace) == cause


@pytest.mark.parametrize(
    "reason",
    [
        "SQLException: Could not find GTID state requested by slave in any binlog files. Probably the slave state is too old and "
        "required binlog files have been purged",
        "ServerException: Cannot replicate because the master purged required binary logs. Error code: 1236; SQLSTATE: HY000",
        "ServerException: Could not find first log file name in binary log index file Error code: 1236; SQLSTATE: HY000",
        "DebeziumException: The connector is trying to read change stream starting at SourceInfo [...], but this is no longer "
        "available on the server. Reconfigure the connector to use a snapshot mode when needed",
    ],
)
def test_a_purged_log_is_reported_with_the_way_out(reason: str) -> None:
    text = with_way_out(reason, "shop")
    assert text.startswith(f"{reason}. ")
    assert text.endswith(": ALTER SOURCE shop RESNAPSHOT")


@pytest.mark.parametrize(
    "reason",
    [
        "DebeziumException: Error processing row in orders, internal schema size 3, but row size 5 , restart connector",
        "DebeziumException: Encountered change event for table shop.orders whose schema isn't known to this connector",
    ],
)
def test_a_row_with_columns_that_debezium_does_not_know_is_reported_with_the_way_out(reason: str) -> None:
    assert with_way_out(reason, "shop").endswith("If the next ingest does not repair it: ALTER SOURCE shop RESNAPSHOT")


def test_another_failure_is_reported_with_its_cause_only() -> None:
    crashed = "SQLException: Table './shop/old' is marked as crashed and should be repaired"
    assert with_way_out(crashed, "shop") == crashed
