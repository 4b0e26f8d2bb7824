"""Reads of a SUBSCRIBE that end by themselves, and that the next read continues: by rows, by time, and from a token."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from threading import Event

from lakehold.errors import DefinitionError
from lakehold.spark_errors import readable, readable_each
from lakehold.subscribe.output_batches import Batch, Complete, OutputChunk, batches
from lakehold.subscribe.resume_token import Fingerprint, ResumeToken
from lakehold.subscribe.statement import Subscribe
from lakehold.subscribe.subscription_opening import Opened, Subscribing


def open_read(
    subscribing: Subscribing, statement: Subscribe, resume: str | None, stop: Event, max_rows: int | None
) -> Reader:
    """Open a read of `statement` that begins with it, or after the token `resume`. Raises as `Subscribing.open` does.

    Raises:
        DefinitionError: The token is none, or belongs to another statement or other columns; or the statement has PROGRESS.
    """
    if statement.progress:
        raise DefinitionError(
            "a read that a token continues takes no PROGRESS",
            code="read-progress",
            hint="Leave it out: the token has the position.",
        )
    with readable():
        opened = subscribing.open(replace(statement, resume=resume))
    return Reader(opened, stop, max_rows)


class Reader:
    """One read: iterate over it for its batches, each a whole timestamp.

    Args:
        opened: The SUBSCRIBE, opened where the read begins.
        stop: Ends the read when set, and with it the wait for more.
        max_rows: The read ends after the timestamp with which it has so many rows; None: no limit.
    """

    def __init__(self, opened: Opened, stop: Event, max_rows: int | None) -> None:
        self._opened = opened
        statement = opened.subscription.statement
        self._fingerprint = Fingerprint.of(statement.text, opened.read_columns, opened.schema)
        self._position_ms = opened.window.as_of_ms + 1 if statement.resume is not None else None
        self._stop = stop
        self._max_rows = max_rows

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the output's columns."""
        return self._opened.columns

    @property
    def token(self) -> str | None:
        """Return the token with which a later read continues after the batches given so far; None before the first.

        Store it once the batch is processed.
        """
        return None if self._position_ms is None else str(ResumeToken(self._position_ms, self._fingerprint))

    def __iter__(self) -> Iterator[Batch]:
        return readable_each(self._batches())

    def _batches(self) -> Iterator[Batch]:
        for batch in batches(self._chunks(), self.columns):
            self._reach(batch.timestamp + 1)
            yield batch

    def _chunks(self) -> Iterator[OutputChunk | Complete]:
        for each in up_to_rows(self._opened.follow(self._stop), self._max_rows):
            if isinstance(each, Complete):
                # The batches before it were given, or are about to be.
                self._reach(each.until_ms)
            yield each

    def _reach(self, position_ms: int) -> None:
        self._position_ms = max(position_ms, self._position_ms or 0)


def up_to_rows(output: Iterator[OutputChunk | Complete], max_rows: int | None) -> Iterator[OutputChunk | Complete]:
    """Cut `output` after the timestamp with which it has `max_rows` rows; None: nowhere."""
    rows, timestamp = 0, None
    for each in output:
        is_full = max_rows is not None and rows >= max_rows
        if isinstance(each, Complete):
            yield each
            if is_full:
                return
            continue
        if is_full and each.mz_timestamp != timestamp:
            return
        rows, timestamp = rows + each.rows.num_rows, each.mz_timestamp
        yield each


class Deadline(Event):
    """An event that is set with another one, or when a time is over.

    Args:
        stop: The other event.
        timeout_s: Seconds from now; None: never.
    """

    def __init__(self, stop: Event, timeout_s: float | None) -> None:
        super().__init__()
        self._outer = stop
        self._ends_s = None if timeout_s is None else time.monotonic() + timeout_s

    def is_set(self) -> bool:
        """Return whether the other event is set, or the time is over."""
        return self._outer.is_set() or (self._ends_s is not None and time.monotonic() >= self._ends_s)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the other event is set or the time is over, but no longer than `timeout` seconds."""
        left = None if self._ends_s is None else max(0.0, self._ends_s - time.monotonic())
        limits = [limit for limit in (timeout, left) if limit is not None]
        return self.is_set() or self._outer.wait(min(limits, default=None)) or self.is_set()
