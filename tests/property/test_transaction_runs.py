"""The engine finds the same runs as a model that reads one record after the other, for any topics."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehold.ingest.envelope.header_columns import Kind
from lakehold.ingest.transactions.record_headers import HEADERS
from tests.transaction_headers import Record, model_of_runs, runs_of_headers, runs_of_records
from tests.upstream_log import Upstream

EXAMPLES = 600


def records_of(random: Random, ids: str) -> list[Record]:
    """Draw the records that killed connectors left: in any order, some unreadable, some with unknown positions."""
    upstream = Upstream(
        random,
        tables=random.randint(1, 3),
        partitions=random.randint(1, 3),
        transactions=random.randrange(12),
        ids=ids,
        sizes=random.choice([(0, 1, 1, 2, 3, 8), (8, 12)]),
        renumbers=random.random() < 0.5,
        begins_snapshot=random.random() < 0.3 and ids in ("postgres", "binlog"),
        commits_alone=ids != "postgres",
    )
    upstream.stream(random.randrange(4))
    found = [
        message.record._replace(offset=offset, sent_ms=random.randrange(100))
        for messages in upstream.topics.messages.values()
        for offset, message in enumerate(messages)
        if message.record is not None
    ]
    damage = random.choice([0.0, 0.1])
    damaged = [_damaged(random, record) if random.random() < damage else record for record in found]
    return random.sample(damaged, len(damaged))


def _damaged(random: Random, record: Record) -> Record:
    if record.kind != Kind.EVENTS or random.random() < 0.5:
        return Record(*record[:3], Kind.UNREADABLE)
    return random.choice(
        [
            record._replace(total_order=None),
            record._replace(collection_order=None),
            record._replace(position=None),
        ]
    )


def shuffled(random: Random, records: list[Record]) -> list[Record]:
    """Return records with the transactions of others and any numbers and positions, as no connector sends them."""
    events = [record for record in records if record.kind == Kind.EVENTS]
    others = random.sample(events, len(events))
    return [
        event._replace(
            transaction_id=other.transaction_id,
            total_order=random.randint(-1, 3),
            collection_order=random.choice([random.randint(-1, 3), 2**62]),
            position=random.choice(
                [other.position, (random.randrange(3), random.randrange(3), random.randrange(3), 1)]
            ),
        )
        for event, other in zip(events, others, strict=True)
    ]


@settings(max_examples=EXAMPLES, deadline=None)
@given(seed=st.integers(0, 2**32), ids=st.sampled_from(["postgres", "binlog", "gtid", "gtids"]))
def test_runs_are_those_of_the_model(seed: int, ids: str) -> None:
    records = records_of(Random(seed), ids)
    assert runs_of_records(records) == model_of_runs(records)


@settings(max_examples=EXAMPLES, deadline=None)
@given(seed=st.integers(0, 2**32), ids=st.sampled_from(["postgres", "binlog"]))
def test_runs_are_those_of_the_model_when_numbers_make_no_sense(seed: int, ids: str) -> None:
    random = Random(seed)
    records = shuffled(random, records_of(random, ids))
    assert runs_of_records(records) == model_of_runs(records)


def test_no_records_have_no_runs() -> None:
    assert runs_of_records([]) == {}


@pytest.mark.parametrize(("kind", "transaction"), [(Kind.EVENTS, "7:1"), (Kind.SNAPSHOT, None)])
def test_a_large_transaction_and_a_snapshot_are_read_once(kind: Kind, transaction: str | None) -> None:
    """Find runs of many messages: comparing each with all others would exceed the run's time limit for a test."""
    count = 300_000
    numbers, nulls = pa.array(np.arange(count)), pa.nulls(count, pa.int64())
    of_events = numbers if kind is Kind.EVENTS else nulls
    zeros = pa.array(np.zeros(count, np.int64))
    columns = [
        pa.DictionaryArray.from_arrays(zeros.cast(pa.int32()), ["t"]),
        zeros.cast(pa.int32()),
        numbers,
        zeros,
        pa.DictionaryArray.from_arrays(zeros.cast(pa.int32()), [kind]),
        pa.array([transaction] * count, pa.string()),
        of_events,
        of_events,
        *([zeros, numbers, zeros, zeros] if kind is Kind.EVENTS else [zeros] * 4),
        pa.array(np.zeros(count, bool)),
    ]
    ((run,),) = runs_of_headers(pa.Table.from_arrays(columns, schema=HEADERS)).values()
    assert (run.first, run.last, run.records) == (0, count - 1, count)
