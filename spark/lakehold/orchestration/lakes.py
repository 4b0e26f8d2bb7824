"""Opens the lake for a task, and ends the task as its error asks."""

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
    """The lake that `LAKEHOLD_*` or `lakehold.toml` say; Spark is where the connection `lakehold_spark` says, if there is one.

    Raises:
        AirflowFailException: An error of lakehold that another try does not help.
        AirflowException: One that may pass.
    """
    with told(), lakehold.connect(spark_remote=_spark_remote()) as lake:
        yield lake


@contextmanager
def told() -> Iterator[None]:
    """End the task with what an error of lakehold says, the hint last in its log. Raises as `open_lake` does."""
    try:
        yield
    except LakeholdError as error:
        raise failure(error) from None


def failure(error: LakeholdError) -> AirflowException:
    """What a task raises for an error of lakehold: tried again only if that may help."""
    return (AirflowException if error.retryable else AirflowFailException)(text_of(error))


def text_of(error: LakeholdError) -> str:
    """An error as the command line shows it."""
    return f"{error}\ncode: {error.code}"


def _spark_remote() -> str | None:
    try:
        return SparkConnectHook(SPARK_CONNECTION).get_connection_url()
    except AirflowNotFoundException:
        return None
