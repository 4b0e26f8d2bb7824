"""Runs made in the driver and runs made by Spark are the same, whatever the topics hold."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from lakehold.ingest.transactions.log import Kind
from lakehold.ingest.transactions.runs import COLUMNS, Record, runs_by_spark, runs_in_driver
from tests.upstream_log import Upstream

pytestmark = pytest.mark.spark


def records_of(random: Random, ids: str) -> list[Record]:
    """What a killed connector left, in any order, some of it unreadable."""
    anew = random.random() < 0.5
    upstream = Upstream(
        random,
        tables=2,
        partitions=2,
        transactions=random.randrange(12),
        ids=ids,
        numbers_anew=anew,
        commits_alone=ids != "postgres",
    )
    upstream.stream(random.randrange(4))
    found = [
        message.record._replace(offset=offset)
        for messages in upstream.topics.messages.values()
        for offset, message in enumerate(messages)
        if message.record is not None
    ]
    broken = [Record(*record[:3], Kind.UNREADABLE) if random.random() < 0.1 else record for record in found]
    return random.sample(broken, len(broken))


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), ids=st.sampled_from(["postgres", "binlog", "gtid"]))
def test_both_make_the_same_runs(spark: SparkSession, seed: int, ids: str) -> None:
    records = records_of(Random(seed), ids)
    assert runs_by_spark(spark.createDataFrame(records, COLUMNS)) == runs_in_driver(records)


@pytest.mark.parametrize(("kind", "transaction"), [(Kind.EVENTS, "'7:1'"), (Kind.SNAPSHOT, "CAST(NULL AS STRING)")])
def test_a_large_transaction_and_a_snapshot_are_gone_through_once(
    spark: SparkSession, kind: Kind, transaction: str
) -> None:
    """If each message were compared with all others this would not end before the run's time limit for a test."""
    count = 300_000
    records = spark.range(count).selectExpr(
        "'t' AS topic",
        "0 AS partition",
        "id AS offset",
        f"'{kind}' AS kind",
        f"{transaction} AS transaction_id",
        "id + 1 AS total_order",
        "id + 1 AS collection_order",
        "named_struct('a', 7L, 'b', id, 'c', 0L, 'd', 0L) AS position",
        "0L AS sent_ms",
        "false AS commits",
    )
    (runs,) = runs_by_spark(records).values()
    assert sum(run.records for run in runs) == count
