"""`lakehold subscribe`: rows as timestamps complete; Ctrl-C ends it after a complete row."""

from __future__ import annotations

import itertools

from lakehold.cli.command_output import Output
from lakehold.cli.interrupt import stop_on_signal
from lakehold.lake import Lake
from lakehold.progress import Progress
from lakehold.spark_errors import readable
from lakehold.subscribe.output_batches import Row
from lakehold.subscribe.row_values import tuples

_ROWS_TOGETHER = 1_000
"""Rows that are written together while more are available at once."""


def run_subscribe(lake: Lake, text: str, output: Output, progress: Progress, *, follow: bool) -> bool:
    """Write the rows of a SUBSCRIBE up to now, or continue until Ctrl-C.

    Args:
        lake: The lake.
        text: A SUBSCRIBE, whose first word may be missing: a table's name is enough.
        output: Where rows go.
        progress: Shows how many rows there were.
        follow: Whether to wait for more.

    Returns:
        Whether it came to its end. Following has none: Ctrl-C counts as the end there.
    """
    stop = stop_on_signal()
    opened = lake.open_subscription(_as_statement(text))
    if not follow:
        for notice in opened.notices:
            output.notice(notice)
    chunks = opened.follow(stop) if follow else opened.chunks()
    shown, waiting = 0, list[Row]()
    with progress.task("subscribing", unit="rows") as task, readable():
        for chunk in itertools.chain(chunks, [None]):
            waiting += tuples(chunk.rows) if chunk is not None else []
            if len(waiting) >= _ROWS_TOGETHER or (waiting and chunk is None):
                output.part(opened.columns, waiting, first=shown == 0)
                task.advance(len(waiting))
                shown, waiting = shown + len(waiting), []
            if stop.is_set():
                return follow
    return True


def _as_statement(text: str) -> str:
    words = text.split(maxsplit=1)
    return text if words and words[0].upper() == "SUBSCRIBE" else f"SUBSCRIBE {text}"
