"""Readers of a directory of recorded messages, which grows, and sometimes changes in forbidden ways."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path

import pytest

from lakehold.errors import UpstreamError, UpstreamUnavailable
from lakehold.ingest.read.files import FilesReader
from lakehold.ingest.read.line_index import shared_index
from lakehold.ingest.read.lines import LineError, Message, parse
from lakehold.ingest.read.reader import Limits, ReadPlan
from lakehold.model.offsets import OffsetRange, Offsets, TopicPartition, Watermarks, from_json
from tests.doc_pages import page
from tests.recorded_files import append, line
from tests.runnable_pages import parts

LARGE = Limits(1_000, 1_000_000)
T, FILE = TopicPartition("t", 0), TopicPartition("$files/a.jsonl", 0)


def planned(reader: FilesReader, position: Offsets, limits: Limits = LARGE) -> ReadPlan:
    return reader.plan(reader.fetch_offsets(["t"]), position, limits)


def offsets(reader: FilesReader, plan: ReadPlan) -> list[int]:
    return [int(offset) for offset in reader.in_driver(plan.ranges)["offset"].to_pylist()]


def test_an_empty_directory_has_nothing_to_read(tmp_path: Path) -> None:
    assert planned(FilesReader(str(tmp_path)), {}).ranges == ()


def test_the_message_of_the_documentation_is_one() -> None:
    shown = next(part.text for part in parts(page("reference/sql.md")) if part.text.startswith('{"topic"'))
    message = parse(shown.replace("\n", "").encode())
    assert message == ("shop.public.orders", 0, 41, 1717156800000, b'{"id": 1}', None, [("trace", b"abc")])


@pytest.mark.parametrize("path", ["{}", "file:{}", "file://{}", "file://localhost{}"])
def test_paths_and_file_uris_name_the_directory(tmp_path: Path, path: str) -> None:
    directory = tmp_path / "with space"
    append(directory / "a.jsonl", [line("t", 0, 0)])
    reader = FilesReader(path.format(directory if path == "{}" else str(directory).replace(" ", "%20")))
    assert offsets(reader, planned(reader, {})) == [0]


@pytest.mark.parametrize("path", ["/nowhere/at/all", "s3://bucket/recorded", "http://[::1", "nul\0byte", "/%ff"])
def test_a_missing_directory_is_an_error(path: str) -> None:
    with pytest.raises(UpstreamError) as raised:
        FilesReader(path).fetch_offsets(["t"])
    assert raised.value.code == "directory-missing"
    assert raised.value.hint


def test_a_path_that_no_directory_can_have_cannot_be_read() -> None:
    with pytest.raises(UpstreamUnavailable, match="File name too long"):
        FilesReader("a" * 5_000).fetch_offsets(["t"])


def test_a_file_whose_name_is_not_utf8_is_an_error_until_it_is_renamed(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"\xff.jsonl")
    append(odd, [line("t", 0, 0), "no"])
    reader = FilesReader(str(tmp_path))
    with pytest.raises(UpstreamUnavailable, match="not UTF-8") as raised:
        planned(reader, {})
    assert raised.value.message == rf'"{tmp_path}/\xff.jsonl" cannot be read'
    odd.rename(tmp_path / "\u202ea\nb%2e.jsonl")
    plan = planned(reader, {})
    assert offsets(reader, plan) == [0]
    assert [bad.file for bad in reader.malformed(plan)] == ["\u202ea\nb%2e.jsonl"]


def test_links_that_lead_nowhere_or_in_a_circle_are_no_files(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", [line("t", 0, 0)])
    (tmp_path / "nowhere.jsonl").symlink_to("gone")
    (tmp_path / "circle.jsonl").symlink_to("circle.jsonl")
    (tmp_path / "again").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.jsonl")
    reader = FilesReader(str(tmp_path))
    assert offsets(reader, planned(reader, {})) == [0]


def test_a_line_is_read_once_it_is_complete(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", [line("t", 0, 0)])
    half, rest = line("t", 0, 1)[:20], line("t", 0, 1)[20:]
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write(half)
    reader = FilesReader(str(tmp_path))
    first = planned(reader, {})
    assert offsets(reader, first) == [0]
    assert planned(reader, first.position).ranges == ()

    append(tmp_path / "a.jsonl", [rest])
    second = planned(reader, first.position)
    assert offsets(reader, second) == [1]
    assert reader.malformed(second) == ()


def test_records_that_were_read_are_not_read_again(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", [line("t", 0, n) for n in range(10)])
    reader = FilesReader(str(tmp_path))
    plan = planned(reader, {}, Limits(4, 1_000_000))
    assert plan.ranges == (OffsetRange(T, 0, 4),)
    assert plan.position == {T: 4, FILE: (tmp_path / "a.jsonl").stat().st_size}
    assert offsets(reader, planned(reader, plan.position)) == [4, 5, 6, 7, 8, 9]


def test_lines_out_of_order_and_over_files_come_in_order_of_offsets(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", [line("t", 0, 8), line("t", 0, 2), line("u", 0, 1)])
    append(tmp_path / "b.jsonl", [line("t", 0, 5), line("t", 0, 1)])
    reader = FilesReader(str(tmp_path))
    position: Offsets = {}
    seen: list[int] = []
    while (plan := planned(reader, position, Limits(1, 1_000_000))).ranges:
        seen += offsets(reader, plan)
        position = plan.position
    assert seen == [1, 2, 5, 8]


def test_lines_that_are_no_message_are_returned_once_and_stop_nothing(tmp_path: Path) -> None:
    append(tmp_path / "sub" / "a.jsonl", [line("t", 0, 0), "{half", "", line("t", 0, 1), line("t", 0, 1), "[]"])
    reader = FilesReader(str(tmp_path))
    plan = planned(reader, {})
    assert offsets(reader, plan) == [0, 1]
    assert plan.records == 5
    half, again, no_object = reader.malformed(plan)
    assert (half.file, half.line_number, half.raw) == ("sub/a.jsonl", 2, b"{half")
    assert half.byte_offset == len(line("t", 0, 0)) + 1
    assert half.reason.startswith("not JSON: ")
    assert (again.line_number, again.reason) == (5, "offset 1 of partition 0 was in another line before")
    assert (no_object.line_number, no_object.reason) == (6, "not a JSON object")
    assert planned(reader, plan.position).ranges == ()


def test_a_batch_returns_a_bounded_number_of_malformed_lines(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", ["no"] * 25 + [line("t", 0, 0)])
    append(tmp_path / "b.jsonl", ["no"] * 5)
    reader = FilesReader(str(tmp_path))
    position: Offsets = {}
    counts: list[int] = []
    read: list[int] = []
    while (plan := planned(reader, position, Limits(10, 1_000_000))).ranges:
        counts.append(len(reader.malformed(plan)))
        read += offsets(reader, plan)
        position = plan.position
    assert max(counts) <= 10
    assert sum(counts) == 30
    assert read == [0]


def test_an_offset_below_the_position_is_not_read_again(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", [line("t", 0, 5)])
    reader = FilesReader(str(tmp_path))
    first = planned(reader, {})
    append(tmp_path / "a.jsonl", [line("t", 0, 5), line("t", 0, 3), line("t", 0, 6)])
    second = planned(reader, first.position)
    assert offsets(reader, second) == [6]
    assert reader.malformed(second) == ()


def test_a_file_that_was_rewritten_is_an_error(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", [line("t", 0, n) for n in range(3)])
    plan = planned(FilesReader(str(tmp_path)), {})
    (tmp_path / "a.jsonl").write_text(line("t", 0, 0, value=b"another, much longer value" * 50) + "\n")
    with pytest.raises(UpstreamError) as raised:
        planned(FilesReader(str(tmp_path)), plan.position)
    assert raised.value.code == "topic-recreated"
    assert "where no line begins any more" in raised.value.detail


def test_files_that_shrank_or_disappeared_are_errors(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", [line("t", 0, n) for n in range(3)])
    append(tmp_path / "b.jsonl", [line("u", 0, 0)])
    reader = FilesReader(str(tmp_path))
    position = planned(reader, {}).position
    (tmp_path / "a.jsonl").write_text(line("t", 0, 0) + "\n")
    (tmp_path / "b.jsonl").unlink()
    found = reader.faults(reader.fetch_offsets(["t", "u"]), position)
    assert {topic: error.code for topic, error in found.items()} == {
        "$files/a.jsonl": "topic-recreated",
        "$files/b.jsonl": "offsets-lost",
    }
    length = len(line("t", 0, 0)) + 1
    assert str(found["$files/a.jsonl"]).startswith(
        'file "a.jsonl" is not the one that was read before\n'
        f"detail: The bytes below {3 * length} were read before, but it now ends at {length}."
    )
    assert str(found["$files/b.jsonl"]).startswith(
        f'file "b.jsonl" is gone\ndetail: It was read up to byte {length}; what came after that is lost.'
    )


def test_a_file_with_another_first_line_is_an_error_until_it_is_put_back(tmp_path: Path) -> None:
    before = [line("t", 0, n) for n in range(3)]
    append(tmp_path / "a.jsonl", before)
    reader = FilesReader(str(tmp_path))
    identities = reader.fetch_offsets(["t"]).identities
    position = planned(reader, {}).position
    (tmp_path / "a.jsonl").write_text("\n".join([line("t", 0, 9), *before[1:], ""]))
    error = reader.faults(reader.fetch_offsets(["t"]), position, identities)["$files/a.jsonl"]
    assert (error.code, error.detail) == (
        "topic-recreated",
        "Its first line is not the one that it had when it was first read.",
    )
    (tmp_path / "a.jsonl").write_text("\n".join([*before, line("t", 0, 3), ""]))
    assert reader.faults(reader.fetch_offsets(["t"]), position, identities) == {}
    assert offsets(reader, planned(reader, position)) == [3]


def test_partitions_begin_and_end_where_their_lines_do(tmp_path: Path) -> None:
    append(tmp_path / "b.jsonl", [line("t", 0, 9), line("t", 1, 0), line("u", 0, 4)])
    append(tmp_path / "a.jsonl", [line("t", 0, 12), line("t", 0, 7)])
    found = FilesReader(str(tmp_path)).fetch_offsets(["t", "no-such-topic"])
    of_topics = {tp: watermarks for tp, watermarks in found.partitions.items() if not tp.is_internal}
    assert of_topics == {T: Watermarks(7, 13), TopicPartition("t", 1): Watermarks(0, 1)}
    assert found.missing == ()


def test_gaps_of_any_size_make_no_batches(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", [line("t", 0, 10**12 * n) for n in range(5)])
    reader = FilesReader(str(tmp_path))
    first = planned(reader, {}, Limits(3, 1_000_000))
    assert (first.records, first.remaining, offsets(reader, first)) == (3, 2, [0, 10**12, 2 * 10**12])
    assert offsets(reader, planned(reader, first.position)) == [3 * 10**12, 4 * 10**12]


def test_a_later_partition_may_begin_anywhere(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", [line("t", 0, 0)])
    reader = FilesReader(str(tmp_path))
    position = planned(reader, {}).position
    append(tmp_path / "b.jsonl", [line("t", 1, 70)])
    assert offsets(reader, planned(reader, position)) == [70]


def test_files_are_read_once_and_then_only_their_new_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []

    def counting(content: bytes) -> Message:
        parsed.append(content)
        return parse(content)

    monkeypatch.setattr("lakehold.ingest.read.line_index.parse", counting)
    append(tmp_path / "a.jsonl", [line("t", 0, n) for n in range(10)])
    for reader in (FilesReader(str(tmp_path)), FilesReader(str(tmp_path))):
        assert reader.fetch_offsets(["t"], ordered="t").partitions[T] == Watermarks(0, 10)
    append(tmp_path / "a.jsonl", [line("t", 0, 10)])
    assert FilesReader(str(tmp_path)).fetch_offsets(["t"]).partitions[T] == Watermarks(0, 11)
    assert len(parsed) == 11


def test_a_large_file_is_split_and_read_in_part(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", [line("tu"[n % 2], 0, n // 2) for n in range(20_000)])
    append(tmp_path / "a.jsonl", [line("t", 0, 7), line("t", 0, 10_000)])
    index = shared_index(tmp_path)
    index.grow()
    everything = index.chunks([OffsetRange(T, 0, 10_001)], parallelism=4)
    assert 4 <= len(everything) <= 8
    assert [(a.end_exclusive, b.start) for a, b in pairwise(everything) if a.end_exclusive != b.start] == []
    part = index.chunks([OffsetRange(T, 4_000, 4_010)])
    assert sum(chunk.end_exclusive - chunk.start for chunk in part) < (tmp_path / "a.jsonl").stat().st_size / 10
    reader = FilesReader(str(tmp_path))
    assert reader.in_driver([OffsetRange(T, 4_000, 4_010)])["offset"].to_pylist() == [*range(4_000, 4_010)]


@pytest.mark.parametrize(
    ("position", "expected", "bad"),
    [
        # Positions of a lake that kept no partitions for files: batch by batch, the byte up to which everything was read.
        ("{}", [("t", 0, 1), ("t", 0, 2), ("t", 0, 5), ("t", 0, 8), ("t", 1, 0), ("u", 0, 1)], [110, 110, 231]),
        (
            '{"$files/a.jsonl":{"0":0},"$files/sub/b.jsonl":{"0":0},"t":{"0":2,"1":1},"u":{"0":2}}',
            [("t", 0, 2), ("t", 0, 5), ("t", 0, 8)],
            [110, 110, 231],
        ),
        (
            '{"$files/a.jsonl":{"0":0},"$files/sub/b.jsonl":{"0":341},"t":{"0":6,"1":1},"u":{"0":2}}',
            [("t", 0, 8)],
            [110],
        ),
        ('{"$files/a.jsonl":{"0":556},"$files/sub/b.jsonl":{"0":341},"t":{"0":9,"1":1},"u":{"0":2}}', [], []),
    ],
)
def test_reading_continues_at_the_position_of_an_older_lake(
    tmp_path: Path, position: str, expected: list[tuple[str, int, int]], bad: list[int]
) -> None:
    append(tmp_path / "a.jsonl", [line("t", 0, 8), "{half", line("t", 0, 2), line("u", 0, 1)])
    append(tmp_path / "a.jsonl", [line("t", 1, 0), line("x", 0, 0)])
    append(tmp_path / "sub" / "b.jsonl", [line("t", 0, 5), "no message", line("t", 0, 1), line("t", 0, 5)])
    identities = {"$files/a.jsonl": "d8c57c98024f3ae4", "$files/sub/b.jsonl": "8c209217cf946492"}
    reader = FilesReader(str(tmp_path))
    fetched = reader.fetch_offsets(["t", "u"])
    assert reader.faults(fetched, from_json(position), identities) == {}
    plan = reader.plan(fetched, from_json(position), LARGE)
    read = reader.in_driver(plan.ranges).select(["topic", "partition", "offset"])
    assert [tuple(row.values()) for row in read.to_pylist()] == expected
    assert [line.byte_offset for line in reader.malformed(plan)] == bad
    append(tmp_path / "a.jsonl", ["more nonsense", line("t", 0, 9)])
    after = reader.plan(reader.fetch_offsets(["t", "u"]), plan.position, LARGE)
    assert offsets(reader, after) == [9]
    assert [line.raw for line in reader.malformed(after)] == [b"more nonsense"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"topic": None}, "field topic is not text"),
        ({"topic": "$files/x"}, "topic names must not begin with $files/"),
        ({"partition": "0"}, "field partition is not an integer"),
        ({"partition": True}, "field partition is not an integer"),
        ({"offset": -1}, "field offset is out of range: -1"),
        ({"partition": 2**31}, "field partition is out of range: 2147483648"),
        ({"timestamp": 1.5}, "field timestamp is not an integer"),
        ({"key": 1}, "field key is neither null nor text in base64"),
        ({"value": "YQ"}, "field value is not base64: Incorrect padding"),
        ({"value": "YQ==YQ=="}, "field value is not base64: Excess data after padding"),
        ({"headers": {}}, "field headers is not a list of \\[name, value\\] pairs"),
        ({"headers": [["a"]]}, "field headers is not a list of \\[name, value\\] pairs"),
        ({"headers": [[1, None]]}, "field headers is not a list of \\[name, value\\] pairs"),
        ({"headers": [["a", "YQ"]]}, "field headers is not base64: Incorrect padding"),
    ],
)
def test_a_bad_line_is_reported_with_the_reason(change: dict[str, object], reason: str) -> None:
    fields = json.loads(line("t", 0, 0)) | change
    with pytest.raises(LineError, match=f"^{reason.replace('$', '[$]')}$"):
        parse(json.dumps(fields).encode())


@pytest.mark.parametrize("field", ["topic", "partition", "offset", "timestamp", "key", "value"])
def test_every_field_but_the_headers_is_required(field: str) -> None:
    fields = json.loads(line("t", 0, 0))
    del fields["headers"]
    parse(json.dumps(fields).encode())
    del fields[field]
    with pytest.raises(LineError, match=f"^field {field} is missing$"):
        parse(json.dumps(fields).encode())
