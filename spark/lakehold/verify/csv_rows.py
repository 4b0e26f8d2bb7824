"""Parses rows that a database writes as CSV into Arrow batches of texts: null is empty, and an empty text is quoted. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.csv

from lakehold.iceberg.whole_files import in_arrow_memory

Line = bytes | bytearray | memoryview

_BLOCK_BYTES = 4 << 20
"""Rows are parsed in blocks of about this size: enough to be fast, and little memory."""


def text_batches(lines: Iterable[Line], columns: int) -> Iterator[pa.RecordBatch]:
    """Parse lines of CSV, each one row with its line break, into batches with a given number of text columns."""
    names = [f"c{place}" for place in range(columns)]
    # A list of lines would give Python's garbage collector as many objects to visit, again and again.
    block = bytearray()
    for line in lines:
        block += line
        if len(block) >= _BLOCK_BYTES:
            yield from _parsed(block, names)
            block.clear()
    if block:
        yield from _parsed(block, names)


def _parsed(block: bytearray, names: list[str]) -> Iterator[pa.RecordBatch]:
    table = pyarrow.csv.read_csv(
        pa.BufferReader(in_arrow_memory(block)),
        # Arrow fails at a row that is longer than its chunk, and a row may be as long as the block.
        pyarrow.csv.ReadOptions(column_names=names, block_size=len(block) + 1),
        pyarrow.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    yield from table.to_batches()
