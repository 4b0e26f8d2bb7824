"""What is judged in the driver and what is judged by Spark is the same, whatever arrives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import Phase as Step
from hypothesis import strategies as st
from pyiceberg.types import LongType, StringType
from pyspark.sql import SparkSession

from lakehold.definitions import Envelope
from lakehold.ingest.changes import KEPT, OFFSET, PARTITION, Changes, Op, Phase
from lakehold.ingest.decode.types import ColumnType
from lakehold.ingest.judge.by_spark import BySpark
from lakehold.ingest.judge.in_driver import InDriver
from lakehold.ingest.judge.judging import COUNTS, WINS, Judging
from lakehold.ingest.marks import Marks, SnapshotProgress

pytestmark = pytest.mark.spark

SCHEMA = """_lh_partition int, _lh_offset bigint, _lh_op string, _lh_position struct<a:bigint,b:bigint,c:bigint,d:bigint>,
    _lh_phase string, _lh_kept array<string>, _lh_key_bytes binary, _lh_connector string, _lh_before_missing boolean,
    _lh_error string, _lh_detail string, id bigint, part string, v string"""
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
    error = draw(st.sampled_from([None, None, None, "null-key", "unknown-schema"]))
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
)
def test_both_judge_alike(
    spark: SparkSession, arriving: list[tuple[Any, ...]], envelope: Envelope, before: Marks, after: Any, not_below: Any
) -> None:
    offsets = {0: 0, 1: 0}
    rows = []
    for partition, *rest in arriving:
        rows.append((partition, offsets[partition], *rest))
        offsets[partition] += 1
    frame = spark.createDataFrame(rows, SCHEMA)
    batch = Changes(frame, ("id", "part"), COLUMNS)
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
        found.append((arrived, state))
    assert found[0] == found[1]
    winners = [(row[5], row[6]) for row in found[0][1] if row[3]]
    assert len(winners) == len(set(winners)), "a key is decided once"
