"""SUBSCRIBE as text scripts, each run on a lake of its own: `subscribe/*.txt`.

Blank lines separate the blocks of a script. A block with `----` is a statement and its outcome: its rows as a table, its notices,
or its error with the caret. Any other block has statements to run. `t1: INSERT …` gives the name `t1` to the timestamp of the
version that the statement made. `AS OF t1` and `UP TO t3 + 1` refer to these names, which also replace timestamps and snapshots
in outcomes. `now` is any time after the last version, `before` any time before the first. In a line with a caret below, times
must follow the caret's position, because names and timestamps differ in length.

`LAKEHOLD_REWRITE=1 pytest tests/golden` writes the actual outcomes: read the diff.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lakehold.errors import LakeholdError
from lakehold.lake import Lake
from lakehold.sql.result import Result
from lakehold.sql.text.dialect import split
from lakehold.times import now_ms
from tests.conftest import LakeFactory

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("generated_code")]

FILES = sorted(Path(__file__).parent.glob("subscribe/*.txt"))
SEPARATOR = "\n----"

_LABEL = re.compile(r"(\w+):\s+")
_TIME_CLAUSE = re.compile(r"\b(AS OF(?: AT LEAST)?|UP TO) (\w+)(?: ([+-]) (\d+))?", re.IGNORECASE)
_TIME = re.compile(
    r"\b(?P<text>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3})\b|\b(?P<ms>\d{13})\b|\b(?P<snapshot>\d{15,19})\b"
)
_A_DAY_MS = 24 * 60 * 60 * 1000
_LAG_MS = 50


@dataclass
class Script:
    """A lake, with names for the timestamps of its versions."""

    lake: Lake
    times_ms: dict[str, int] = field(default_factory=dict)
    snapshots: dict[int, str] = field(default_factory=dict)

    def prepare(self, block: str) -> None:
        """Run statements; a label names the timestamp of its statement's version."""
        for statement in split(block):
            label = _LABEL.match(statement.text)
            if label is None:
                self.lake.sql(self.with_times(statement.text))
                continue
            before = self.heads()
            self.lake.sql(self.with_times(statement.text[label.end() :]))
            (made,) = self.heads() - before
            snapshot_id, timestamp_ms = made
            self.times_ms[label[1]] = timestamp_ms
            self.snapshots[snapshot_id] = label[1]

    def heads(self) -> set[tuple[int, int]]:
        """Return the current snapshot of each table, with the time since when it is current."""
        catalog = self.lake.catalog
        names = [name for space in catalog.list_namespaces() for name in catalog.list_tables(space)]
        logs = [catalog.load_table(name).history() for name in names if name[0] != "mz_catalog"]
        return {(log[-1].snapshot_id, log[-1].timestamp_ms) for log in logs if log}

    def outcome(self, sql: str) -> str:
        """Return the outcome of a statement as text."""
        last_ms = max(self.times_ms.values(), default=0)
        while now_ms() <= last_ms + _LAG_MS + 10:  # so that the time up to which tables are complete has no name
            time.sleep(0.001)
        try:
            return self.table(self.lake.sql(self.with_times(sql)))
        except LakeholdError as error:
            return f"error: {self.with_names(str(error))}"

    def with_times(self, sql: str) -> str:
        def moved(clause: re.Match[str]) -> str:
            if clause[2] not in self.times_ms:
                return clause[0]
            distance = int(f"{clause[3] or '+'}{clause[4] or 0}")
            return f"{clause[1]} {self.times_ms[clause[2]] + distance}"

        return _TIME_CLAUSE.sub(moved, sql)

    def with_names(self, text: str) -> str:
        def name(found: re.Match[str]) -> str:
            if found["snapshot"]:
                return self.snapshots.get(int(found["snapshot"]), "another")
            if found["ms"]:
                return self.name(int(found["ms"])) or found[0]
            at = datetime.fromisoformat(found["text"]).replace(tzinfo=UTC)
            return self.name(round(at.timestamp() * 1000)) or found[0]

        return _TIME.sub(name, text)

    def name(self, time_ms: int) -> str | None:
        """Return the name for `time_ms`, which is or is next to a named timestamp; None for an unrelated time."""
        for distance, suffix in ((0, ""), (1, " + 1"), (-1, " - 1")):
            for name, at_ms in self.times_ms.items():
                if at_ms + distance == time_ms:
                    return name + suffix
        first, last = min(self.times_ms.values(), default=0), max(self.times_ms.values(), default=0)
        if first <= time_ms <= last or abs(time_ms - last) > _A_DAY_MS:
            return None
        return "now" if time_ms > last else "before"

    def table(self, result: Result) -> str:
        """Format rows under the names of their columns; diffs have a sign."""
        columns = result.columns
        diff = 2 if columns[1:2] == ("mz_progressed",) else 1
        lines = [columns]
        for row in result.rows:
            cells = [self.with_names(shown(value)) for value in row]
            if columns[0] == "mz_timestamp" and columns[diff] == "mz_diff" and row[diff] is not None:
                cells[diff] = f"{row[diff]:+d}"
            lines.append(tuple(cells))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [" | ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        text.insert(1, "-|-".join("-" * width for width in widths))
        return "\n".join(text + [f"notice: {self.with_names(notice)}" for notice in result.notices])


def blocks(path: Path) -> list[str]:
    return [block.strip("\n") for block in path.read_text().split("\n\n") if block.strip()]


def shown(value: Any) -> str:
    if value is None:
        return "NULL"
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_subscriptions_match_their_golden_files(path: Path, make_lake: LakeFactory) -> None:
    script = Script(make_lake(foreign_lag_ms=_LAG_MS))
    found = []
    for block in blocks(path):
        sql, separator, _ = block.partition(SEPARATOR)
        if separator:
            found.append(f"{sql}{SEPARATOR}\n{script.outcome(sql)}")
        else:
            script.prepare(block)
            found.append(block)
    if os.environ.get("LAKEHOLD_REWRITE"):
        path.write_text("\n\n".join(found) + "\n")
    assert blocks(path) == found


def test_golden_files_exist() -> None:
    assert len(FILES) > 1
