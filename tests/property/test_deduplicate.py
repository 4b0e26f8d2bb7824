"""The engine deduplicates like a plain model of its rules, for any batch."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehold.ingest.deduplicate.change_headers import Headers
from lakehold.ingest.deduplicate.counting import statistics_of
from lakehold.ingest.deduplicate.engine import Engine, Rule
from lakehold.ingest.envelope.change_columns import KEYLESS, SNAPSHOT_PHASES, Changes, Op, Phase
from lakehold.model.high_water_marks import HighWaterMarks, Position, SnapshotProgress
from tests import deduplicate_model as model
from tests.deduplicate_model import COLUMNS, KEY, Change

POSITION = pa.struct([(part, pa.int64()) for part in "abcd"])
SCHEMA = pa.schema(
    {
        "_lh_partition": pa.int32(),
        "_lh_offset": pa.int64(),
        "_lh_op": pa.string(),
        "_lh_position": POSITION,
        "_lh_source_ms": pa.int64(),
        "_lh_phase": pa.string(),
        "_lh_kept": pa.list_(pa.string()),
        "_lh_connector": pa.string(),
        "_lh_before_missing": pa.bool_(),
        "_lh_error": pa.string(),
        "id": pa.int64(),
        "part": pa.string(),
    }
)

small = st.integers(0, 2)
positions = st.tuples(st.integers(0, 3), small, st.integers(-1, 1), st.integers(0, 1))
stream = st.tuples(st.just(Phase.STREAM.value), st.none() | positions)
snapshot = st.sampled_from([(p.value, (at, at, -1, 1)) for p in map(Phase, SNAPSHOT_PHASES) for at in (1, 2)])
ad_hoc = st.just((Phase.AD_HOC.value, None))
ops = st.sampled_from([*(op.value for op in Op), Op.UPSERT.value, Op.DELETE.value])


@st.composite
def changes(draw: st.DrawFn) -> Change:
    """Draw a change without its offset; an erroneous one has no operation."""
    phase, position = draw(st.one_of(stream, stream, snapshot, ad_hoc))
    error = draw(st.sampled_from([None, None, None, "null-key", "unknown-schema", KEYLESS]))
    # Rows of a snapshot always write.
    op = None if error else draw(ops) if phase == Phase.STREAM.value else Op.UPSERT.value
    changes_row = op in (Op.UPSERT.value, Op.DELETE.value)
    kept = draw(st.sampled_from([None, None, ["v"], ["v", "undeclared"], []])) if op == Op.UPSERT.value else None
    return Change(
        partition=draw(st.integers(0, 1)),
        offset=0,
        op=op,
        position=position,
        source_ms=draw(st.none() | small),
        phase=phase,
        kept=kept,
        connector=draw(st.sampled_from(["postgresql", None])),
        before_missing=draw(st.booleans()),
        error=error,
        id=draw(st.none() | small) if changes_row else None,
        part=draw(st.none() | st.sampled_from("ab")) if changes_row else None,
        v="__unavailable" if kept else draw(st.sampled_from(["x", "y", None])),
    )


@st.composite
def batches(draw: st.DrawFn) -> list[Change]:
    """Draw the changes of a batch, each partition's offsets ascending with gaps, in any order."""
    found, offsets = draw(st.lists(changes(), max_size=40)), {0: 0, 1: 0}
    for change in found:
        change.offset = offsets[change.partition] = offsets[change.partition] + draw(st.integers(1, 2))
    return draw(st.permutations(found))


high_water_marks = st.builds(
    HighWaterMarks,
    st.dictionaries(st.integers(0, 1), positions, max_size=2),
    st.none() | st.builds(SnapshotProgress, st.sampled_from([(1, 1, -1, 1), (2, 2, -1, 1)])),
    st.none() | small,
)


def positions_in(batch: list[Change]) -> st.SearchStrategy[Position | None]:
    return st.sampled_from([None, *sorted({change.position for change in batch if change.position is not None})])


def headers_of(batch: list[Change], *, is_multiset: bool = False) -> Headers:
    columns = {name: [getattr(change, name.removeprefix("_lh_")) for change in batch] for name in SCHEMA.names}
    columns["_lh_position"] = [
        None if p is None else dict(zip("abcd", p, strict=True)) for p in columns["_lh_position"]
    ]
    table = pa.table(columns, schema=SCHEMA)
    # Spark returns its results in pieces.
    pieces = pa.concat_tables([table.slice(0, 3), table.slice(3)])
    changes = Changes(cast("Any", None), () if is_multiset else KEY, COLUMNS, KEY if is_multiset else None)
    return Headers.of(pieces, changes)


@settings(max_examples=500, deadline=None)
@given(batches(), st.booleans(), st.booleans(), high_water_marks, st.booleans(), st.data())
def test_the_engine_deduplicates_like_the_model(
    batch: list[Change],
    skips_applied: bool,
    by_position: bool,
    before: HighWaterMarks,
    truncates: bool,
    data: st.DataObject,
) -> None:
    not_below = data.draw(positions_in(batch))
    rule, headers = Rule(skips_applied, by_position, before), headers_of(batch)
    emptying = [change for change in batch if truncates and change.op == Op.TRUNCATE.value]
    model.deduplicate(batch, rule, emptying, not_below)
    engine = Engine(headers, rule)
    decisions = engine.deduplicate(truncates=headers.is_truncate if truncates else None, not_below=not_below)
    assert decisions.counts.tolist() == [change.counts for change in batch]
    assert decisions.applied.tolist() == [change.applied for change in batch]
    givers = engine.givers(decisions, {"v"}).tolist()
    found = {row: giver for row, giver in zip(headers.kept.rows.tolist(), givers, strict=True) if giver >= 0}
    assert found == {row: batch.index(c.giver) for row, c in enumerate(batch) if c.giver is not None}
    assert statistics_of(headers, decisions, before) == model.statistics(batch, before)
    applied = [change.key for change in batch if change.applied]
    assert len(applied) == len(set(applied)), "one change per key is applied"


@settings(max_examples=300, deadline=None)
@given(batches(), high_water_marks, st.data())
def test_without_keys_a_change_counts_above_all_that_were_sent_before(
    batch: list[Change], before: HighWaterMarks, data: st.DataObject
) -> None:
    not_below = data.draw(positions_in(batch))
    for change in batch:
        change.partition = 0
    batch.sort(key=lambda change: (change.offset, change.position or (0, 0, 0, 0)))
    rule, highest = Rule(True, False, before), None
    for change in batch:
        is_unapplied = model.is_candidate(change, batch, rule, [], not_below) and model.exceeds_high_water_mark(
            change, before
        )
        change.counts = is_unapplied and change.lies_above(highest)
        if is_unapplied and change.position is not None:
            highest = max(change.position, highest or change.position)
    headers = headers_of(batch, is_multiset=True)
    decisions = Engine(headers, rule).deduplicate(not_below=not_below)
    assert decisions.counts.tolist() == [change.counts for change in batch]
    applied = [change.counts and change.changes_row for change in batch]
    assert decisions.applied.tolist() == applied, "each change is of one row"


def at(lsn: int, source_ms: int, phase: Phase = Phase.STREAM, partition: int = 0) -> Change:
    """Make a change that writes a row at a log position and a time."""
    position = (lsn, lsn, -1, 1) if phase is Phase.SNAPSHOT else (lsn - 1, lsn, 1, 1)
    return Change(
        partition, 0, Op.UPSERT.value, position, source_ms, phase.value, None, "postgresql", False, None, 0, "a", "x"
    )


APPLIED_BEFORE = HighWaterMarks({0: (99, 100, 1, 1)}, latest_ms=50)


@pytest.mark.parametrize(
    ("before", "arriving", "earlier"),
    [
        (APPLIED_BEFORE, [at(110, 60), at(120, 61)], None),
        (APPLIED_BEFORE, [at(90, 49), at(100, 50), at(110, 60)], None),
        (APPLIED_BEFORE, [at(60, 70)], 100),
        (APPLIED_BEFORE, [at(40, 69, Phase.SNAPSHOT), at(40, 69, Phase.SNAPSHOT)], 100),
        (APPLIED_BEFORE, [at(110, 60), at(105, 59), at(110, 60)], None),
        (APPLIED_BEFORE, [at(60, 70), at(120, 71)], 100),
        (HighWaterMarks(), [at(40, 10, Phase.SNAPSHOT), at(50, 12), at(60, 11)], None),
        (HighWaterMarks(), [at(50, 12), at(60, 11), at(50, 12)], None),
        (HighWaterMarks(), [at(50, 10), at(60, 11), at(40, 12)], 60),
        (HighWaterMarks(), [at(50, 10, Phase.SNAPSHOT), at(60, 11), at(30, 20, Phase.SNAPSHOT), at(40, 21)], 60),
        (HighWaterMarks(), [at(50, 10), at(30, 20, partition=1), at(60, 11)], None),
    ],
)
def test_a_log_that_went_back_is_distinguished_from_changes_that_are_sent_again(
    before: HighWaterMarks, arriving: list[Change], earlier: int | None
) -> None:
    for offset, change in enumerate(arriving):
        change.offset = change.id = offset
    headers = headers_of(arriving)
    found = statistics_of(headers, Engine(headers, Rule(True, False, before)).deduplicate(), before).went_back
    if earlier is None:
        assert found is None
    else:
        assert found is not None
        assert found.earlier[1] == earlier
        assert found.position < found.earlier


@pytest.mark.parametrize("skips_applied", [True, False])
def test_changes_of_a_key_in_several_partitions_are_ordered_by_their_positions(skips_applied: bool) -> None:
    former = [at(20, 2), at(30, 3)]
    tombstone = Change(0, 9, Op.DELETE.value, None, None, Phase.STREAM.value, None, None, False, None, 0, "a", None)
    last = at(50, 5, partition=1)
    last.kept = ["v"]
    batch = [*former, last] if skips_applied else [*former, tombstone, last]
    for offset, change in enumerate(former):
        change.offset = 7 + offset
    headers = headers_of(batch)
    engine = Engine(headers, Rule(skips_applied, True, HighWaterMarks({0: (1, 2, 1, 1)}, latest_ms=1)))
    decisions = engine.deduplicate()
    assert decisions.applied.tolist() == [change is last for change in batch]
    assert engine.givers(decisions, {"v"}).tolist() == [1 if skips_applied else 2]
