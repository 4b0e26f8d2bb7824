"""Prometheus metrics of ingesting: batches, how long their phases take, what they change, and what fails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter

from prometheus_client import Counter, Summary

from lakehold.errors import LakeholdError
from lakehold.times import now_ms

DECODES = Counter(
    "lakehold_ingest_decodes",
    "Topics that batches brought to tables, by whether they were decoded for the table or shared with another one.",
    labelnames=("source", "by"),
)
"""Exported as `lakehold_ingest_decodes_total`; `by` is `own` or `shared`."""

PHASES = Summary(
    "lakehold_ingest_phase_seconds",
    "Seconds that the phases of committed batches took.",
    labelnames=("source", "phase"),
)
"""Exported as `…_sum` and `…_count`. `phase` is `plan`, `read`, `begin`, `write` or `commit`; a batch has each once."""

CHANGES = Counter(
    "lakehold_ingest_changes",
    "Changes of tables by committed batches.",
    labelnames=("source", "table", "change"),
)
"""Exported as `lakehold_ingest_changes_total`; `change` is `inserted`, `updated`, `deleted`, `repeated` or `error`."""

MESSAGES = Counter("lakehold_ingest_messages", "Messages in committed batches.", labelnames=("source",))
"""Exported as `lakehold_ingest_messages_total`."""

FAILURES = Counter(
    "lakehold_ingest_failures",
    "Attempts to ingest a source, or a table of it, that ended with an error.",
    labelnames=("source", "code"),
)
"""Exported as `lakehold_ingest_failures_total`; `code` is the code of the error."""


class Phases:
    """The phases of one batch.

    Attributes:
        started_ms: When the first one began, epoch milliseconds.
        seconds: How long each took.
    """

    def __init__(self) -> None:
        self.started_ms = now_ms()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure the block as a phase."""
        began = perf_counter()
        yield
        self.seconds[name] = perf_counter() - began


def count_batch(source: str, messages: int, changes: Mapping[str, Mapping[str, int]], phases: Phases) -> None:
    """Count a batch that was committed; `changes` are its numbers by table and kind of change."""
    MESSAGES.labels(source).inc(messages)
    for phase, seconds in phases.seconds.items():
        PHASES.labels(source, phase).observe(seconds)
    for table, numbers in changes.items():
        for change, number in numbers.items():
            # Iceberg's counts of a table without a key may be below zero where a batch removes what it adds.
            CHANGES.labels(source, table, change).inc(max(0, number))


def count_failures(source: str, errors: Iterable[LakeholdError]) -> None:
    """Count errors that stopped tables of a source, or the source itself."""
    for error in errors:
        FAILURES.labels(source, error.code).inc()
