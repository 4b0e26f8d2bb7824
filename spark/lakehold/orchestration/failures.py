"""Failures of single tables, sources or holds: each becomes a red task of its own, and makes the run red."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NoReturn

from airflow.sdk import get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

from lakehold.errors import LakeholdError, SourceBusy, TransactionIncomplete
from lakehold.orchestration.lakes import failure, text_of
from lakehold.orchestration.map_limits import limited

log = logging.getLogger(__name__)

Found = dict[str, "str | LakeholdError"]
"""What a task found, by name: an error, or a text about a failure. As an outcome, an empty text stands for success."""

Failures = list[list[str]]
"""Pairs of a name and its error text, as XCom keeps them."""


def pairs_or_retry(found: Mapping[str, str | LakeholdError], ti: Any) -> Failures:
    """Return the pairs of failures for `failed`, or of outcomes for `outcome`, unless another try of the task may help.

    Args:
        found: What this try found; it went on after each error that left it possible.
        ti: The task instance.

    Raises:
        AirflowException: The first error that may pass, if it is not the last try. Time alone may not help an incomplete
            transaction, so it is not raised. An error that ends the process is raised at the last try, too: what came after it
            was not done.
    """
    errors = [error for error in found.values() if isinstance(error, LakeholdError)]
    may_pass = [error for error in errors if error.retryable and not isinstance(error, TransactionIncomplete)]
    ending = [error for error in errors if error.ends_process]
    for error in ending if _is_last_try(ti) else [*ending, *may_pass]:
        raise failure(error)
    return limited(
        [[name, text_of(error) if isinstance(error, LakeholdError) else error] for name, error in found.items()]
    )


def without_busy(found: Mapping[str, LakeholdError], ti: Any) -> dict[str, LakeholdError]:
    """Leave out, at the last try, the sources that another process reads: a backfill may take hours, and all is well.

    By then the lease of a process that was killed has expired.
    """
    busy = {name: error for name, error in found.items() if isinstance(error, SourceBusy)} if _is_last_try(ti) else {}
    for name, error in busy.items():
        log.warning("source %s is left to the process that reads it: %s", name, text_of(error))
    return {name: error for name, error in found.items() if name not in busy}


def _is_last_try(ti: Any) -> bool:
    return bool(ti.try_number > ti.max_tries)


@task(trigger_rule="all_done", retries=0)
def gathered(failures: Any) -> Failures:
    """Gather the failures that mapped tasks found, in one list; a mapped task that failed itself adds none."""
    return limited([failure for found in failures for failure in found or []])


@task(map_index_template="{{ name }}", retries=0)
def failed(failure: list[str]) -> NoReturn:
    """Fail for one failure, with its error and hint last in the log."""
    name, error = failure
    get_current_context()["name"] = name  # type: ignore[typeddict-unknown-key]
    raise AirflowFailException(f"{name}: {error}")


@task(map_index_template="{{ name }}", retries=0)
def outcome(found: list[str]) -> None:
    """Succeed for an outcome without an error; otherwise fail with the error and hint last in the log."""
    name, error = found
    get_current_context()["name"] = name  # type: ignore[typeddict-unknown-key]
    if error:
        raise AirflowFailException(f"{name}: {error}")


@task(trigger_rule="one_failed", retries=0)
def watch() -> NoReturn:
    """Fail if any task failed: the state of a run is that of its last tasks."""
    raise AirflowFailException("a task of this run failed: its log says why")
