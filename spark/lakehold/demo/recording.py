"""The recorded change log that comes with lakehold, and PostgreSQL's rows at its end.

Debezium's JSON carries its schema in every message, and compression makes it fifty times smaller. So the recording is kept
compressed, and unpacked where it is read.
"""

from __future__ import annotations

import json
import lzma
import shutil
from collections.abc import Iterable, Mapping
from importlib.resources import as_file, files
from pathlib import Path

from lakehold.demo.shop_rows import Row, ShopTable

_PACKED = ".xz"
_EXPECTED = "expected"


def unpack(directory: Path) -> int:
    """Write the recorded messages as `*.jsonl` files into `directory`, as a FILES source reads them.

    Returns:
        The number of messages.
    """
    directory.mkdir(parents=True, exist_ok=True)
    messages = 0
    with as_file(files("lakehold.demo").joinpath("recording")) as recording:
        for packed in sorted(recording.glob(f"*.jsonl{_PACKED}")):
            plain = directory / packed.name.removesuffix(_PACKED)
            with lzma.open(packed) as source, plain.open("wb") as target:
                shutil.copyfileobj(source, target)
            with plain.open("rb") as lines:
                messages += sum(1 for _ in lines)
    return messages


def expected_rows(table: ShopTable) -> list[Row]:
    """Read a table's rows as PostgreSQL had them after the last recorded change, see `lakehold.demo.shop_rows`."""
    packed = files("lakehold.demo").joinpath("recording", _EXPECTED, f"{table.name}.jsonl{_PACKED}")
    rows = lzma.decompress(packed.read_bytes()).decode().splitlines()
    return [tuple(json.loads(row).values()) for row in rows]


def write(directory: Path, messages: Mapping[str, Iterable[str]], rows: Mapping[ShopTable, Iterable[Row]]) -> None:
    """Write a recording.

    Args:
        directory: Gets a file for each topic, and `expected/` with one for each table.
        messages: Lines of a FILES source by topic.
        rows: The rows of the tables at the end.
    """
    (directory / _EXPECTED).mkdir(parents=True, exist_ok=True)
    for topic, lines in messages.items():
        _pack(directory / f"{topic}.jsonl{_PACKED}", lines)
    for table, found in rows.items():
        lines = (json.dumps(dict(zip(table.columns, row, strict=True)), ensure_ascii=False) for row in found)
        _pack(directory / _EXPECTED / f"{table.name}.jsonl{_PACKED}", lines)


def _pack(path: Path, lines: Iterable[str]) -> None:
    with lzma.open(path, "wt", encoding="utf-8", preset=9) as packed:
        packed.writelines(f"{line}\n" for line in lines)
