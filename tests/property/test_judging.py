"""What is judged in the driver and what is judged by Spark is the same, whatever arrives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import Phase as Step
from hypothesis import strategies as st
from pyiceberg.types import LongType, StringType
from pyspark.sql import SparkSession

from lakehold.definitions import Envelope
from lakehold.ingest.changes import KEPT, KEYLESS, OFFSET, PARTITION, Changes, Op, Phase
from lakehold.ingest.decode.types import ColumnType
from lakehold.ingest.judge.by_spark import BySpark
from lakehold.ingest.judge.in_driver import InDriver
from lakehold.ingest.judge.judging import COUNTS, WINS, Judging
from lakehold.ingest.marks import Marks, SnapshotProgress

pytestmark = pytest.mark.spark

SCHEMA = """_lh_partition int, _lh_offset bigint, _lh_op string, _lh_position struct<a:bigint,b:bigint,c:bigint,d:bigint>,
    _lh_source_ms bigint, _lh_phase string, _lh_kept array<string>, _lh_key_bytes binary, _lh_connector string,
    _lh_before_missing boolean, _lh_error string, _lh_detail string, id bigint, part string, v string"""
COLUMNS = (ColumnType("id", LongType()), ColumnType("part", StringType()), ColumnType("v", StringType()))

small = st.integers(0, 2)
positions = st.tuples(st.integers(0, 3), small, st.integers(-1, 1), st.integers(0, 1))
stream = st.tuples(st.just(Phase.STREAM.value), st.none() | positions)
snapshot = st.sampled_from([(p.value, (at, at, -1, 1)) for p in (Phase.SNAPSHOT, Phase.SNAPSHOT_END) for at in (1, 2)])
ad_hoc = st.just((Phase.AD_HOC.value, None))
ops = st.sampled_from([*(op.value for op in Op), Op.UPSERT.value, Op.DELETE.value])


@st.composite
def changes(draw: st.DrawFn) -> tuple[Any, ...]:
    """One change without its offset; one in error has no operation."""
    phase, position = draw(st.one_of(stream, stream, snapshot, ad_hoc))
    error = draw(st.sampled_from([None, None, None, "null-key", "unknown-schema", KEYLESS]))
    # Rows of a snapshot are read ones: they write.
    op = None if error else draw(ops) if phase == Phase.STREAM.value else Op.UPSERT.value
    of_row = op in (Op.UPSERT.value, Op.DELETE.value)
    key = (draw(st.none() | small), draw(st.none() | st.sampled_from("ab"))) if of_row else (None, None)
    kept = draw(st.sampled_from([None, None, ["v"]])) if op == Op.UPSERT.value else None
    value = "__unavailable" if kept else draw(st.sampled_from(["x", "y", None]))
    return (
        draw(st.integers(0, 1)),
        op,
        position,
        draw(st.none() | small),
        phase,
        kept,
        b"key",
        draw(st.sampled_from(["postgresql", None])),
        draw(st.booleans()),
        error,
        None,
        *key,
        value,
    )


marks = st.builds(
    Marks,
    st.dictionaries(st.integers(0, 1), positions, max_size=2),
    st.none() | st.builds(SnapshotProgress, st.sampled_from([(1, 1, -1, 1), (2, 2, -1, 1)])),
)


# Each example is a handful of Spark jobs, so a failing one is shown as it was found.
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Step.explicit, Step.reuse, Step.generate),
)
@given(
    arriving=st.lists(changes(), min_size=1, max_size=40),
    envelope=st.sampled_from([Envelope.DEBEZIUM, Envelope.DEBEZIUM, Envelope.DEBEZIUM_UPSERT, Envelope.UPSERT]),
    before=marks,
    after=st.none() | positions,
    not_below=st.none() | positions,
    by_position=st.booleans(),
)
def test_both_judge_alike(
    spark: SparkSession,
    arriving: list[tuple[Any, ...]],
    envelope: Envelope,
    before: Marks,
    after: Any,
    not_below: Any,
    by_position: bool,
) -> None:
    offsets = {0: 0, 1: 0}
    rows = []
    for partition, *rest in arriving:
        rows.append((partition, offsets[partition], *rest))
        offsets[partition] += 1
    frame = spark.createDataFrame(rows, SCHEMA)
    batch = Changes(frame, ("id", "part"), COLUMNS, by_position=by_position)
    found = []
    judging: Judging
    for judging in (InDriver(batch, envelope, before), BySpark(batch, envelope, before)):
        arrived = judging.judge(after=after, not_below=not_below)
        judging.fill()
        shown = judging.frame().select(PARTITION, OFFSET, COUNTS, WINS, KEPT, "id", "part", "v")
        state = sorted(
            (tuple(row) if row[KEPT] else (*row[:4], None, *row[5:]) for row in shown.collect()),
            key=lambda row: row[:2],
        )
        judging.release()
        found.append((replace(arrived, went_back=None), state))
    assert found[0] == found[1]
    winners = [(row[5], row[6]) for row in found[0][1] if row[3]]
    assert len(winners) == len(set(winners)), "a key is decided once"


def at(lsn: int, source_ms: int, phase: Phase = Phase.STREAM, partition: int = 0) -> tuple[Any, ...]:
    """A row written at a place and a time."""
    place = (lsn, lsn, -1, 1) if phase is Phase.SNAPSHOT else (lsn - 1, lsn, 1, 1)
    return (partition, Op.UPSERT.value, place, source_ms, phase.value, None, b"key", "postgresql", False, None, None)


PASSED = Marks({0: (99, 100, 1, 1)}, latest_ms=50)


@pytest.mark.parametrize(
    ("before", "arriving", "passed"),
    [
        (PASSED, [at(110, 60), at(120, 61)], None),
        (PASSED, [at(90, 49), at(100, 50), at(110, 60)], None),
        (PASSED, [at(60, 70)], 100),
        (PASSED, [at(40, 69, Phase.SNAPSHOT), at(40, 69, Phase.SNAPSHOT)], 100),
        (PASSED, [at(110, 60), at(105, 59), at(110, 60)], None),
        (Marks(), [at(40, 10, Phase.SNAPSHOT), at(50, 12), at(60, 11)], None),
        (Marks(), [at(50, 12), at(60, 11), at(50, 12)], None),
        (Marks(), [at(50, 10), at(60, 11), at(40, 12)], 60),
        (Marks(), [at(50, 10, Phase.SNAPSHOT), at(60, 11), at(30, 20, Phase.SNAPSHOT), at(40, 21)], 60),
        (Marks(), [at(50, 10), at(30, 20, partition=1), at(60, 11)], None),
    ],
)
def test_a_log_that_went_back_is_told_from_changes_that_are_sent_again(
    spark: SparkSession, before: Marks, arriving: list[tuple[Any, ...]], passed: int | None
) -> None:
    rows = [(row[0], offset, *row[1:], offset, "a", "x") for offset, row in enumerate(arriving)]
    batch = Changes(spark.createDataFrame(rows, SCHEMA), ("id", "part"), COLUMNS)
    judging: Judging
    for judging in (InDriver(batch, Envelope.DEBEZIUM, before), BySpark(batch, Envelope.DEBEZIUM, before)):
        found = judging.judge().went_back
        judging.release()
        if passed is None:
            assert found is None
        else:
            assert found is not None
            assert found.passed[1] == passed
            assert found.position < found.passed


@pytest.mark.parametrize("envelope", [Envelope.DEBEZIUM, Envelope.DEBEZIUM_UPSERT])
def test_changes_of_a_key_in_several_partitions_are_ordered_by_their_positions(
    spark: SparkSession, envelope: Envelope
) -> None:
    kept = (1, Op.UPSERT.value, (40, 50, 1, 1), 5, Phase.STREAM.value, ["v"], b"key", "postgresql", False, None, None)
    tombstone = (0, Op.DELETE.value, None, None, Phase.STREAM.value, None, b"key", None, False, None, None)
    moved = [
        (*at(20, 2)[:1], 7, *at(20, 2)[1:], 1, "a", "old"),
        (*at(30, 3)[:1], 8, *at(30, 3)[1:], 1, "a", "kept"),
        (tombstone[0], 9, *tombstone[1:], 1, "a", None),
        (kept[0], 0, *kept[1:], 1, "a", "__unavailable"),
    ]
    before = Marks({0: (1, 2, 1, 1)}, latest_ms=1)
    frame = spark.createDataFrame(moved if envelope is Envelope.DEBEZIUM_UPSERT else moved[:2] + moved[3:], SCHEMA)
    batch = Changes(frame, ("id", "part"), COLUMNS, by_position=True)
    judging: Judging
    for judging in (InDriver(batch, envelope, before), BySpark(batch, envelope, before)):
        judging.judge()
        judging.fill()
        (wins,) = judging.frame().filter(WINS).collect()
        judging.release()
        assert (wins[PARTITION], wins[OFFSET]) == (1, 0)
        assert wins["v"] == ("kept" if envelope is Envelope.DEBEZIUM else None)
