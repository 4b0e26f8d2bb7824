"""Damaged files of a FILES source: each complete line is a message or a reported line, and none takes a good one along."""

from __future__ import annotations

import base64
import json
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa

from lakehold.ingest.read.file_chunks import CHUNK_SCHEMA, chunk_reader, wanted_of
from lakehold.ingest.read.files import FilesReader
from lakehold.ingest.read.line_index import shared_index
from lakehold.ingest.read.lines import LineError, parse
from lakehold.ingest.read.reader import Limits, MalformedLine
from lakehold.model.offsets import Offsets, from_json, to_json
from tests import recorded_files
from tests.fuzz.faults import Fault, Tried
from tests.fuzz.mutations import ODD_TEXTS, damaged, other_json

_DIRECTORIES = 20
_LINES = 60
_DAMAGED_SHARE = 0.3
_UNLIMITED = Limits(10**6, 10**12)
_ODD_NAMES = [
    "a", "", ".", "..", "$files", "a b", "a%2e", "a#b", "a?b", "a\nb", "a\u202eb", "'", '"', "`", "\\", "é", "e\u0301", "😀",
    "a" * 240,
]  # fmt: skip
"""Names of files, without their suffix."""

_Record = tuple[str, int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


@dataclass(frozen=True)
class _Found:
    """The records and the reported lines that a reader found in a directory."""

    records: tuple[_Record, ...]
    malformed: tuple[MalformedLine, ...]


def tried(chance: Random) -> Iterator[Tried]:
    """Read damaged directories for ever, 20 at a time."""
    while True:
        faults: list[Fault] = []
        counts: Counter[str] = Counter()
        for _ in range(_DIRECTORIES):
            with tempfile.TemporaryDirectory() as name:
                contents, undamaged = _contents(chance)
                for file, content in contents.items():
                    path = Path(name) / file
                    path.parent.mkdir(exist_ok=True)
                    path.write_bytes(content)
                given = "\n".join(f"{file!r}: {content!r}" for file, content in contents.items())
                try:
                    faults += [Fault(given, found) for found in _wrong(name, contents, undamaged, chance, counts)]
                except BaseException:  # noqa: BLE001 - whatever is raised is what is looked for
                    faults.append(Fault(given, traceback.format_exc()))
        yield Tried(sum(counts.values()), tuple(faults), counts)


def _contents(chance: Random) -> tuple[Mapping[str, bytes], Set[bytes]]:
    """Make up the files of a directory by name, in the order in which they are read. Returns also the undamaged lines."""
    names = sorted(
        f"{chance.choice(['', '', 'sub/'])}{chance.choice(_ODD_NAMES)}.jsonl" for _ in range(chance.randint(1, 3))
    )
    files = {name: b"" for name in names}
    offsets: Counter[tuple[str, int]] = Counter()
    lines: list[bytes] = []
    for _ in range(_LINES):
        topic, partition = chance.choice("ab"), chance.randrange(3)
        offset = offsets[topic, partition] = offsets[topic, partition] + chance.choice([1, 1, 1, 1, 5, 10**9])
        headers = [("h", chance.choice([None, b"", b"\0\xff"]))] * chance.choice([0, 0, 1, 3])
        value = chance.choice([None, b"", chance.randbytes(20)])
        lines.append(recorded_files.line(topic, partition, offset, value, timestamp=chance.choice([-1, 0, 10**12]),
                                         headers=headers).encode())  # fmt: skip
    undamaged = {*lines}
    for at, line in enumerate(lines):
        if chance.random() < _DAMAGED_SHARE:
            lines[at] = _bad(line, lines, chance)
    ends = [b"\n"] * 9 + [b"\r\n"]
    for line in lines:
        files[chance.choice(names)] += line + chance.choice(ends)
    return {name: content[: -chance.choice([0, 0, 1, 30]) or None] for name, content in files.items()}, undamaged


def _bad(line: bytes, others: Sequence[bytes], chance: Random) -> bytes:
    """Damage a line."""
    fields = json.loads(line) if line.startswith(b"{") and chance.random() < 0.5 else None
    if isinstance(fields, dict):
        name = chance.choice(["topic", "partition", "offset", "timestamp", "key", "value", "headers", "other"])
        odd = [
            *_NUMBERS,
            *ODD_TEXTS,
            None,
            True,
            [],
            {},
            [[]],
            [["h"]],
            [["h", 1]],
            [[1, None]],
            [["h", None, None]],
            _deep(200),
        ]
        fields[name] = chance.choice(odd)
        return json.dumps(fields, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")
    changes: list[Callable[[], bytes]] = [
        lambda: damaged(line, others, chance),
        lambda: other_json(line, chance),
        lambda: chance.choice(others),
        lambda: b"\xef\xbb\xbf" + line,
        lambda: line.decode(errors="replace").encode("utf-16"),
        lambda: line[:-1] + b"\0" + line[-1:],
        lambda: line + line,
        lambda: b"\r" + line + b"\r\r",
        lambda: b" \t\x0b\x0c\r",
        lambda: b"[" * 5_000 + b"]" * 5_000,
        lambda: line.replace(b'"offset": ', b'"offset": 1e3, "offset": -'),
        lambda: line.replace(b"=", b""),
    ]
    return chance.choice(changes)()


_NUMBERS = [-1, 0, 1.0, 2**31 - 1, 2**31, 2**63 - 2, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 1e308]


def _deep(levels: int) -> object:
    found: object = None
    for _ in range(levels):
        found = [found]
    return found


def _wrong(
    directory: str, contents: Mapping[str, bytes], undamaged: Set[bytes], chance: Random, counts: Counter[str]
) -> Iterator[str]:
    """Read a directory in several ways; yield the differences from what its lines say."""
    lines = {(file, at): line for file, content in contents.items() for at, line in _lines(content) if line.strip()}
    expected: dict[tuple[str, int, int], _Record] = {}
    bad, repeats = set(), set()
    for place, line in lines.items():
        try:
            message = parse(line)
        except LineError:
            bad.add(place)
            if line in undamaged:
                yield f"refused: {line!r}"
            continue
        if (read := _read_again(line)) != message[:6]:
            yield f"read as {message}: {read}"
        if message[:3] in expected:
            repeats.add(place)
        else:
            expected[message[:3]] = (*message[:6], tuple(message.headers or ()))
    topics = {topic for topic, _, _ in expected}
    counts.update(records=len(expected), malformed=len(bad), repeats=len(repeats))
    whole = _read(directory, topics, [_UNLIMITED], chance)
    in_parts = _read(
        directory, topics, [Limits(chance.randint(1, 9), chance.randint(1, 900)) for _ in range(3)], chance
    )
    for how, found in (("at once", whole), ("in parts", in_parts)):
        if {*found.records} != {*expected.values()} or len(found.records) != len(expected):
            yield f"{how}: records {sorted({*found.records} ^ {*expected.values()}, key=repr)}"
        places = {(reported.file, reported.byte_offset) for reported in found.malformed}
        if len(places) != len(found.malformed) or not bad <= places <= bad | repeats:
            yield f"{how}: malformed {places ^ bad}"
        for reported in found.malformed:
            number = contents[reported.file][: reported.byte_offset].count(b"\n") + 1
            if not reported.reason or (reported.raw, reported.line_number) != (
                lines[reported.file, reported.byte_offset],
                number,
            ):
                yield f"{how}: reported as {reported}"
    if {(reported.file, reported.byte_offset) for reported in whole.malformed} != bad | repeats:
        yield "repeats were not reported"


def _read_again(line: bytes) -> tuple[object, ...]:
    """Read a message with Python's own functions."""
    fields = json.loads(line.decode())
    texts = (fields["key"], fields["value"])
    values = (None if text is None else base64.b64decode(text, validate=True) for text in texts)
    return (*(fields[name] for name in ("topic", "partition", "offset", "timestamp")), *values)


def _lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the complete lines of a file with their positions."""
    start = 0
    for line in content.split(b"\n")[:-1]:
        yield start, line.rstrip(b"\r")
        start += len(line) + 1


def _read(directory: str, topics: set[str], limits: Sequence[Limits], chance: Random) -> _Found:
    """Read a directory in batches, whose positions are stored in between, each by the driver and as executors read."""
    shared_index.cache_clear()
    reader = FilesReader(directory)
    position: Offsets = {}
    records: list[_Record] = []
    malformed: list[MalformedLine] = []
    while (plan := reader.plan(reader.fetch_offsets(topics), position, chance.choice(limits))).ranges:
        table = reader.in_driver(plan.ranges)
        chunks = pa.RecordBatch.from_pylist(
            [chunk._asdict() for chunk in shared_index(Path(directory)).chunks(plan.ranges, 4)], schema=CHUNK_SCHEMA
        )
        batches = [*chunk_reader(wanted_of(plan.ranges))([chunks])]
        by_executors = pa.Table.from_batches(batches, schema=table.schema)
        found = _records(table)
        if sorted(found, key=repr) != sorted(_records(by_executors), key=repr):
            raise AssertionError("the driver and executors read differently")
        if plan.records != len(found) + len(reader.malformed(plan)):
            raise AssertionError(f"{plan.records} records were planned")
        records += found
        malformed += reader.malformed(plan)
        position = from_json(to_json(plan.position))
        if chance.random() < 0.3:
            shared_index.cache_clear()
            reader = FilesReader(directory)
    return _Found(tuple(records), tuple(malformed))


def _records(table: pa.Table) -> list[_Record]:
    return [
        (*(row[name] for name in ("topic", "partition", "offset", "timestamp_ms", "key", "value")),
         tuple((header["key"], header["value"]) for header in row["headers"] or ()))
        for row in table.to_pylist()
    ]  # fmt: skip
