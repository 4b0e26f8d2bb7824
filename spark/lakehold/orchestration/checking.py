"""Checks of the quality and holds DAGs: changed tables, once per snapshot, and tables at the times of holds.

A check runs the table's suite of Great Expectations. A hold keeps tables readable from a time on.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from lakehold.errors import DefinitionError, LakeholdError
from lakehold.orchestration.failures import Found
from lakehold.orchestration.lakes import text_of
from lakehold.times import epoch_ms, iso, now_ms

if TYPE_CHECKING:
    from lakehold.lake import Lake
    from lakehold.quality.verdict import Verdict
    from lakehold.state.hold_checks import HoldCheck
    from lakehold.state.holds import Hold

log = logging.getLogger(__name__)

_LOADS_OR_IS_GONE = {"not-readable", "table-missing"}


def since_ms_of(dag_run: Any) -> int:
    """Return since when failing verdicts are failures of a run: its start, or when it was due, if somebody cleared it since.

    The start stays the same if Airflow repeats a task, but not if a person clears the run to see its failure again.

    Args:
        dag_run: The run, from the task's context.
    """
    return epoch_ms(dag_run.run_after if dag_run.clear_number else dag_run.start_date)


def check_tables(lake: Lake, wanted: Sequence[str], announced: Sequence[str], since_ms: int) -> Found:
    """Check the current data of the tables called `wanted`, else of those in `announced`, else of all.

    All are those that sources feed and that can be read. They and announced tables are checked once per snapshot. An announced
    table is skipped while its first snapshot loads, or after somebody dropped it.

    Args:
        lake: The lake.
        wanted: Full names that a person chose.
        announced: Full names of tables whose changes started the run.
        since_ms: Epoch milliseconds. Failing verdicts since then are failures of this run: its task may have crashed after it
            kept them.

    Returns:
        The failures, by table: the expectations that are not met, or the error that prevented the check.
    """
    names = wanted or announced or sorted(lake.timelines.readable(lake.definitions.definitions().tables))
    of_tables = (check for check in lake.verdicts.values() if not check.hold_id and not check.is_comparison)
    done = {} if wanted else {(check.table, check.snapshot_id): check for check in of_tables}
    failures: Found = {}
    for name in names:
        try:
            state = lake.tables.table_state(name)
        except DefinitionError as error:
            failures[name] = error
            continue
        kept = done.get((name, state.snapshot_id)) if state is not None else None
        if kept is not None:
            failures |= _kept(name, kept, since_ms)
            continue
        failures |= _checked(lake, name, name, None, skipped=() if wanted else _LOADS_OR_IS_GONE)
    return failures


def check_holds(lake: Lake, since_ms: int) -> Found:
    """Check the tables of holds with a CHECK at the holds' times, each time once.

    Holds are left out until their time has come: while a table's first snapshot loads, its hold has none.

    Args:
        lake: The lake.
        since_ms: As for `check_tables`.

    Returns:
        The failures, by hold and table.
    """
    done: dict[tuple[str, str, int | None], HoldCheck] = {
        (check.hold_id, check.table, check.at_ms): check for check in lake.verdicts.values() if check.hold_id
    }
    failures: Found = {}
    for hold in (hold for hold in lake.holds.all() if hold.check != "off" and _has_come(hold)):
        for table in hold.tables:
            label = f"{hold.name}: {table.full_name}"
            kept = done.get((hold.hold_id, table.full_name, hold.at_ms))
            if kept is not None:
                failures |= _kept(label, kept, since_ms)
            else:
                failures |= _checked(lake, label, table.full_name, hold.name)
    return failures


def _has_come(hold: Hold) -> bool:
    return hold.at_ms is not None and hold.at_ms <= now_ms()


def _kept(label: str, check: HoldCheck, since_ms: int) -> Found:
    """Return the failure of a check that was made before, if this run made it; runs after it have nothing to report."""
    if check.success or check.checked_at_ms < since_ms:
        log.info("%s has been checked before", label)
        return {}
    text = "\n".join([_head(check.table, check), *(f"  {failure}" for failure in check.failures)])
    log.error("%s", text)
    return {label: text}


def _head(table: str, of: Verdict | HoldCheck) -> str:
    counted = of.statistics
    return (
        f"{table} at {iso(of.at_ms)} UTC: {counted['failed']} of {counted['evaluated']} expectations"
        f" are not met (suite: {of.suite}), page: {of.html_path}"
    )


def _checked(lake: Lake, label: str, table: str, hold: str | None, *, skipped: Collection[str] = ()) -> Found:
    """Check one table and return its failure; an error is a failure, too, so that the other tables are still checked.

    Errors with a code in `skipped` are only logged.

    Raises:
        LakeholdError: The error ended Spark: no other table can be checked.
    """
    try:
        verdict = lake.check(table, hold=hold)
    except LakeholdError as error:
        if error.code in skipped:
            log.info("%s is not checked: %s", label, text_of(error))
            return {}
        if error.ends_process:
            raise
        log.error("%s: %s", label, text_of(error))
        return {label: error}
    text = _verdict_text(verdict)
    log.log(logging.INFO if verdict.success else logging.ERROR, "%s", text)
    return {} if verdict.success else {label: text}


def _verdict_text(verdict: Verdict) -> str:
    from lakehold.quality.describe import examples_text, keys_text  # noqa: PLC0415 - with Spark, so not to parse a DAG file

    lines = [_head(verdict.full_name, verdict)]
    for outcome in verdict.failed:
        about = f"{outcome.expectation} ({outcome.column})" if outcome.column else outcome.expectation
        lines.append(f"  {about}: expected {outcome.expected}, found {outcome.found}")
        if outcome.examples:
            lines.append(f"    such as {examples_text(outcome.examples)}")
        if outcome.keys:
            lines.append(f"    in the rows {keys_text(outcome.keys)}")
    return "\n".join(lines)
