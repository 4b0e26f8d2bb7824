"""From what is needed of each record to runs: here for few records, as window functions for many. Both give the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehold.ingest.marks import Position
from lakehold.ingest.offsets import TopicPartition
from lakehold.ingest.transactions.log import Kind, Run
from lakehold.ingest.transactions.places import POSTGRES_ID, place_of_event, transaction_of

Runs = dict[TopicPartition, list[Run]]


class Record(NamedTuple):
    """What is needed of one record; of rows of snapshots also `position`, of events all.

    `total_order` counts from 1 in the transaction, `collection_order` in the transaction's events of one table; a MySQL connector
    that was restarted amid a transaction begins both anew.
    """

    topic: str
    partition: int
    offset: int
    kind: str
    transaction_id: str | None = None
    total_order: int | None = None
    collection_order: int | None = None
    position: Position | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Record:
        """The record that a row of `COLUMNS` says; what the row lacks is null."""
        position = row.get("position")
        return cls(
            row["topic"],
            row["partition"],
            row["offset"],
            row["kind"],
            row["transaction_id"],
            row.get("total_order"),
            row.get("collection_order"),
            None if position is None else (position["a"], position["b"], position["c"], position["d"]),
        )


COLUMNS = (
    "topic string, partition int, offset bigint, kind string, transaction_id string, total_order bigint,"
    " collection_order bigint, position struct<a: bigint, b: bigint, c: bigint, d: bigint>"
)
"""Of records as a DataFrame."""


_IN_PARTITION = "PARTITION BY topic, partition ORDER BY offset"
_EARLIER_OF_TRANSACTION = (
    "PARTITION BY topic, partition, transaction ORDER BY offset ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
)


def runs_by_spark(records: DataFrame) -> Runs:
    """The runs of each partition.

    Args:
        records: `COLUMNS`.
    """
    transaction = f"coalesce(nullif(regexp_extract(transaction_id, '{POSTGRES_ID}', 1), ''), transaction_id)"
    runs = (
        records.selectExpr("*", f"{transaction} AS transaction")
        .selectExpr(
            "*",
            f"NOT (kind <=> lag(kind) OVER ({_IN_PARTITION})) OR NOT (transaction <=> lag(transaction) OVER ({_IN_PARTITION}))"
            f" OR coalesce(total_order <= lag(total_order) OVER ({_IN_PARTITION}), false)"
            f" OR (kind <> '{Kind.EVENTS}' AND NOT (position <=> lag(position) OVER ({_IN_PARTITION}))) AS begins",
            f"collection_order > coalesce(max(collection_order) OVER ({_EARLIER_OF_TRANSACTION}), 0) AS is_new",
        )
        .selectExpr("*", f"count_if(begins) OVER ({_IN_PARTITION}) AS run")
        .groupBy("topic", "partition", "run")
        .agg(
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
            F.count("*").alias("records"),
            F.expr("max_by(struct(kind, transaction_id, position), offset)").alias("at_last"),
            F.expr("count_if(is_new)").alias("new"),
        )
        .orderBy("topic", "partition", "first")
    )
    found: Runs = {}
    for row in runs.toArrow().to_pylist():
        run = _run(
            row["first"], Record.of({**row, **row["at_last"], "offset": row["last"]}), row["records"], row["new"]
        )
        found.setdefault(TopicPartition(row["topic"], row["partition"]), []).append(run)
    return found


def runs_in_driver(records: Iterable[Record]) -> Runs:
    """The runs of each partition.

    Args:
        records: In any order.
    """
    ordered = sorted(records, key=lambda r: (r.topic, r.partition, r.offset))
    return {
        TopicPartition(*tp): list(_runs(list(of_partition)))
        for tp, of_partition in groupby(ordered, key=lambda r: (r.topic, r.partition))
    }


def _runs(records: Sequence[Record]) -> Iterator[Run]:
    highest: dict[str, int] = {}
    open_: list[Record] = []
    new = 0
    for record in records:
        if open_ and not _continues(open_[-1], record):
            yield _run(open_[0].offset, open_[-1], len(open_), new)
            open_, new = [], 0
        open_.append(record)
        if record.kind == Kind.EVENTS:
            transaction, order = transaction_of(record.transaction_id or ""), record.collection_order or 0
            new += order > highest.get(transaction, 0)
            highest[transaction] = max(order, highest.get(transaction, 0))
    if open_:
        yield _run(open_[0].offset, open_[-1], len(open_), new)


def _continues(before: Record, record: Record) -> bool:
    if before.kind != record.kind:
        return False
    if record.kind != Kind.EVENTS:
        return before.position == record.position
    same = transaction_of(before.transaction_id or "") == transaction_of(record.transaction_id or "")
    return same and (record.total_order or 0) > (before.total_order or 0)


def _run(first: int, last: Record, records: int, new: int) -> Run:
    if last.kind != Kind.EVENTS:
        return Run(Kind(last.kind), first, last.offset, records, last.position)
    shown_id = last.transaction_id or ""
    place = place_of_event(shown_id, last.position)
    return Run(Kind.EVENTS, first, last.offset, records, last.position, transaction_of(shown_id), shown_id, place, new)
