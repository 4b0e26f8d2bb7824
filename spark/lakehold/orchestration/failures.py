"""Failures of single tables, sources or holds: each becomes a red task of its own, and the run is red."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from airflow.sdk import get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

Failures = list[list[str]]
"""Pairs of what failed and what its error says, as XCom keeps them."""


def pairs(failures: Mapping[str, str]) -> Failures:
    """Failures for `failed`, or outcomes for `outcome`, to be mapped over."""
    return [[name, error] for name, error in failures.items()]


@task(trigger_rule="all_done", retries=0)
def gathered(failures: Any) -> Failures:
    """The failures that mapped tasks found, in one list; of those that failed themselves there is none."""
    return [failure for found in failures for failure in found or []]


@task(map_index_template="{{ name }}", retries=0)
def failed(failure: list[str]) -> NoReturn:
    """Be red for one of them, with its error and hint last in the log."""
    name, error = failure
    get_current_context()["name"] = name  # type: ignore[typeddict-unknown-key]
    raise AirflowFailException(f"{name}: {error}")


@task(map_index_template="{{ name }}", retries=0)
def outcome(found: list[str]) -> None:
    """Be green for one of them, or red with its error and hint last in the log."""
    name, error = found
    get_current_context()["name"] = name  # type: ignore[typeddict-unknown-key]
    if error:
        raise AirflowFailException(f"{name}: {error}")


@task(trigger_rule="one_failed", retries=0)
def watch() -> NoReturn:
    """Make the run red when any task is: a run's state is that of its last tasks."""
    raise AirflowFailException("a task of this run failed: its log says why")
