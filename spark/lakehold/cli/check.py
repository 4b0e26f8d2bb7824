"""`lakehold check`: checks the data of a table against its suite of expectations, and prints the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakehold.cli.command_output import Output, TableOutput
from lakehold.errors import LakeholdError
from lakehold.lake import Lake
from lakehold.quality import Verdict
from lakehold.quality.describe import examples_text, keys_text
from lakehold.quality.verdict_page import page_text
from lakehold.spark_errors import readable
from lakehold.sql.result import Result
from lakehold.sql.text.as_of import parse_time
from lakehold.times import iso

FAILED_COLUMNS = ("expectation", "column", "expected", "found", "examples", "keys")
"""Columns of the table for people: one row for each expectation that is not met.

`examples` are some of the values that violate it, `keys` the keys of the rows that have them.
"""

VERDICT_COLUMNS = ("table", "at", "snapshot_id", "suite", "success", "statistics", "failed", "html", "checked_at")
"""Fields of the one object for programs; `failed` is a list of objects with the columns for people."""


@dataclass(frozen=True)
class CheckRequest:
    """The arguments of the command, as given."""

    table: str
    at: str | None
    hold: str | None
    html: Path | None
    writes_suite: bool


def run_check(lake: Lake, request: CheckRequest, output: Output) -> bool:
    """Check a table against its suite and write the verdict; with `--write-suite` write a generated suite, and check nothing.

    Without `--at` and `--hold` the newest readable state is checked. The verdict names a page that each check writes; `--html`
    writes one more.

    Returns:
        Whether the command succeeds: all expectations are met, or the suite was written.
    """
    if request.writes_suite:
        # `lake.check` translates errors of Spark itself.
        with readable():
            output.notice(f"the suite is in {lake.checks.write_suite(request.table)}")
        return True
    if request.at is not None and request.hold is not None:
        raise LakeholdError("expected --at or --hold, not both of them", code="usage")
    verdict = lake.check(request.table, None if request.at is None else parse_time(request.at), request.hold)
    if request.html is not None:
        _write(request.html, page_text(verdict))
    if not isinstance(output, TableOutput):
        output.result(Result(VERDICT_COLUMNS, [_verdict_row(verdict)]))
    elif verdict.failed:
        output.result(Result(FAILED_COLUMNS, _failed_rows(verdict)))
    output.notice(_summary(verdict, str(request.html or verdict.html_path)))
    return verdict.success


def _summary(verdict: Verdict, page: str) -> str:
    counted = verdict.statistics
    outcome = (
        f"passed: all {counted['evaluated']} expectations are met"
        if verdict.success
        else f"failed: {counted['failed']} of {counted['evaluated']} expectations are not met"
    )
    return f"{verdict.full_name} at {iso(verdict.at_ms)} UTC {outcome} (suite: {verdict.suite}), see {page}"


def _failed_rows(verdict: Verdict) -> list[tuple[Any, ...]]:
    return [
        (o.expectation, o.column, o.expected, o.found, examples_text(o.examples), keys_text(o.keys))
        for o in verdict.failed
    ]


def _verdict_row(verdict: Verdict) -> tuple[Any, ...]:
    failed = [
        dict(
            zip(
                FAILED_COLUMNS,
                (o.expectation, o.column, o.expected, o.found, list(o.examples), list(o.keys)),
                strict=True,
            )
        )
        for o in verdict.failed
    ]
    return (
        verdict.full_name,
        verdict.at_ms,
        verdict.snapshot_id,
        verdict.suite,
        verdict.success,
        verdict.statistics,
        failed,
        verdict.html_path,
        verdict.checked_at_ms,
    )


def _write(to: Path, text: str) -> None:
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(text, encoding="utf-8")
    except OSError as error:
        raise LakeholdError(f'file "{to}" cannot be written', code="usage", detail=f"{error.strerror}.") from error
