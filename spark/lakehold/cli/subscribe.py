"""`lakehold subscribe`: rows as timestamps complete; Ctrl-C ends it after a complete row."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from lakehold.cli.command_output import Output
from lakehold.cli.interrupt import stop_on_signal
from lakehold.cli.whole_file import write_whole
from lakehold.errors import LakeholdError
from lakehold.lake import Lake
from lakehold.progress import Progress
from lakehold.spark_errors import readable
from lakehold.subscribe.output_batches import OutputChunk, Row
from lakehold.subscribe.row_values import tuples

_ROWS_TOGETHER = 1_000
"""Rows that are written together while more are available at once."""


@dataclass(frozen=True, kw_only=True)
class ReadLimits:
    """Options of a read that ends by itself.

    Attributes:
        max_rows: It ends after the timestamp with which it has so many rows.
        timeout_s: Seconds for which it waits for more.
        resume_file: Has the token of the last read, if it exists, and gets those of this one.
    """

    max_rows: int | None = None
    timeout_s: float | None = None
    resume_file: Path | None = None


def run_subscribe(  # noqa: PLR0913 - what it reads, where to, and how far
    lake: Lake, text: str, output: Output, progress: Progress, limits: ReadLimits, *, follow: bool
) -> bool:
    """Write the rows of a SUBSCRIBE up to now, or continue until Ctrl-C.

    Args:
        lake: The lake.
        text: A SUBSCRIBE, whose first word may be missing: a table's name is enough.
        output: Where rows go.
        progress: Shows how many rows there were.
        limits: Where it begins, and ends by itself.
        follow: Whether to wait for more.

    Returns:
        Whether it came to its end. Following has none: Ctrl-C counts as the end there.
    """
    statement, stop = _as_statement(text), stop_on_signal()
    if limits != ReadLimits():
        return _read(lake, statement, output, progress, limits, stop, follow=follow)
    opened = lake.open_subscription(statement)
    if not follow:
        for notice in opened.notices:
            output.notice(notice)
    chunks = opened.follow(stop) if follow else opened.chunks()
    waiting = list[Row]()
    output.begin(opened.columns)
    with progress.task("subscribing", unit="rows") as task, readable():
        for chunk in itertools.chain(chunks, [None]):
            waiting += tuples(chunk.rows) if isinstance(chunk, OutputChunk) else []
            if len(waiting) >= _ROWS_TOGETHER or (waiting and not isinstance(chunk, OutputChunk)):
                output.part(opened.columns, waiting)
                task.advance(len(waiting))
                waiting = []
            if stop.is_set():
                return follow
    return True


def _read(  # noqa: PLR0913 - as above
    lake: Lake, text: str, output: Output, progress: Progress, limits: ReadLimits, stop: Event, *, follow: bool
) -> bool:
    """Write the rows of a read that ends by itself, and store its token after each timestamp that was written."""
    resume = _stored(limits.resume_file)
    timeout_s = limits.timeout_s if follow else limits.timeout_s or 0.0
    reader = lake.read(text, resume=resume, max_rows=limits.max_rows, timeout=timeout_s, stop=stop)
    output.begin(reader.columns)
    with progress.task("subscribing", unit="rows") as task:
        for batch in reader:
            for rows in (list(tuples(table)) for table in batch.tables() if table.num_rows):
                output.part(reader.columns, rows)
                task.advance(len(rows))
                if stop.is_set():
                    return follow  # The timestamp comes again, whole, with the next read.
            _store(limits.resume_file, reader.token)
    _store(limits.resume_file, reader.token)
    return follow or not stop.is_set()


def _stored(file: Path | None) -> str | None:
    """Return the token in a file; None if the file does not exist."""
    try:
        return None if file is None else file.read_text()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(file, error) from error


def _store(file: Path | None, token: str | None) -> None:
    """Replace the token in a file."""
    if file is None or token is None:
        return
    try:
        write_whole(file, f"{token}\n")
    except OSError as error:
        raise _unusable(file, error) from error


def _unusable(file: Path | None, error: Exception) -> LakeholdError:
    return LakeholdError(
        f'file "{file}" cannot keep a resume token',
        code="usage",
        detail=f"{error}.",
        hint="Name a file of its own in a directory that exists: --resume-file orders.token",
    )


def _as_statement(text: str) -> str:
    words = text.split(maxsplit=1)
    return text if words and words[0].upper() == "SUBSCRIBE" else f"SUBSCRIBE {text}"
