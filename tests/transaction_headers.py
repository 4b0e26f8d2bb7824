"""Headers of records as tests write them, and a slow model of the rule of runs, which reads one record at a time."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa

from lakehold.ingest.envelope.header_columns import Kind
from lakehold.ingest.transactions.candidate import Extent, candidate_of
from lakehold.ingest.transactions.metadata import BEGIN, END, RECORDS
from lakehold.ingest.transactions.record_headers import HEADERS
from lakehold.ingest.transactions.runs import KINDS
from lakehold.model.high_water_marks import Position
from lakehold.model.log_positions import POSTGRES_ID, WAL, LogPosition, position_in, position_of_end, transaction_of
from lakehold.model.offsets import TopicPartition


class Record(NamedTuple):
    """The fields of one record that a boundary needs, see `HEADERS`."""

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


class Boundary(NamedTuple):
    """A BEGIN or an END; `events` are those that an END counts, by data collection."""

    offset: int
    id: str
    events: Mapping[str, int] | None = None
    sent_ms: int = 0


class Run(NamedTuple):
    """A run of records, see `lakehold.ingest.transactions.runs.Runs`."""

    kind: Kind
    first: int
    last: int
    records: int
    position: Position | None
    sent_ms: int
    transaction: str = ""
    shown_id: str = ""
    log_position: LogPosition | None = None
    new: int = 0
    commits: bool = False


Runs = dict[TopicPartition, list[Run]]


def position_of_event(transaction_id: str, position: Position | None) -> LogPosition | None:
    """Return the log position at which an event's transaction commits: never after its own END, and after every earlier one."""
    if not re.match(POSTGRES_ID, transaction_id):
        return position_of_end(transaction_id)
    return None if position is None else LogPosition(WAL, (position[0] + 1,))


def records_of(boundaries: Iterable[Boundary]) -> pa.Table:
    """Return BEGINs and ENDs as `RECORDS`."""
    rows = [
        {
            "offset": b.offset,
            "sent_ms": b.sent_ms,
            "kind": BEGIN if b.events is None else END,
            "transaction_id": b.id,
            "data_collections": [
                {"data_collection": name, "event_count": count} for name, count in (b.events or {}).items()
            ],
        }
        for b in boundaries
    ]
    return pa.Table.from_pylist(rows, schema=RECORDS)


def headers_of(records: Iterable[Record]) -> pa.Table:
    """Return records as `HEADERS`, in their order."""
    rows = [
        (r.topic, r.partition, r.offset, r.sent_ms, str(r.kind), r.transaction_id, r.total_order, r.collection_order)
        + (r.position or (None,) * 4)
        + (r.commits,)
        for r in records
    ]
    columns = zip(*rows, strict=True) if rows else ((),) * len(HEADERS)
    arrays = [_array(column, field.type) for column, field in zip(columns, HEADERS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=HEADERS)


def runs_of_records(records: Collection[Record]) -> Runs:
    """Find the runs of records with the engine."""
    return runs_of_headers(headers_of(records))


def runs_of_headers(headers: pa.Table) -> Runs:
    """Find the runs of `HEADERS` with the engine."""
    partitions = {*map(TopicPartition, *(headers[name].to_pylist() for name in ("topic", "partition")))}
    candidate = candidate_of(
        Extent({}, dict.fromkeys(partitions, 0)),
        headers,
        RECORDS.empty_table(),
        frozenset(tp.topic for tp in partitions),
        "",
    )
    runs, found = candidate.runs, Runs()
    for row, number in enumerate(runs.partition.tolist()):
        is_event, log = bool(runs.is_event[row]), int(runs.log[row])
        shown_id = runs.id[row].as_py() or ""
        run = Run(
            KINDS[runs.kind[row]],
            int(runs.first[row]),
            int(runs.last[row]),
            int(runs.records[row]),
            runs.position_of(row) if runs.has_position[row] else None,
            int(runs.sent_ms[row]),
            transaction_of(shown_id) if is_event else "",
            shown_id,
            None if log < 0 else position_in(candidate.logs[log], runs.at[:, row].tolist()),
            int(runs.new[row]),
            bool(runs.commits[row]),
        )
        found.setdefault(runs.partitions[number], []).append(run)
    return found


def _array(values: Sequence[object], of: pa.DataType) -> pa.Array:
    # Arrow would infer another type from an empty dictionary.
    return pa.array(values, of.value_type).cast(of) if pa.types.is_dictionary(of) else pa.array(values, of)


def model_of_runs(records: Iterable[Record]) -> Runs:
    """Find the runs of records as the rule defines them."""
    ordered = sorted(records, key=lambda r: (r.topic, r.partition, r.offset))
    new = set(_new(ordered))
    return {
        TopicPartition(*tp): list(_runs(list(of_partition), new))
        for tp, of_partition in groupby(ordered, key=lambda r: (r.topic, r.partition))
    }


def _runs(records: Sequence[Record], new: set[Record]) -> Iterator[Run]:
    open_: list[Record] = []
    for record in [*records, None]:
        if open_ and (record is None or not _continues(open_[-1], record)):
            yield _run(open_[0].offset, open_[-1], len(open_), len(new.intersection(open_)))
            open_ = []
        if record is not None:
            open_.append(record)


def _new(records: Iterable[Record]) -> Iterator[Record]:
    """Yield the events whose number is above all earlier numbers of their transaction in the partition."""
    highest: dict[tuple[str, int, str], int] = {}
    for record in _events(records):
        of = (record.topic, record.partition, _transaction(record))
        if _number(record) > highest.get(of, 0):
            highest[of] = _number(record)
            yield record


def _events(records: Iterable[Record]) -> Iterator[Record]:
    return (record for record in records if record.kind == Kind.EVENTS)


def _transaction(record: Record) -> str:
    return transaction_of(record.transaction_id or "")


def _number(record: Record) -> int:
    return record.collection_order or 0


def _continues(before: Record, record: Record) -> bool:
    if before.kind != record.kind:
        return False
    if record.kind != Kind.EVENTS:
        return before.position == record.position
    return _transaction(before) == _transaction(record) and (record.total_order or 0) > (before.total_order or 0)


def _run(first: int, last: Record, records: int, new: int) -> Run:
    if last.kind != Kind.EVENTS:
        return Run(Kind(last.kind), first, last.offset, records, last.position, last.sent_ms)
    shown_id = last.transaction_id or ""
    log_position = position_of_event(shown_id, last.position)
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
        log_position,
        new,
        last.commits,
    )
