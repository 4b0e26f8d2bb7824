"""Batches of any size over any directory: every record and every bad line is read once."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from lakehold.ingest.read.files import FilesReader
from lakehold.ingest.read.line_index import shared_index
from lakehold.ingest.read.reader import Limits, MalformedLine, ReadPlan
from lakehold.model.offsets import Offsets
from tests.recorded_files import append, line

TOPICS = ("a", "b")
UNLIMITED = Limits(10_000, 10_000_000)

Record = tuple[str, int, int]

records = st.tuples(st.sampled_from((*TOPICS, "not-read")), st.integers(0, 2), st.integers(0, 30))
limits = st.builds(Limits, st.integers(1, 12), st.integers(1, 100), st.none() | st.floats(1, 50))


@dataclass(frozen=True)
class Recording:
    """Lines with their files; a text is a line that is no message."""

    lines: tuple[tuple[str, Record | str], ...]

    def write(self, directory: Path) -> None:
        for file, content in self.lines:
            text = content if isinstance(content, str) else line(*content, value=repr(content).encode())
            append(directory / file, [text])

    @property
    def wanted(self) -> set[Record]:
        return {content for _, content in self.lines if not isinstance(content, str) and content[0] in TOPICS}

    @property
    def nonsense(self) -> list[str]:
        return sorted(content for _, content in self.lines if isinstance(content, str))


def recordings(*, unique: bool) -> st.SearchStrategy[Recording]:
    key = (lambda one: repr(one[1])) if unique else None
    placed = st.tuples(st.sampled_from(("1.jsonl", "2.jsonl", "sub/3.jsonl")), records | st.sampled_from(["{", "no"]))
    return st.lists(placed, max_size=60, unique_by=key).map(lambda lines: Recording(tuple(lines)))


@contextmanager
def directory_of(recording: Recording) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        recording.write(Path(name))
        yield Path(name)


def another_process(directory: Path) -> FilesReader:
    """Return a reader without any cached knowledge of the directory."""
    shared_index.cache_clear()
    return FilesReader(str(directory))


def read_batch(reader: FilesReader, position: Offsets, limit: Limits) -> tuple[ReadPlan, list[Record]]:
    plan = reader.plan(reader.fetch_offsets(TOPICS), position, limit)
    table = reader.in_driver(plan.ranges)
    rows = list(zip(*(table[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True))
    assert [value.decode() for value in table["value"].to_pylist()] == [repr(row) for row in rows]
    return plan, rows


@given(recordings(unique=True), st.lists(limits, min_size=1, max_size=5), st.booleans())
@settings(deadline=None)
def test_batches_of_any_size_read_every_record_once_in_order(
    recording: Recording, sizes: list[Limits], restart: bool
) -> None:
    with directory_of(recording) as directory:
        reader = FilesReader(str(directory))
        position: Offsets = {}
        seen: list[Record] = []
        nonsense: list[MalformedLine] = []
        for turn in range(1_000):
            plan, rows = read_batch(reader, position, sizes[turn % len(sizes)])
            if not plan.ranges:
                break
            nonsense += reader.malformed(plan)
            assert plan.records == len(rows) + len(reader.malformed(plan))
            seen += rows
            position = plan.position
            reader = another_process(directory) if restart else reader

        assert sorted(seen) == sorted(recording.wanted)
        for partition in {row[:2] for row in seen}:
            offsets = [row[2] for row in seen if row[:2] == partition]
            assert offsets == sorted(offsets)
        assert sorted(one.raw.decode() for one in nonsense) == recording.nonsense
        assert plan.remaining == 0


@given(recordings(unique=False), st.lists(limits, min_size=1, max_size=5))
@settings(deadline=None)
def test_a_batch_read_again_by_another_process_is_the_same(recording: Recording, sizes: list[Limits]) -> None:
    with directory_of(recording) as directory:
        reader = FilesReader(str(directory))
        position: Offsets = {}
        seen: list[Record] = []
        for turn in range(1_000):
            plan, rows = read_batch(reader, position, sizes[turn % len(sizes)])
            if not plan.ranges:
                break
            another = another_process(directory)
            again = another.plan_to(another.fetch_offsets(TOPICS), position, plan.position)
            assert (again.ranges, again.position) == (plan.ranges, plan.position)
            assert another.in_driver(again.ranges).equals(reader.in_driver(plan.ranges))
            assert another.malformed(again) == reader.malformed(plan)
            seen += rows
            position = plan.position
        assert sorted(seen) == sorted(recording.wanted)


@given(recordings(unique=False))
@settings(deadline=None)
def test_each_line_is_a_record_or_rejected_in_one_batch(recording: Recording) -> None:
    with directory_of(recording) as directory:
        reader = FilesReader(str(directory))
        plan, rows = read_batch(reader, {}, UNLIMITED)
        ours = [c for _, c in recording.lines if isinstance(c, str) or c[0] in TOPICS]
        assert len(rows) + len(reader.malformed(plan)) == len(ours)
        assert not reader.plan(reader.fetch_offsets(TOPICS), plan.position, UNLIMITED).ranges


@given(recordings(unique=True), recordings(unique=True))
@settings(deadline=None)
def test_appended_lines_are_read_unless_their_offset_was_already_read(first: Recording, later: Recording) -> None:
    with directory_of(first) as directory:
        reader = FilesReader(str(directory))
        plan, before = read_batch(reader, {}, UNLIMITED)
        later.write(directory)
        ends = plan.position
        plan, after = read_batch(reader, ends, UNLIMITED)

        def passed(record: Record) -> bool:
            return any((tp.topic, tp.partition) == record[:2] and record[2] < end for tp, end in ends.items())

        assert set(before) == first.wanted
        assert sorted(after) == sorted(record for record in later.wanted if not passed(record))
