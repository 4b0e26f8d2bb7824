"""Tables over topics of odd messages, with the rows that each should hold; all tables of a test take one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakehold.ingest.batch_report import BatchReport
from lakehold.lake import Lake
from tests import recorded_files

Message = tuple[bytes | None, bytes | None]
NONE, UPSERT, DEBEZIUM_UPSERT, DEBEZIUM = (
    "ENVELOPE NONE",
    "ENVELOPE UPSERT",
    "ENVELOPE DEBEZIUM UPSERT",
    "ENVELOPE DEBEZIUM",
)


@dataclass(frozen=True)
class Case:
    """A table with the messages of its topic, and the rows that it should hold or the code of the error that stops it.

    `reasons` are the reasons of its error rows by offset; `left_out` are the columns that it skips.
    """

    clauses: str
    messages: Sequence[Message]
    rows: Sequence[tuple[Any, ...]] | None = None
    stopped: str | None = None
    reasons: Mapping[int, str] = field(default_factory=dict)
    left_out: Sequence[str] = ()


def ingested(lake: Lake, directory: Path, cases: Mapping[str, Case], written: str = "JSON") -> BatchReport:
    """Run one batch of a source with a topic and a table for each case."""
    lake.sql(f"CREATE SOURCE feed FROM FILES '{directory}' FORMAT {written}")
    for name, case in cases.items():
        columns, _, clauses = case.clauses.rpartition("|")
        lake.sql(f"CREATE TABLE s.{name} {columns} FROM SOURCE feed (TOPIC '{name}') {clauses}")
        lines = [recorded_files.line(name, 0, n, value, k) for n, (k, value) in enumerate(case.messages)]
        recorded_files.append(directory / f"{name}.jsonl", lines)
    (report,) = lake.ingest("feed")
    return report


def problems(lake: Lake, report: BatchReport, cases: Mapping[str, Case]) -> list[str]:
    """Return the differences from the cases, as text."""
    found: list[str] = []
    errors: dict[str, dict[int, str]] = {name: {} for name in cases}
    for table, offset, reason in lake.sql("SELECT table_name, `offset`, reason FROM mz_catalog.mz_source_errors").rows:
        errors[table.removeprefix("s.")][offset] = reason
    reports = {each.table: each for each in report.tables}
    for name, case in cases.items():
        stop = report.stopped.get(f"s.{name}")
        if (stop and stop.code) != case.stopped:
            found.append(f"{name}: stopped by {stop and (stop.code, stop.message, stop.detail)}")
            continue
        if stop is not None:
            continue
        of_table = reports[f"s.{name}"]
        if (of_table.records, of_table.errors) != (len(case.messages), len(case.reasons)):
            found.append(f"{name}: {of_table.records} messages, {of_table.errors} errors")
        if errors[name] != case.reasons:
            found.append(f"{name}: errors {errors[name]}")
        if tuple(of_table.left_out) != tuple(case.left_out):
            found.append(f"{name}: left out {of_table.left_out}")
        if case.rows is None:
            if lake.tables.table_state(f"s.{name}") is not None:
                found.append(f"{name}: is a table")
            continue
        rows = lake.sql(f"SELECT * FROM s.{name}").rows
        if sorted(rows, key=repr) != sorted(case.rows, key=repr):
            found.append(f"{name}: holds {rows}")
    return found
