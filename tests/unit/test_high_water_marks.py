"""High-water marks, which survive a snapshot's summary, and show the beginning and the completion of a re-snapshot."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lakehold.ingest.deduplicate.snapshots import (
    SnapshotReadEnds,
    advanced,
    begins_snapshot,
    completed,
    ending_at,
    with_end_seen,
    without_end,
)
from lakehold.ingest.deduplicate.statistics import BatchStatistics
from lakehold.model.high_water_marks import HighWaterMarks, SnapshotProgress

positions = st.tuples(*[st.integers(min_value=-1, max_value=2**62)] * 4)
snapshots = st.builds(
    SnapshotProgress,
    positions,
    st.booleans(),
    st.booleans(),
    st.none() | st.integers(min_value=0, max_value=10**9),
    st.dictionaries(st.integers(0, 50), st.integers(0, 2**62), max_size=4),
)
high_water_marks = st.builds(
    HighWaterMarks,
    st.dictionaries(st.integers(0, 50), positions, max_size=4),
    st.none() | snapshots,
    repeated=st.none() | st.text(),
)

NOTHING = BatchStatistics(
    records=0,
    reasons={},
    upserts=0,
    deletes=0,
    repeated=0,
    null_key_parts=0,
    kept=0,
    truncates=0,
    streamed_position=None,
    lowest_position=None,
    before_missing=0,
    before_missing_offset=None,
    connectors=frozenset(),
    highest_positions={},
    snapshot_position=None,
    snapshot_ends={},
    key_bounds={},
)
FIRST, SECOND = (100, 100, -1, 1), (200, 200, -1, 1)
STREAMED = (150, 160, 1, 1)


@given(high_water_marks)
def test_high_water_marks_survive_the_summary(kept: HighWaterMarks) -> None:
    assert HighWaterMarks.from_json(kept.to_json()) == kept


def test_an_empty_text_is_no_high_water_marks() -> None:
    assert HighWaterMarks.from_json("") == HighWaterMarks()
    assert HighWaterMarks().is_whole


def snapshot_rows(position: tuple[int, int, int, int], *, partition: int = 0, end: bool = False) -> BatchStatistics:
    return replace(
        NOTHING,
        snapshot_position=position,
        lowest_position=position,
        snapshot_ends={partition: position} if end else {},
        highest_positions={partition: position},
    )


def streamed(*partitions: int) -> BatchStatistics:
    return replace(
        NOTHING,
        streamed_position=STREAMED,
        lowest_position=STREAMED,
        highest_positions=dict.fromkeys(partitions, STREAMED),
    )


def after(
    before: HighWaterMarks, arrived: BatchStatistics, sequence_number: int | None = None, **reached: int
) -> HighWaterMarks:
    """Return the high-water marks after a batch that reads partitions `p0`, `p1`, … up to offsets."""
    read_ends = SnapshotReadEnds({int(name.removeprefix("p")): at for name, at in reached.items()})
    return advanced(before, arrived, read_ends=read_ends, sequence_number=sequence_number)


COMPLETE = SnapshotProgress(FIRST, end_seen=True, complete=True)


def test_a_snapshot_in_one_partition_is_complete_with_its_last_row_whatever_follows() -> None:
    first_part = after(HighWaterMarks(), snapshot_rows(FIRST), p0=10)
    assert first_part.snapshot == SnapshotProgress(FIRST)
    assert after(first_part, snapshot_rows(FIRST, end=True), p0=20).snapshot == COMPLETE


def test_a_later_change_ends_a_snapshot_without_a_last_row() -> None:
    first_part = after(HighWaterMarks(), snapshot_rows(FIRST), p0=10)
    assert after(first_part, streamed(0), p0=20).snapshot == COMPLETE


def test_a_change_from_before_the_snapshot_does_not_end_it() -> None:
    first_part = after(HighWaterMarks(), snapshot_rows(SECOND), p0=10)
    assert not after(first_part, streamed(0), p0=20).is_whole


def test_a_snapshot_in_several_partitions_waits_for_each() -> None:
    first_part = after(HighWaterMarks(), snapshot_rows(FIRST), p0=10, p1=10, p2=0)
    ended = after(first_part, snapshot_rows(FIRST, partition=1, end=True), p0=20, p1=20, p2=0)
    assert not ended.is_whole
    assert without_end(ended, SnapshotReadEnds({0: 20, 1: 20, 2: 0})) == {0, 2}, (
        "partition 1 has nothing after the last row"
    )
    later = after(ending_at(ended, {0: 35, 2: 0}), snapshot_rows(FIRST), p0=34, p1=90, p2=0)
    assert not later.is_whole
    assert after(later, snapshot_rows(FIRST), p0=35, p1=90, p2=0).snapshot == COMPLETE


def test_a_later_change_of_a_partition_shows_that_it_has_no_more_rows() -> None:
    ended = after(HighWaterMarks(), snapshot_rows(FIRST, partition=1, end=True), p0=10, p1=10)
    known = ending_at(ended, {0: 1_000})
    assert after(known, streamed(1), p0=20, p1=20).snapshot != COMPLETE
    assert after(known, streamed(0), p0=20, p1=20).snapshot == COMPLETE


def test_a_later_change_in_one_partition_does_not_end_the_others() -> None:
    first_part = after(HighWaterMarks(), snapshot_rows(FIRST), p0=10, p1=10)
    ended = after(first_part, streamed(0), p0=20, p1=20)
    assert without_end(ended, SnapshotReadEnds({0: 20, 1: 20})) == {1}
    assert completed(ending_at(ended, {1: 20}), SnapshotReadEnds({0: 20, 1: 20})).snapshot == COMPLETE


def test_nothing_ends_a_snapshot_whose_end_was_not_seen() -> None:
    first_part = after(HighWaterMarks(), snapshot_rows(FIRST), p0=10)
    assert without_end(first_part, SnapshotReadEnds({0: 10})) == frozenset()
    assert completed(first_part, SnapshotReadEnds({0: 99})) == first_part
    assert completed(first_part, SnapshotReadEnds({0: 99}, resnapshot=SECOND)) == first_part


def test_a_batch_with_all_rows_of_a_resnapshot_completes_it() -> None:
    ended = after(HighWaterMarks(), snapshot_rows(FIRST, partition=1, end=True), p0=10, p1=10)
    assert completed(ended, SnapshotReadEnds({0: 10, 1: 10}, resnapshot=FIRST)).snapshot == COMPLETE


def test_a_resnapshot_of_a_single_row_needs_no_last_one() -> None:
    first_part = after(HighWaterMarks(), snapshot_rows(FIRST), p0=10)
    found = completed(first_part, SnapshotReadEnds({0: 10}, resnapshot=FIRST)).snapshot
    assert found is not None
    assert found.complete


def test_a_batch_with_a_resnapshot_completes_the_attempt_at_it_that_has_ended() -> None:
    """Complete a snapshot of rows without a key, whose position has the attempt."""
    attempt = (FIRST[0], FIRST[1], -1_000, 1)
    whole = SnapshotReadEnds({0: 10}, resnapshot=FIRST)
    partial = after(HighWaterMarks(), snapshot_rows(attempt), p0=10)
    assert completed(partial, whole) == partial
    ended = after(HighWaterMarks(), snapshot_rows(attempt, end=True), p0=10)
    assert completed(ended, whole).shows_snapshot
    assert not completed(partial, SnapshotReadEnds({0: 99}, resnapshot=SECOND)).shows_snapshot


def test_the_end_of_a_snapshot_is_not_that_of_a_later_one() -> None:
    both = replace(snapshot_rows(SECOND), snapshot_ends={0: FIRST}, lowest_position=FIRST)
    assert after(HighWaterMarks(), both, p0=10).snapshot == SnapshotProgress(SECOND)


def test_a_later_snapshot_replaces_the_high_water_marks_of_the_table() -> None:
    whole = HighWaterMarks({0: STREAMED}, SnapshotProgress(FIRST, end_seen=True, complete=True))
    assert begins_snapshot(whole, snapshot_rows(SECOND))
    replaced = after(whole, snapshot_rows(SECOND), 7, p0=10)
    assert replaced.snapshot == SnapshotProgress(SECOND, replaces_through=7)
    assert replaced.positions == {0: SECOND}


def test_a_resent_snapshot_row_begins_nothing() -> None:
    whole = HighWaterMarks({0: STREAMED}, SnapshotProgress(FIRST, end_seen=True, complete=True))
    assert not begins_snapshot(whole, snapshot_rows(FIRST))
    assert after(whole, snapshot_rows(FIRST), 7, p0=10).snapshot == whole.snapshot


def test_an_abandoned_snapshot_in_the_same_batch_is_replaced() -> None:
    both = replace(snapshot_rows(SECOND), lowest_position=FIRST)
    assert begins_snapshot(HighWaterMarks(), both)
    assert not begins_snapshot(HighWaterMarks(), snapshot_rows(SECOND))


def test_high_water_marks_never_go_backward() -> None:
    whole = HighWaterMarks({0: STREAMED, 1: FIRST})
    of_batch = replace(NOTHING, highest_positions={0: FIRST, 2: FIRST})
    assert after(whole, of_batch, p0=10).positions == {0: STREAMED, 1: FIRST, 2: FIRST}


def test_the_last_row_counts_more_than_an_end_that_was_fetched_before() -> None:
    first_part = after(HighWaterMarks(), snapshot_rows(FIRST), p0=10)
    ended = ending_at(with_end_seen(first_part), {0: 1_000})
    assert not after(ended, snapshot_rows(FIRST), p0=20).is_whole
    assert after(ended, snapshot_rows(FIRST, end=True), p0=30).snapshot == COMPLETE
