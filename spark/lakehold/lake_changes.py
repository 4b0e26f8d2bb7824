"""Reading a lake's tables and how they change: the methods of `Lake` that open queries, follow a SUBSCRIBE, or return changes.

Methods import what only they need, so that a short process loads only what it uses.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from threading import Event
from typing import TYPE_CHECKING

from lakehold.lake_parts import LakeParts

if TYPE_CHECKING:
    from pyarrow import RecordBatchReader
    from pyspark.sql import DataFrame, SparkSession

    from lakehold.subscribe.limited_read import Reader
    from lakehold.subscribe.output_batches import Batch
    from lakehold.subscribe.subscription_opening import Opened, Subscribing


class LakeChanges:
    """The part of a lake that reads tables and their changes as streams."""

    _parts: LakeParts

    def follow(self, text: str, stop: Event | None = None) -> Iterator[Batch]:
        """Yield what a SUBSCRIBE gives, one batch for each complete timestamp; endless without UP TO.

        Iterate over a batch to take its rows as they are read; `batch.rows` has all of them.

        Args:
            text: One SUBSCRIBE.
            stop: Ends it when set, between two polls of the lake.

        Raises:
            StatementError: The text is not one SUBSCRIBE.
            DefinitionError: A table or column does not exist.
            NotReadable: AS OF is outside of the readable window.
        """
        from lakehold.spark_errors import readable_each
        from lakehold.subscribe.output_batches import batches

        opened = self.open_subscription(text)
        yield from readable_each(batches(opened.follow(stop or Event()), opened.columns))

    def read(
        self,
        text: str,
        *,
        resume: str | None = None,
        max_rows: int | None = None,
        timeout: float | None = 0.0,
        stop: Event | None = None,
    ) -> Reader:
        """Return a read of a SUBSCRIBE that ends by itself; its `token` continues it later, also in another process.

        It keeps no history: a hold has to keep what the next read needs.

        Args:
            text: One SUBSCRIBE without PROGRESS.
            resume: The token of an earlier read of the same statement: the changes after that read come.
            max_rows: The read ends after the timestamp with which it has so many rows.
            timeout: Seconds for which to wait for more changes; by default what can be read now comes. None: for ever.
            stop: Ends the read when set.

        Raises:
            DefinitionError: The token belongs to another statement or other columns, or is none. Also raises as `follow` does.
        """
        from lakehold.sql.parse.statement import parse_subscription
        from lakehold.subscribe.limited_read import Deadline, open_read

        statement = parse_subscription(text, self._parts.settings.catalog_name)
        ends = Deadline(stop or Event(), timeout)
        return open_read(self._parts.subscribing, statement, resume, ends, max_rows)

    def changes(  # noqa: PLR0913 - one for each clause
        self,
        table: str,
        since: int,
        until: int | None = None,
        *,
        at_least: bool = False,
        envelope: str | None = None,
        key: Sequence[str] = (),
        net: bool = False,
    ) -> RecordBatchReader:
        """Return the changes of a table as a stream of Arrow batches, which DuckDB, Polars and pandas read.

        Args:
            table: Full name.
            since: Changes after this time come, epoch milliseconds.
            until: Changes before this time come; by default all that can be read now.
            at_least: Begin at the first readable time after `since` if `since` is not readable.
            envelope: `upsert` or `debezium`, with one row for each key and timestamp; by default diffs.
            key: The columns of the envelope's key.
            net: Read all changes as one: what differs between both times.

        Raises:
            DefinitionError: The table, or a column of the key, does not exist.
            NotReadable: `since` is not readable, or changes before `until` may still come.
        """
        from lakehold.subscribe.statement import Changes, enveloped
        from lakehold.timeline.as_of import AsOf

        as_of = AsOf(since, at_least=at_least)
        return self._parts.read_changes(Changes(table, as_of, until, enveloped(envelope, tuple(key)), net))

    @contextmanager
    def open_query(self, text: str, spark: SparkSession | None = None) -> Iterator[DataFrame]:
        """Open a query as a data frame of Spark's that can be read inside the block; nothing is read before.

        Args:
            text: One SELECT, at the latest time or `AS OF` another one, maybe over `CHANGES(…)`.
            spark: A session of `another_session` to read in; by default the lake's own.

        Raises:
            StatementError: The text is not one query, or Spark cannot read it.
            NotReadable: A table cannot be read at that time.
        """
        from lakehold.spark_errors import readable
        from lakehold.sql.run.one_query import parse_one_query
        from lakehold.sql.run.reads import LakeReads

        subscribing = self._parts.subscribing if spark is None else self._parts.subscribing.within(spark)
        parsed = parse_one_query(text, self._parts.settings.catalog_name)
        with readable(), LakeReads(subscribing).opened(parsed) as frame:
            yield frame

    def another_session(self) -> AbstractContextManager[SparkSession]:
        """Open one more Spark session like the lake's, with settings and views of its own, until the block ends."""
        return self._parts.another_session()

    def subscribing_in(self, session: Callable[[], SparkSession]) -> Subscribing:
        """Return a factory of subscriptions for which Spark works in sessions of `another_session`.

        Args:
            session: Returns the session for the thread that opens or reads a subscription.
        """
        return self._parts.subscribing.elsewhere(session)

    def open_subscription(self, text: str, subscribing: Subscribing | None = None) -> Opened:
        """Open a SUBSCRIBE on the lake as it is now, before any of it is read. Raises as `follow` does.

        Args:
            text: One SUBSCRIBE.
            subscribing: The factory to open it with, of `subscribing_in`; by default one for the lake's own session.
        """
        from lakehold.spark_errors import readable
        from lakehold.sql.parse.statement import parse_subscription

        with readable():
            opening = subscribing if subscribing is not None else self._parts.subscribing
            return opening.open(parse_subscription(text, self._parts.settings.catalog_name))
