"""Comparisons of captured tables with their databases, and of materialized views with their queries, in the quality DAG.

A table is captured if its source has a connector of its own, which lakehold created for a database.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakehold.errors import LakeholdError
from lakehold.orchestration.failures import Found
from lakehold.orchestration.lakes import text_of
from lakehold.progress import LogProgress

if TYPE_CHECKING:
    from lakehold.lake import Lake

log = logging.getLogger(__name__)

_KEYS_LOGGED = 20


def verify_tables(lake: Lake, tables: Sequence[str]) -> Found:
    """Compare tables with their databases, and views with their queries, row by row; other tables are skipped.

    Args:
        lake: The lake.
        tables: Full names; none: all tables that can be read.

    Returns:
        The failures, by table: a text with the first keys that differ, or with the error that prevented the comparison. It is no
        error that is tried again: the other comparisons, each of which may take hours, would be repeated with it.

    Raises:
        LakeholdError: The error ended Spark: no other table can be compared.
    """
    defined = lake.definitions.definitions()
    failures: Found = {}
    for name in tables or sorted(lake.timelines.readable([*defined.tables, *defined.views])):
        if name not in defined.views and (
            name not in defined.tables or defined.tables[name].definition.upstream is None
        ):
            log.info("%s is not captured from a database", name)
            continue
        label = f"{name} and its {'query' if name in defined.views else 'database'}"
        try:
            found = lake.verify(name, progress=LogProgress())
        except LakeholdError as error:
            if error.ends_process:
                raise
            log.error("%s: %s", name, text_of(error))
            failures[label] = text_of(error)
            continue
        lines = [found.summary, *(f"  {each.text}" for each in found.differences[:_KEYS_LOGGED]), *found.reasons]
        text = "\n".join(lines)
        log.log(logging.INFO if found.is_equal else logging.ERROR, "%s", text)
        if not found.is_equal:
            failures[label] = text
    return failures
