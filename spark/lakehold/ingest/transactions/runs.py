"""From what is needed of each record to runs: here for few records, as window functions for many. Both give the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from lakehold.ingest.marks import Position
from lakehold.ingest.offsets import TopicPartition
from lakehold.ingest.transactions.log import Kind, Run
from lakehold.ingest.transactions.places import place_of_event, transaction_of

Runs = dict[TopicPartition, list[Run]]


class Record(NamedTuple):
    """What is needed of one record; of events also `transaction_id`, `total_order`, `collection_order` and `position`.

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


COLUMNS = (
    "topic string, partition int, offset bigint, kind string, transaction_id string, total_order bigint,"
    " collection_order bigint, position struct<a: bigint, b: bigint, c: bigint, d: bigint>"
)
"""Of records as a DataFrame."""


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
        return True
    same = transaction_of(before.transaction_id or "") == transaction_of(record.transaction_id or "")
    return same and (record.total_order or 0) > (before.total_order or 0)


def _run(first: int, last: Record, records: int, new: int) -> Run:
    if last.kind != Kind.EVENTS:
        return Run(Kind(last.kind), first, last.offset, records)
    shown_id = last.transaction_id or ""
    return Run(
        Kind.EVENTS,
        first,
        last.offset,
        records,
        transaction_of(shown_id),
        shown_id,
        place_of_event(shown_id, last.position),
        last.position,
        new,
    )
