"""Opens subscriptions on a lake: resolves what a SUBSCRIBE reads, checks it, and finds the window that can be read now.

The command line, SQL, `lake.follow`, publishers and durable clients all open a SUBSCRIBE here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from threading import Event

import pyarrow as pa
from pyspark.sql import SparkSession

from lakehold.errors import LakeholdError
from lakehold.settings import Settings
from lakehold.subscribe import metrics
from lakehold.subscribe.incremental_opening import QueryOpening
from lakehold.subscribe.output_batches import Complete, OutputChunk
from lakehold.subscribe.output_shape import Output
from lakehold.subscribe.query_columns import QueryColumns, tables_and_columns
from lakehold.subscribe.read_leases import ReadLease, ReadLeases
from lakehold.subscribe.relation import Relation, TableRelation, TimelinesByName
from lakehold.subscribe.remembered import Remembered
from lakehold.subscribe.resume_token import Fingerprint, ResumeToken
from lakehold.subscribe.statement import Raw, Subscribe, refuse_history
from lakehold.subscribe.subscription import Subscription, Window, window
from lakehold.subscribe.table_diffs import QUERIES_REMEMBERED, DiffReading
from lakehold.timeline.continuation import check_continues
from lakehold.timeline.timelines import Timelines, common_window, together

_POLL_S = 0.5
_IDLE_PROGRESS_MS = 1_000


@dataclass(frozen=True)
class Opened:
    """A subscription and the window of it that can be read now."""

    subscription: Subscription
    timelines: TimelinesByName
    window: Window
    read_leases: ReadLeases

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the output's columns."""
        return self.subscription.columns

    @property
    def schema(self) -> pa.Schema:
        """Return the names and types of the output's columns."""
        return self.subscription.output.schema

    @property
    def read_columns(self) -> QueryColumns:
        """Return the columns of the tables that are read."""
        return _read_columns(self.subscription.statement, self.timelines)

    @property
    def notices(self) -> tuple[str, ...]:
        """Return notices for the reader, for example that UP TO is not reached yet, or that a table was rolled back."""
        statement, found = self.subscription.statement, []
        up_to_ms = statement.up_to_ms
        if up_to_ms == self.window.as_of_ms:
            found.append(f"AS OF and UP TO are both {up_to_ms}: there is nothing between them")
        elif up_to_ms is not None and self.window.until_ms < up_to_ms:
            found.append(f"complete below {self.window.until_ms}; UP TO {up_to_ms} is not reached yet")
        wanted_ms = statement.as_of.at_ms
        if wanted_ms and wanted_ms < self.window.as_of_ms:
            found.append(f"{wanted_ms} is not readable: the output begins at {self.window.as_of_ms}")
        for timeline in self.timelines.values():
            found += timeline.rollbacks(self.window.as_of_ms, self.window.until_ms)
        return tuple(found)

    def chunks(self) -> Iterator[OutputChunk]:
        """Read the output of the current window."""
        with self.read_leases.acquire(tuple(self.timelines), self.window.as_of_ms):
            yield from self.subscription.chunks(self.timelines, self.window)

    def follow(self, stop: Event) -> Iterator[OutputChunk | Complete]:
        """Read the output and follow the lake, until UP TO if there is one.

        `Complete` marks that a batch is complete while the next one does not exist yet.

        Args:
            stop: Ends the subscription when set; checked before each poll of the lake.
        """
        with self.read_leases.acquire(tuple(self.timelines), self.window.as_of_ms) as lease:
            yield from self._follow(stop, lease)

    def _follow(self, stop: Event, lease: ReadLease) -> Iterator[OutputChunk | Complete]:
        yield from self.subscription.chunks(self.timelines, self.window)
        lease.move(max(self.window.as_of_ms, self.window.until_ms - 1))
        yield Complete(self.window.until_ms)
        subscription, up_to_ms = self.subscription, self.subscription.statement.up_to_ms
        read, until_ms = self.timelines, self.window.until_ms
        reported_ms = until_ms
        while (up_to_ms is None or until_ms < up_to_ms) and not stop.wait(_POLL_S):
            seen = Window(until_ms - 1, until_ms)
            timelines = subscription.timelines_of(seen)
            _, upper_ms = common_window(list(timelines.values()))
            upper_ms = upper_ms if up_to_ms is None else min(upper_ms, up_to_ms)
            if upper_ms <= until_ms:
                continue
            check_continues(read, timelines, until_ms, subscription.timelines.holds)
            read = timelines
            for chunk in subscription.changes(timelines, until_ms - 1, upper_ms):
                reported_ms = upper_ms
                yield chunk
            if upper_ms - reported_ms >= _IDLE_PROGRESS_MS:
                reported_ms = upper_ms
                yield from subscription.output.progressed(upper_ms, upper_ms)
            until_ms = upper_ms
            lease.move(until_ms - 1)
            yield Complete(until_ms)


@dataclass(frozen=True)
class Subscribing:
    """A factory of subscriptions.

    Args:
        timelines: Computes the tables' timelines.
        reading: Reads the tables' diffs.
        settings: Says which output options are enabled.
        read_leases: Protects the history that long reads need.
    """

    timelines: Timelines
    reading: DiffReading
    settings: Settings
    read_leases: ReadLeases

    def within(self, session: SparkSession) -> Subscribing:
        """Return the same for another session, in which all that Spark reads is read."""
        on_spark = replace(self.reading.spark, session=lambda: session)
        return replace(self, reading=replace(self.reading, spark=on_spark))

    def elsewhere(self, session: Callable[[], SparkSession]) -> Subscribing:
        """Return the same for sessions that are opened when they are needed, with cached queries of its own."""
        on_spark = replace(self.reading.spark, session=session)
        return replace(self, reading=replace(self.reading, spark=on_spark, opened=Remembered(QUERIES_REMEMBERED)))

    def open(
        self,
        statement: Subscribe,
        *,
        is_users: bool = True,
        check: Callable[[Subscribe, QueryColumns], None] | None = None,
    ) -> Opened:
        """Open `statement` on the lake as it is now.

        For tables with foreign writers, which know nothing of lakehold, it waits as long as one of their commits may take.

        Args:
            statement: The SUBSCRIBE.
            is_users: Whether a person wrote it, so that settings may switch its output option off.
            check: Raises an error if the tables and columns must not be read. It runs first: a table in the place of another
                one is rarely readable at a time of the other.

        Raises:
            DefinitionError: A table or column does not exist, the statement is for subscriptions only, or its resume token is
                none, or belongs to another statement or other columns.
            NotReadable: AS OF is outside the readable window, or another table has the name of one that a token's reader read.
            StatementBounds: UP TO is before AS OF.
        """
        refuse_history(statement)
        if is_users:
            self._check_enabled(statement)
        token = ResumeToken.parse(statement.resume) if statement.resume is not None else None
        if token is not None:
            statement = token.resumed(statement)
        names = statement.tables
        last_ms = [statement.up_to_ms - 1] if statement.up_to_ms is not None else []
        timelines = statement.as_of.load(self.timelines, names, *last_ms)
        columns = _read_columns(statement, timelines)
        if check is not None:
            check(statement, columns)
        found = window(statement, timelines, self.timelines.holds)
        timelines = together(timelines)
        relation = self._relation(statement, timelines)
        fingerprint = partial(Fingerprint.of, statement.text, columns)
        tokens_of = fingerprint if statement.tokens else None
        output = Output(statement.shape, relation.columns, statement.progress, statement.up_to_ms, tokens_of)
        if token is not None:
            token.check_continues(fingerprint(output.schema))
        output.sorting.check(output.diffs, self.reading.spark.session)
        metrics.count(statement)
        return Opened(
            Subscription(statement, names, self.timelines, relation, output), timelines, found, self.read_leases
        )

    def _check_enabled(self, statement: Subscribe) -> None:
        if isinstance(statement.shape, Raw):
            return
        name = metrics.output_name(statement.shape)
        setting = f"enable_{name}_in_subscribe"
        if not getattr(self.settings, setting):
            raise LakeholdError(
                f"SUBSCRIBE with {name.replace('_', ' ').upper()} is switched off",
                code="feature-off",
                detail=f"The setting {setting} is false.",
                hint=f"Set LAKEHOLD_{setting.upper()}=true.",
            )

    def _relation(self, statement: Subscribe, timelines: TimelinesByName) -> Relation:
        if isinstance(statement.relation, str):
            return TableRelation(statement.relation, timelines[statement.relation].table.schema(), self.reading)
        schemas = {name: timeline.table.schema() for name, timeline in timelines.items()}
        return QueryOpening(self.reading).open(statement.relation, schemas)


def _read_columns(statement: Subscribe, timelines: TimelinesByName) -> QueryColumns:
    return tables_and_columns(statement.relation, {name: timeline.table for name, timeline in timelines.items()})
