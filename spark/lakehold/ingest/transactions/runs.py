"""From what is needed of each record to runs: here for few records, as window functions for many. Both give the same.

An END counts what its connector sent since it began the transaction, which it numbers from 1. One that was restarted meanwhile
may go on behind what it had sent: it numbers the rest from 1 again, and END counts the rest. So the events that an END counts
are, of each topic, from the last one in the upstream's log back to where the numbers cease to fall; of those sent twice the last
sending. What was sent before the restart lies below them. As long as nothing of the rest has come of a topic, what was sent of it
before is counted instead: no message tells them apart, so such a transaction is judged when all has come that was sent before
its END (`arrival.py`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehold.ingest.marks import Position
from lakehold.ingest.offsets import TopicPartition
from lakehold.ingest.transactions.log import Kind, Run
from lakehold.ingest.transactions.places import POSTGRES_ID, place_of_event, transaction_of

_Place = tuple[int, int, int]
"""Compared from the left."""

Runs = dict[TopicPartition, list[Run]]


class Record(NamedTuple):
    """What is needed of one record; of rows of snapshots also `position` and `sent_ms`, of events all.

    `total_order` counts from 1 in the transaction, `collection_order` in the transaction's events of one table; `sent_ms` is when
    it was sent (epoch milliseconds); `commits` says of an event that it commits by itself.
    """

    topic: str
    partition: int
    offset: int
    kind: str
    transaction_id: str | None = None
    total_order: int | None = None
    collection_order: int | None = None
    position: Position | None = None
    sent_ms: int = 0
    commits: bool = False

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
            row.get("sent_ms") or 0,
            row.get("commits") or False,
        )


COLUMNS = (
    "topic string, partition int, offset bigint, kind string, transaction_id string, total_order bigint,"
    " collection_order bigint, position struct<a: bigint, b: bigint, c: bigint, d: bigint>, sent_ms bigint,"
    " commits boolean"
)
"""Of records as a DataFrame."""


_IN_PARTITION = "PARTITION BY topic, partition ORDER BY offset"
_OF_TRANSACTION = "PARTITION BY topic, partition, transaction ORDER BY offset"
_EARLIER_OF_TRANSACTION = f"{_OF_TRANSACTION} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
# Backwards: Spark computes a frame of all that follows anew for each row.
_LATER_OF_TRANSACTION = f"{_OF_TRANSACTION} DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
_BACK_IN_LOG = "PARTITION BY topic, transaction ORDER BY place DESC, collection_order DESC"

_PLACE = (
    f"CASE WHEN kind = '{Kind.EVENTS}' AND position IS NOT NULL THEN CASE WHEN transaction_id RLIKE '{POSTGRES_ID}'"
    " THEN struct(0L AS a, position.b AS b, 0L AS c) ELSE struct(position.a AS a, position.b AS b, position.c AS c) END END"
)
"""Where an event stands in the upstream's log, however often it was sent and numbered: PostgreSQL's position has its number."""


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
            f"coalesce(total_order <= lag(total_order) OVER ({_OF_TRANSACTION}), false) AS numbered_anew",
            f"{_PLACE} AS place",
        )
        .selectExpr("*", f"min(IF(numbered_anew, place, NULL)) OVER ({_LATER_OF_TRANSACTION}) AS sent_again_from")
        .selectExpr("*", "place < coalesce(sent_again_from, place) OR sent_again_from IS NULL AS is_last_sent")
        .selectExpr("*", f"count_if(begins) OVER ({_IN_PARTITION}) AS run")
        .selectExpr(
            "*",
            "IF(is_last_sent, collection_order >= min(IF(is_last_sent, collection_order, NULL))"
            f" OVER ({_BACK_IN_LOG} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), false) AS rises",
        )
        .selectExpr(
            "*",
            "CASE WHEN place IS NULL THEN is_new"
            f" ELSE is_last_sent AND count_if(rises) OVER ({_BACK_IN_LOG} ROWS UNBOUNDED PRECEDING) = 0 END AS is_counted",
        )
        .groupBy("topic", "partition", "run")
        .agg(
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
            F.count("*").alias("records"),
            F.expr("max_by(struct(kind, transaction_id, position, sent_ms, commits), offset)").alias("at_last"),
            F.expr("count_if(is_new)").alias("new"),
            F.expr("count_if(is_counted)").alias("counted"),
        )
        .orderBy("topic", "partition", "first")
    )
    found: Runs = {}
    for row in runs.toArrow().to_pylist():
        last = Record.of({**row, **row["at_last"], "offset": row["last"]})
        run = _run(row["first"], last, row["records"], row["new"], row["counted"])
        found.setdefault(TopicPartition(row["topic"], row["partition"]), []).append(run)
    return found


def runs_in_driver(records: Iterable[Record]) -> Runs:
    """The runs of each partition.

    Args:
        records: In any order.
    """
    ordered = sorted(records, key=lambda r: (r.topic, r.partition, r.offset))
    new = set(_new(ordered))
    counted = set(_counted(ordered, new))
    return {
        TopicPartition(*tp): list(_runs(list(of_partition), new, counted))
        for tp, of_partition in groupby(ordered, key=lambda r: (r.topic, r.partition))
    }


def _runs(records: Sequence[Record], new: set[Record], counted: set[Record]) -> Iterator[Run]:
    open_: list[Record] = []
    for record in [*records, None]:
        if open_ and (record is None or not _continues(open_[-1], record)):
            yield _run(
                open_[0].offset, open_[-1], len(open_), len(new.intersection(open_)), len(counted.intersection(open_))
            )
            open_ = []
        if record is not None:
            open_.append(record)


def _new(records: Iterable[Record]) -> Iterator[Record]:
    """The events whose number is above all earlier ones of the transaction in the partition."""
    highest: dict[tuple[str, int, str], int] = {}
    for record in _events(records):
        of = (record.topic, record.partition, _transaction(record))
        if _number(record) > highest.get(of, 0):
            highest[of] = _number(record)
            yield record


def _counted(records: Iterable[Record], new: set[Record]) -> Iterator[Record]:
    """The events that ENDs count; where the place in the upstream's log is unknown, those with new numbers."""
    of_topics: defaultdict[tuple[str, str], list[tuple[_Place, Record]]] = defaultdict(list)
    of_partitions: defaultdict[tuple[str, int, str], list[Record]] = defaultdict(list)
    for record in _events(records):
        of_partitions[record.topic, record.partition, _transaction(record)].append(record)
    for (topic, _, transaction), sent in of_partitions.items():
        of_topics[topic, transaction] += _last_sent(sent)
        yield from (record for record in sent if _place(record) is None and record in new)
    for sent_last in of_topics.values():
        before: int | None = None
        for _, record in sorted(sent_last, key=lambda each: (each[0], _number(each[1])), reverse=True):
            if before is not None and _number(record) >= before:
                break
            before = _number(record)
            yield record


def _last_sent(sent: Sequence[Record]) -> Iterator[tuple[_Place, Record]]:
    """The events of one transaction in one partition without those that were sent again, with their places."""
    again_from: _Place | None = None
    for record, before in zip(reversed(sent), [*reversed(sent[:-1]), None], strict=True):
        place = _place(record)
        if place is None:
            continue
        if again_from is None or place < again_from:
            yield place, record
        if before is not None and (record.total_order or 0) <= (before.total_order or 0):
            again_from = place if again_from is None else min(place, again_from)


def _events(records: Iterable[Record]) -> Iterator[Record]:
    return (record for record in records if record.kind == Kind.EVENTS)


def _transaction(record: Record) -> str:
    return transaction_of(record.transaction_id or "")


def _number(record: Record) -> int:
    return record.collection_order or 0


def _place(record: Record) -> _Place | None:
    if record.position is None:
        return None
    a, b, c, _ = record.position
    return (0, b, 0) if re.match(POSTGRES_ID, record.transaction_id or "") else (a, b, c)


def _continues(before: Record, record: Record) -> bool:
    if before.kind != record.kind:
        return False
    if record.kind != Kind.EVENTS:
        return before.position == record.position
    return _transaction(before) == _transaction(record) and (record.total_order or 0) > (before.total_order or 0)


def _run(first: int, last: Record, records: int, new: int, counted: int) -> Run:
    if last.kind != Kind.EVENTS:
        return Run(Kind(last.kind), first, last.offset, records, last.position, last.sent_ms)
    shown_id = last.transaction_id or ""
    place = place_of_event(shown_id, last.position)
    transaction = transaction_of(shown_id)
    return Run(
        Kind.EVENTS,
        first,
        last.offset,
        records,
        last.position,
        last.sent_ms,
        transaction,
        shown_id,
        place,
        new,
        counted,
        last.commits,
    )
