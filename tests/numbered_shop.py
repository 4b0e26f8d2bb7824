"""A source over the recorded topics `orders` and `items`, whose keys are consecutive numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lakehold.lake import Lake
from lakehold.status import status_of
from tests import recorded_files

BATCH = 4
"""The most messages of a batch."""


class NumberedShop:
    """The source `shop` of a lake with `max_batch_records=BATCH`."""

    def __init__(self, lake: Lake, directory: Path) -> None:
        self.lake, self.directory = lake, directory
        self.written = dict.fromkeys(("orders", "items"), 0)
        directory.mkdir(exist_ok=True)
        lake.sql(f"CREATE SOURCE shop FROM FILES '{directory}' FORMAT JSON")

    def table(self, name: str, topic: str, options: str = "") -> None:
        """Create a table of the schema `s`."""
        self.lake.sql(
            f"CREATE TABLE s.{name} (k BIGINT, v STRING) FROM SOURCE shop (TOPIC '{topic}') ENVELOPE UPSERT {options}"
        )

    def write(self, topic: str, count: int, value: bytes | None = None) -> None:
        """Record the next keys."""
        first = self.written[topic]
        lines = [
            recorded_files.line(topic, 0, n, value or b'{"v": "%d"}' % n, b'{"k": %d}' % n)
            for n in range(first, first + count)
        ]
        recorded_files.append(self.directory / f"{topic}.jsonl", lines)
        self.written[topic] += count

    def rows(self, name: str) -> int:
        """Count the rows of a table, each of which must exist once and as it was written."""
        found: list[tuple[Any, ...]] = self.lake.sql(f"SELECT k, v FROM s.{name} ORDER BY k").rows
        assert found == [(n, str(n)) for n in range(len(found))]
        return len(found)

    def readers(self) -> dict[str, set[str]]:
        """Return the tables of each reader."""
        return {name: {*state.tables} for name, state in self.lake.batches.readers("shop").items()}

    def status(self, name: str) -> dict[str, Any]:
        """Return the line of a table in `lakehold status`."""
        found = status_of(self.lake)
        (row,) = [row for row in found.rows if row[0] == f"s.{name}"]
        return dict(zip(found.columns, row, strict=True))
