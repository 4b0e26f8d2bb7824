"""Opens the lake for a task, and fails the task in the way that an error requires."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowNotFoundException

import lakehold
from lakehold.errors import LakeholdError, SettingsError

if TYPE_CHECKING:
    from lakehold.lake import Lake

SPARK_CONNECTION = "lakehold_spark"
"""Airflow's connection to the Spark Connect server whose session tasks use."""

log = logging.getLogger(__name__)


@contextmanager
def open_lake() -> Iterator[Lake]:
    """Open the lake of `LAKEHOLD_*` or `lakehold.toml`; Spark is at the connection `lakehold_spark` if that exists.

    Raises:
        AirflowFailException: An error of lakehold that would come again at the next try.
        AirflowException: An error that may pass.
    """
    with errors_end_task(), lakehold.connect(spark_remote=spark_remote()) as lake:
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


def spark_remote() -> str | None:
    """Return the address in the connection, or None without one.

    It is what the hook of Airflow's provider for Spark returns, which would need `pyspark-client`: see `pyspark_conflict`.

    Raises:
        SettingsError: The connection names no host.
    """
    try:
        found = Connection.get(SPARK_CONNECTION)
    except AirflowNotFoundException:
        return None
    if not found.host:
        raise SettingsError(
            f"Airflow's connection {SPARK_CONNECTION} has no host",
            hint="Set the host to that of the Spark Connect server, such as sc://spark.example, or delete the connection.",
        )
    port = f":{found.port}" if found.port else ""
    parameters = {"user_id": found.login, "token": found.password, "use_ssl": found.extra_dejson.get("use_ssl")}
    given = "".join(
        f";{name}={quote(str(value), safe='')}" for name, value in parameters.items() if value not in (None, "")
    )
    return f"sc://{found.host.removeprefix('sc://')}{port}/{given}"
