"""Marks survive a snapshot's summary, and say when a connector's snapshot begins anew and when it is whole."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lakehold.ingest.judge.arrivals import Arrivals
from lakehold.ingest.marks import Marks, SnapshotProgress
from lakehold.ingest.snapshots import advanced, begins_anew, ending_at, is_passed

positions = st.tuples(*[st.integers(min_value=-1, max_value=2**62)] * 4)
snapshots = st.builds(
    SnapshotProgress,
    positions,
    st.booleans(),
    st.booleans(),
    st.none() | st.integers(min_value=0, max_value=10**9),
    st.none() | st.dictionaries(st.integers(0, 50), st.integers(0, 2**62), max_size=4),
)
marks = st.builds(
    Marks,
    st.dictionaries(st.integers(0, 50), positions, max_size=4),
    st.none() | snapshots,
    repeated=st.none() | st.text(),
)

NOTHING = Arrivals(
    records=0,
    errors=0,
    unknown_schemas=0,
    upserts=0,
    deletes=0,
    repeated=0,
    null_key_parts=0,
    kept=0,
    truncates=0,
    truncate_position=None,
    streamed_position=None,
    lowest_position=None,
    keyless=0,
    before_missing=0,
    before_missing_offset=None,
    connectors=frozenset(),
    passed={},
    snapshot_position=None,
    snapshot_end_position=None,
    key_bounds={},
)
FIRST, SECOND = (100, 100, -1, 1), (200, 200, -1, 1)
STREAMED = (150, 160, 1, 1)


@given(marks)
def test_marks_survive_the_summary(kept: Marks) -> None:
    assert Marks.from_json(kept.to_json()) == kept


def test_no_text_is_no_marks() -> None:
    assert Marks.from_json("") == Marks()
    assert Marks().is_whole


def snapshot_rows(position: tuple[int, int, int, int], *, end: bool = False) -> Arrivals:
    return replace(
        NOTHING,
        snapshot_position=position,
        lowest_position=position,
        snapshot_end_position=position if end else None,
        passed={0: position},
    )


def test_a_first_snapshot_is_whole_when_its_end_was_read_everywhere() -> None:
    begun = advanced(Marks(), snapshot_rows(FIRST), settled=True, sequence_number=None)
    assert begun.snapshot == SnapshotProgress(FIRST)
    ended_elsewhere = advanced(begun, snapshot_rows(FIRST, end=True), settled=False, sequence_number=None)
    assert not ended_elsewhere.is_whole
    whole = advanced(ended_elsewhere, NOTHING, settled=True, sequence_number=None)
    assert whole.is_whole


def test_a_snapshot_is_whole_when_all_was_read_that_was_there_as_its_end_was() -> None:
    begun = ending_at(advanced(Marks(), snapshot_rows(FIRST), settled=False, sequence_number=None), {0: 4, 1: 4})
    assert not is_passed(begun, {0: 9, 1: 9}), "its end may come in any partition yet"
    ended = ending_at(
        advanced(begun, snapshot_rows(FIRST, end=True), settled=False, sequence_number=None), {0: 8, 1: 9}
    )
    later = ending_at(advanced(ended, NOTHING, settled=False, sequence_number=None), {0: 20, 1: 20})
    assert not is_passed(later, {0: 8})
    assert not is_passed(later, {0: 20, 1: 8})
    assert is_passed(later, {0: 8, 1: 9}), "what was written meanwhile is none of it"
    whole = advanced(later, NOTHING, settled=True, sequence_number=None)
    assert whole.snapshot == SnapshotProgress(FIRST, end_seen=True, complete=True)


def test_a_snapshot_in_files_has_no_ends() -> None:
    ended = advanced(Marks(), snapshot_rows(FIRST, end=True), settled=False, sequence_number=None)
    assert ending_at(ended, {}) is ended
    assert not is_passed(ended, {})


def test_streamed_changes_end_a_snapshot_without_a_last_row() -> None:
    begun = advanced(Marks(), snapshot_rows(FIRST), settled=True, sequence_number=None)
    streamed = replace(NOTHING, streamed_position=STREAMED, lowest_position=STREAMED, passed={0: STREAMED})
    assert advanced(begun, streamed, settled=True, sequence_number=None).is_whole


def test_a_later_snapshot_replaces_what_the_table_had() -> None:
    whole = Marks({0: STREAMED}, SnapshotProgress(FIRST, end_seen=True, complete=True))
    assert begins_anew(whole, snapshot_rows(SECOND))
    anew = advanced(whole, snapshot_rows(SECOND), settled=True, sequence_number=7)
    assert anew.snapshot == SnapshotProgress(SECOND, replaces_through=7)
    assert anew.passed == {0: SECOND}


def test_a_resent_snapshot_row_begins_nothing() -> None:
    whole = Marks({0: STREAMED}, SnapshotProgress(FIRST, end_seen=True, complete=True))
    assert not begins_anew(whole, snapshot_rows(FIRST))
    assert advanced(whole, snapshot_rows(FIRST), settled=True, sequence_number=7).snapshot == whole.snapshot


def test_an_abandoned_snapshot_in_the_same_batch_is_replaced() -> None:
    both = replace(snapshot_rows(SECOND), lowest_position=FIRST)
    assert begins_anew(Marks(), both)
    assert not begins_anew(Marks(), snapshot_rows(SECOND))


def test_marks_never_go_backward() -> None:
    whole = Marks({0: STREAMED, 1: FIRST})
    earlier = replace(NOTHING, passed={0: FIRST, 2: FIRST})
    assert advanced(whole, earlier, settled=True, sequence_number=None).passed == {0: STREAMED, 1: FIRST, 2: FIRST}
