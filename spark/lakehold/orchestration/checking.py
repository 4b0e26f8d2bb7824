"""Checks of the quality and holds DAGs: changed tables, once per snapshot, and tables at the times of holds.

A check runs the table's suite of Great Expectations. A hold keeps tables readable from a time on.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from lakehold.errors import DefinitionError, LakeholdError
from lakehold.orchestration.lakes import text_of
from lakehold.times import iso, now_ms

if TYPE_CHECKING:
    from lakehold.lake import Lake
    from lakehold.quality.verdict import Verdict
    from lakehold.state.hold_checks import HoldCheck
    from lakehold.state.holds import Hold

log = logging.getLogger(__name__)

_LOADS_OR_IS_GONE = {"not-readable", "table-missing"}


def check_tables(lake: Lake, wanted: Sequence[str], announced: Sequence[str]) -> dict[str, str]:
    """Check the current data of the tables called `wanted`, else of those in `announced`, else of all; each snapshot once.

    All are those that sources feed and that can be read. An announced table is skipped while its first snapshot loads, or after
    somebody dropped it.

    Args:
        lake: The lake.
        wanted: Full names that a person chose.
        announced: Full names of tables whose changes started the run.

    Returns:
        The failures, by table: the expectations that are not met, or the error that prevented the check.
    """
    names = wanted or announced or sorted(lake.timelines.readable(lake.definitions.definitions().tables))
    checked = {(c.table, c.snapshot_id) for c in lake.verdicts.values() if not c.hold_id and not c.is_comparison}
    failures: dict[str, str] = {}
    for name in names:
        try:
            state = lake.tables.table_state(name)
        except DefinitionError as error:
            failures[name] = str(error)
            continue
        if state is not None and (name, state.snapshot_id) in checked:
            log.info("%s: its snapshot has been checked before", name)
            continue
        failures |= _checked(lake, name, name, None, skipped=() if wanted else _LOADS_OR_IS_GONE)
    return failures


def check_holds(lake: Lake, holds: Sequence[str]) -> dict[str, str]:
    """Check the tables of holds at the holds' times, each time once: the holds called `holds`, else those with a CHECK.

    Holds that nobody named are left out until their time has come: while a table's first snapshot loads, its hold has none.

    Returns:
        The failures, by hold and table.
    """
    chosen = [lake.holds.hold(name) for name in holds] or [
        h for h in lake.holds.all() if h.check != "off" and _has_come(h)
    ]
    done = {(c.hold_id, c.table, c.at_ms) for c in _of_holds(lake.verdicts.values())}
    failures: dict[str, str] = {}
    for hold in chosen:
        for table in hold.tables:
            if (hold.hold_id, table.full_name, hold.at_ms) not in done:
                failures |= _checked(lake, f"{hold.name}: {table.full_name}", table.full_name, hold.name)
    return failures


def _has_come(hold: Hold) -> bool:
    return hold.at_ms is not None and hold.at_ms <= now_ms()


def _of_holds(checks: Iterable[HoldCheck]) -> list[HoldCheck]:
    return [check for check in checks if check.hold_id]


def _checked(lake: Lake, label: str, table: str, hold: str | None, *, skipped: Collection[str] = ()) -> dict[str, str]:
    """Check one table and return its failure; an error is a failure, too, so that the other tables are still checked.

    Errors with a code in `skipped` are only logged.
    """
    try:
        verdict = lake.check(table, hold=hold)
    except LakeholdError as error:
        if error.code in skipped:
            log.info("%s is not checked: %s", label, text_of(error))
            return {}
        log.error("%s: %s", label, text_of(error))
        return {label: text_of(error)}
    text = _verdict_text(verdict)
    log.log(logging.INFO if verdict.success else logging.ERROR, "%s", text)
    return {} if verdict.success else {label: text}


def _verdict_text(verdict: Verdict) -> str:
    from lakehold.quality.describe import examples_text, keys_text  # noqa: PLC0415 - with Spark, so not to parse a DAG file

    counted = verdict.statistics
    lines = [
        f"{verdict.full_name} at {iso(verdict.at_ms)} UTC: {counted['failed']} of {counted['evaluated']} expectations"
        f" are not met (suite: {verdict.suite}), page: {verdict.html_path}"
    ]
    for outcome in verdict.failed:
        about = f"{outcome.expectation} ({outcome.column})" if outcome.column else outcome.expectation
        lines.append(f"  {about}: expected {outcome.expected}, found {outcome.found}")
        if outcome.examples:
            lines.append(f"    such as {examples_text(outcome.examples)}")
        if outcome.keys:
            lines.append(f"    in the rows {keys_text(outcome.keys)}")
    return "\n".join(lines)
