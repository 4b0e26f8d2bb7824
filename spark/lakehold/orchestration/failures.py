"""Failures of single tables, sources or holds: each becomes a red task of its own, and makes the run red."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from airflow.sdk import get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

Failures = list[list[str]]
"""Pairs of a name and its error text, as XCom keeps them."""


def pairs(failures: Mapping[str, str]) -> Failures:
    """Convert failures for `failed`, or outcomes for `outcome`, to lists that tasks can be mapped over."""
    return [[name, error] for name, error in failures.items()]


@task(trigger_rule="all_done", retries=0)
def gathered(failures: Any) -> Failures:
    """Gather the failures that mapped tasks found, in one list; a mapped task that failed itself adds none."""
    return [failure for found in failures for failure in found or []]


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
