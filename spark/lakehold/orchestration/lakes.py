"""Opens the lake for a task, and fails the task in the way that an error requires."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowNotFoundException

import lakehold
from lakehold.errors import LakeholdError

if TYPE_CHECKING:
    from lakehold.lake import Lake

SPARK_CONNECTION = "lakehold_spark"
"""Airflow's connection, of type Spark Connect, to the server whose session tasks use."""

log = logging.getLogger(__name__)


@contextmanager
def open_lake() -> Iterator[Lake]:
    """Open the lake of `LAKEHOLD_*` or `lakehold.toml`; Spark is at the connection `lakehold_spark` if that exists.

    Raises:
        AirflowFailException: An error of lakehold that would come again at the next try.
        AirflowException: An error that may pass.
    """
    with errors_end_task(), lakehold.connect(spark_remote=_spark_remote()) as lake:
        yield lake


@contextmanager
def errors_end_task() -> Iterator[None]:
    """Fail the task with the text of an error of lakehold, the hint last in its log. Raises as `open_lake` does."""
    try:
        yield
    except LakeholdError as error:
        raise failure(error) from None


def failure(error: LakeholdError) -> AirflowException:
    """Return the exception that a task raises for an error of lakehold: Airflow retries only if that may help."""
    return (AirflowException if error.retryable else AirflowFailException)(text_of(error))


def text_of(error: LakeholdError) -> str:
    """Format an error as the command line shows it."""
    return f"{error}\ncode: {error.code}"


def _spark_remote() -> str | None:
    try:
        return SparkConnectHook(SPARK_CONNECTION).get_connection_url()
    except AirflowNotFoundException:
        return None
