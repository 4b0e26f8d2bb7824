"""The answers of statements that query tables at a time, or read their changes over time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame

from lakehold.errors import LakeholdError, Place
from lakehold.spark_errors import readable
from lakehold.spark_sql import quoted_table
from lakehold.sql.plan.statement_effects import RunOnSpark
from lakehold.sql.result import Result
from lakehold.sql.run.spark_statements import opened_on_spark, run_on_spark
from lakehold.sql.statements import ForSpark, ParsedStatement, PlacedChanges, SelectAsOf
from lakehold.subscribe.explain import explained
from lakehold.subscribe.on_spark import misses_filtered_columns, snapshot_schema, view_name
from lakehold.subscribe.row_values import fetched, tuples
from lakehold.subscribe.statement import Query, Subscribe
from lakehold.subscribe.subscription_opening import Subscribing
from lakehold.subscribe.table_changes import open_changes
from lakehold.timeline.as_of import AsOf
from lakehold.timeline.timelines import check_readable


@dataclass(frozen=True)
class LakeReads:
    """The queries of one lake's tables at a time, and of their changes over time.

    Args:
        subscribing: Opens subscriptions on the lake.
    """

    subscribing: Subscribing

    @contextmanager
    def opened(self, parsed: ParsedStatement) -> Iterator[DataFrame]:
        """Open a query, at one time or at the latest, as a data frame that can be read inside the block."""
        written = parsed.written
        match parsed.statement:
            case SelectAsOf(query, as_of):
                opening = self.opened_as_of(query, as_of)
            case ForSpark(changes=changes):
                opening = self.opened_on_spark(RunOnSpark(written.sql, written.start, written.end_exclusive, changes))
            case other:
                raise AssertionError(f"{other} is no query")
        with opening as frame:
            yield frame

    def read_as_of(self, query: Query, as_of: AsOf) -> Result:
        """Run a query over its tables as they were at one time, each with the columns that it had then.

        Raises:
            NotReadable: A table cannot be read at that time.
        """
        with self.opened_as_of(query, as_of) as frame:
            return Result(tuple(frame.columns), fetched(frame))

    @contextmanager
    def opened_as_of(self, query: Query, as_of: AsOf) -> Iterator[DataFrame]:
        """Open a query as `read_as_of` runs it: a data frame that can be read inside the block."""
        timelines, reading = self.subscribing.timelines, self.subscribing.reading.spark
        lines = as_of.load(timelines, [table.full_name for table in query.tables])
        as_of_ms = as_of.resolve(list(lines.values()))
        check_readable(list(lines.values()), as_of_ms, timelines.holds)
        tables: dict[str, str] = {}
        views: dict[str, str] = {}
        frames: dict[str, DataFrame] = {}
        for name, line in lines.items():
            version = line.at(as_of_ms)
            if version is None:
                views[name] = view_name()
                frames[views[name]] = reading.empty(line.table.schema())
            elif misses_filtered_columns(line, version.snapshot_id):
                views[name] = view_name()
                schema = snapshot_schema(line, version.snapshot_id)
                frames[views[name]] = reading.state(line, version.snapshot_id, schema)
            else:
                tables[name] = f"{quoted_table(reading.catalog_name, name)} VERSION AS OF {version.snapshot_id}"
        frame = reading.select(query.over(tables, views), frames)
        with self.subscribing.read_leases.acquire(tuple(lines), as_of_ms):
            yield frame

    def read_changes(self, subscribe: Subscribe) -> Result:
        """Read the rows of a SUBSCRIBE up to UP TO, or as far as all its tables are readable now, whichever is earlier."""
        opened = self.subscribing.open(subscribe)
        found = [chunk.rows for chunk in opened.chunks()]
        return Result(opened.columns, tuples(pa.concat_tables(found)) if found else [], opened.notices)

    def run_on_spark(self, statement: RunOnSpark) -> Result:
        """Let Spark run a statement that reads `CHANGES(…)`.

        Raises:
            DefinitionError: A table, or a column of a key, does not exist.
            NotReadable: Changes after a time are wanted at which their table is not readable.
            LakeholdError: Spark refused or failed.
        """
        with self._changes(statement) as (views, notices):
            result = run_on_spark(self.subscribing.reading.spark.session(), statement, views)
        return replace(result, notices=(*result.notices, *notices))

    @contextmanager
    def opened_on_spark(self, statement: RunOnSpark) -> Iterator[DataFrame]:
        """Open a statement as `run_on_spark` runs it: a data frame that can be read inside the block."""
        with (
            self._changes(statement) as (views, _),
            opened_on_spark(self.subscribing.reading.spark.session(), statement, views) as frame,
        ):
            yield frame

    @contextmanager
    def _changes(self, statement: RunOnSpark) -> Iterator[tuple[dict[PlacedChanges, DataFrame], list[str]]]:
        """Open every `CHANGES(…)` of a statement, with its notices, and keep the history that they read inside the block."""
        notices: list[str] = []
        views: dict[PlacedChanges, DataFrame] = {}
        with ExitStack() as leases:
            for placed in statement.changes:
                with _located(statement, placed), readable():
                    changes = open_changes(self.subscribing, placed.changes)
                    leases.enter_context(self.subscribing.read_leases.acquire((placed.changes.table,), changes.from_ms))
                    views[placed] = changes.frame()
                notices += changes.notices
            yield views, notices

    def explain_changes(self, subscribe: Subscribe) -> Result:
        """Describe how lakehold would read a SUBSCRIBE: the window, then each timestamp with what changed."""
        return Result(("plan",), [(line,) for line in explained(self.subscribing.open(subscribe))])


@contextmanager
def _located(statement: RunOnSpark, placed: PlacedChanges) -> Iterator[None]:
    """Add the place of a `CHANGES(…)` to errors of the block."""
    try:
        yield
    except LakeholdError as error:
        if error.place is None:
            error.place = Place(statement.sql, placed.start, placed.end_exclusive)
        raise
