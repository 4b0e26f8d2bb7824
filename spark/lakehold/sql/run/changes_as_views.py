"""`CHANGES(…)` in a statement of Spark's: each becomes a temporary view, while the statement runs.

The name of a view and blanks take as many characters as the text that they replace, and as many lines. So the positions in
Spark's errors are positions in the statement as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

from lakehold.sql.plan.statement_effects import RunOnSpark
from lakehold.sql.statements import PlacedChanges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_numbers = count(1)
"""Threads share a session, so a process gives no name twice."""

_NAME = "mz{:05x}"
"""As long as the word CHANGES; a million of names come before the first one comes again."""

_NAMES = 16**5
_VIEW = re.compile(r"\bmz[0-9a-f]{5}\b")
_NO_LINE_BREAK = re.compile(r"[^\n\r]")


@contextmanager
def changes_as_views(
    spark: SparkSession, statement: RunOnSpark, views: Mapping[PlacedChanges, DataFrame]
) -> Iterator[str]:
    """Return the statement's text with a temporary view in place of each `CHANGES(…)`; the views exist inside the block."""
    text = statement.sql
    names: list[str] = []
    try:
        for placed, frame in views.items():
            name = _new_name(statement.sql)
            frame.createOrReplaceTempView(name)
            names.append(name)
            replaced = text[placed.start : placed.end_exclusive]
            blank = _NO_LINE_BREAK.sub(" ", replaced[len(name) :])
            text = text[: placed.start] + name + blank + text[placed.end_exclusive :]
        yield text[statement.start : statement.end_exclusive]
    finally:
        for name in names:
            spark.catalog.dropTempView(name)


def without_view_names(message: str) -> str:
    """Write CHANGES for the names of views in a message of Spark's."""
    return _VIEW.sub("CHANGES", message)


def _new_name(text: str) -> str:
    """Make a name that `text` does not contain."""
    while (name := _NAME.format(next(_numbers) % _NAMES)) in text.lower():
        pass
    return name
