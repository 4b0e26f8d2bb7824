"""A directory of recorded messages, as it grows, and as it should not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakehold.errors import UpstreamError
from lakehold.ingest.read.files import FilesReader
from lakehold.ingest.read.lines import LineError, file_partition, parse
from lakehold.ingest.read.reader import Limits, ReadPlan
from lakehold.model.offsets import Offsets, TopicPartition
from tests.recorded_files import append, line

LARGE = Limits(1_000, 1_000_000)
FILE = file_partition("a.jsonl")


def planned(reader: FilesReader, position: Offsets, limits: Limits = LARGE) -> ReadPlan:
    return reader.plan(reader.look(["t"]), position, limits)


def offsets(reader: FilesReader, plan: ReadPlan) -> list[int]:
    return [int(offset) for offset in reader.in_driver(plan.ranges)["offset"].to_pylist()]


def test_an_empty_directory_has_nothing_to_read(tmp_path: Path) -> None:
    assert planned(FilesReader(str(tmp_path)), {}).ranges == ()


@pytest.mark.parametrize("path", ["{}", "file:{}", "file://{}", "file://localhost{}"])
def test_paths_and_file_uris_name_the_directory(tmp_path: Path, path: str) -> None:
    directory = tmp_path / "with space"
    append(directory / "a.jsonl", [line("t", 0, 0)])
    reader = FilesReader(path.format(directory if path == "{}" else str(directory).replace(" ", "%20")))
    assert offsets(reader, planned(reader, {})) == [0]


@pytest.mark.parametrize("path", ["/nowhere/at/all", "s3://bucket/recorded"])
def test_a_directory_that_is_not_there_is_an_error(path: str) -> None:
    with pytest.raises(UpstreamError) as raised:
        FilesReader(path).look(["t"])
    assert raised.value.code == "directory-missing"
    assert raised.value.hint


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
    assert reader.malformed(second.ranges) == ()


def test_what_was_read_is_not_read_again(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", [line("t", 0, n) for n in range(10)])
    plan = planned(FilesReader(str(tmp_path)), {}, Limits(4, 1_000_000))
    assert plan.position == {TopicPartition("t", 0): 4, FILE: sum(len(line("t", 0, n)) + 1 for n in range(4))}


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


def test_lines_that_are_no_message_are_given_out_once_and_stop_nothing(tmp_path: Path) -> None:
    append(tmp_path / "sub" / "a.jsonl", [line("t", 0, 0), "{half", "", line("t", 0, 1), line("t", 0, 1), "[]"])
    reader = FilesReader(str(tmp_path))
    plan = planned(reader, {})
    assert offsets(reader, plan) == [0, 1]
    assert plan.malformed == 3
    half, again, no_object = reader.malformed(plan.ranges)
    assert (half.file, half.line_number, half.raw) == ("sub/a.jsonl", 2, b"{half")
    assert half.byte_offset == len(line("t", 0, 0)) + 1
    assert half.reason.startswith("no JSON: ")
    assert (again.line_number, again.reason) == (5, "offset 1 of partition 0 was in another line before")
    assert (no_object.line_number, no_object.reason) == (6, "no JSON object")
    assert planned(reader, plan.position).ranges == ()


def test_a_batch_gives_out_a_bounded_number_of_malformed_lines(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", ["no"] * 25 + [line("t", 0, 0)])
    append(tmp_path / "b.jsonl", ["no"] * 5)
    reader = FilesReader(str(tmp_path))
    position: Offsets = {}
    counts: list[int] = []
    read: list[int] = []
    while (plan := planned(reader, position, Limits(10, 1_000_000))).ranges:
        counts.append(len(reader.malformed(plan.ranges)))
        read += offsets(reader, plan)
        position = plan.position
    assert counts == [10, 10, 10]
    assert read == [0]


def test_an_offset_that_was_passed_is_skipped_and_counted(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", [line("t", 0, 5)])
    reader = FilesReader(str(tmp_path))
    first = planned(reader, {})
    append(tmp_path / "a.jsonl", [line("t", 0, 5), line("t", 0, 3), line("t", 0, 6)])
    second = planned(reader, first.position)
    assert offsets(reader, second) == [6]
    assert second.skipped == 2
    assert reader.malformed(second.ranges) == ()
    assert planned(reader, second.position).skipped == 0


def test_a_file_that_was_rewritten_is_an_error(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", [line("t", 0, n) for n in range(3)])
    plan = planned(FilesReader(str(tmp_path)), {})
    (tmp_path / "a.jsonl").write_text(line("t", 0, 0, value=b"another, much longer value" * 50) + "\n")
    with pytest.raises(UpstreamError) as raised:
        planned(FilesReader(str(tmp_path)), plan.position)
    assert raised.value.code == "topic-recreated"
    assert "where no line begins any more" in raised.value.detail


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"topic": None}, "field topic is no text"),
        ({"topic": "$files/x"}, "topic names must not begin with $files/"),
        ({"partition": "0"}, "field partition is no integer"),
        ({"partition": True}, "field partition is no integer"),
        ({"offset": -1}, "field offset is out of range: -1"),
        ({"partition": 2**31}, "field partition is out of range: 2147483648"),
        ({"timestamp": 1.5}, "field timestamp is no integer"),
        ({"key": 1}, "field key is neither null nor text in base64"),
        ({"value": "YQ"}, "field value is not base64: Incorrect padding"),
        ({"value": "YQ==YQ=="}, "field value is not base64: Excess data after padding"),
        ({"headers": {}}, "field headers is no list of \\[name, value\\] pairs"),
        ({"headers": [["a"]]}, "field headers is no list of \\[name, value\\] pairs"),
        ({"headers": [[1, None]]}, "field headers is no list of \\[name, value\\] pairs"),
        ({"headers": [["a", "YQ"]]}, "field headers is not base64: Incorrect padding"),
    ],
)
def test_a_line_says_what_is_wrong_with_it(change: dict[str, object], reason: str) -> None:
    fields = json.loads(line("t", 0, 0)) | change
    with pytest.raises(LineError, match=f"^{reason.replace('$', '[$]')}$"):
        parse(json.dumps(fields).encode())


@pytest.mark.parametrize("field", ["topic", "partition", "offset", "timestamp", "key", "value"])
def test_every_field_but_the_headers_is_needed(field: str) -> None:
    fields = json.loads(line("t", 0, 0))
    del fields["headers"]
    parse(json.dumps(fields).encode())
    del fields[field]
    with pytest.raises(LineError, match=f"^field {field} is missing$"):
        parse(json.dumps(fields).encode())
