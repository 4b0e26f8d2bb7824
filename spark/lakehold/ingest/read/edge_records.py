"""Reads the first and last records of a batch's ranges: a sample that most likely shows what the records between are like.

A large batch is planned and loaded by this sample where it shows rows of one connector snapshot, or only new rows: then the
driver needs no facts about each record.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pyarrow as pa

from lakehold.ingest.read.reader import Reader
from lakehold.model.offsets import OffsetRange

EDGE_RECORDS = 5
"""How many offsets are read at each end of a range; more than one, as Kafka's transactions leave offsets without a record."""


def edges(reader: Reader, ranges: Collection[OffsetRange]) -> pa.Table:
    """Read the records at the first and the last `EDGE_RECORDS` offsets of each range, as `Reader.in_driver` returns them.

    Args:
        reader: Reads the records.
        ranges: At most one range of each partition.
    """
    heads = [replace(r, end_exclusive=min(r.end_exclusive, r.start_inclusive + EDGE_RECORDS)) for r in ranges]
    rests = [replace(r, start_inclusive=head.end_exclusive) for r, head in zip(ranges, heads, strict=True)]
    # The reader takes one range of a partition at a time.
    tails = [replace(r, start_inclusive=max(r.start_inclusive, r.end_exclusive - EDGE_RECORDS)) for r in rests]
    return pa.concat_tables([reader.in_driver(heads), reader.in_driver(tails)])
