"""Finds BEGINs and ENDs in the records of a transaction topic. Pure: Arrow in, one object for each of them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehold.ingest.transactions.ids import transactions_of
from lakehold.ingest.transactions.log import Begin, End
from lakehold.ingest.transactions.naming import topic_of
from lakehold.model.offsets import TopicPartition
from lakehold.model.places import place_of_end

_T = TypeVar("_T")

_BEGIN = "BEGIN"
_END = "END"

RECORDS = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("sent_ms", pa.int64()),
        ("kind", pa.string()),
        ("transaction_id", pa.string()),
        ("data_collections", pa.list_(pa.struct([("data_collection", pa.string()), ("event_count", pa.int64())]))),
    ]
)
"""What each record of a transaction topic says: `kind` is its status. All but `partition` and `offset` may be null."""


@dataclass(frozen=True)
class Boundaries:
    """BEGINs and ENDs by partition of the transaction topic, in the order of offsets."""

    begins: dict[TopicPartition, list[Begin]] = field(default_factory=dict)
    ends: dict[TopicPartition, list[End]] = field(default_factory=dict)


def boundaries_of(records: pa.Table, topics: frozenset[str], transaction_topic: str) -> Boundaries:
    """Find the BEGINs and ENDs, which count events by topic.

    Args:
        records: `RECORDS`, in any order: all records of an offset range, also those that say nothing.
        topics: Topics whose events are counted.
        transaction_topic: Where the records stand.
    """
    records = records.sort_by([("partition", "ascending"), ("offset", "ascending")])
    partition = records["partition"].to_numpy()
    # Records that say nothing count, too: an offset without a record is a control record.
    followed_by = np.searchsorted(partition, partition, side="right") - np.arange(len(partition)) - 1
    records = records.append_column("followed_by", pa.array(followed_by, pa.int64()))
    said = records.filter(pc.is_valid(records["transaction_id"]))
    begins, ends = (said.filter(pc.equal(said["kind"], kind)) for kind in (_BEGIN, _END))
    return Boundaries(
        _by_partition(begins, _begins(begins), transaction_topic),
        _by_partition(ends, _ends(ends, _counts(ends, topics, transaction_topic)), transaction_topic),
    )


def _by_partition(records: pa.Table, found: list[_T], topic: str) -> dict[TopicPartition, list[_T]]:
    numbers, begins = np.unique(records["partition"].to_numpy(), return_index=True)
    bounds = pairwise([*begins.tolist(), len(found)])
    return {
        TopicPartition(topic, number): found[begin:end]
        for number, (begin, end) in zip(numbers.tolist(), bounds, strict=True)
    }


def _begins(records: pa.Table) -> list[Begin]:
    transactions = transactions_of(records["transaction_id"])
    columns = (records["offset"], transactions, records["sent_ms"], records["followed_by"])
    return list(map(Begin, *(column.to_pylist() for column in columns)))


def _ends(records: pa.Table, counts: list[dict[str, int]]) -> list[End]:
    shown_ids = records["transaction_id"].to_pylist()
    return list(
        map(
            End,
            records["offset"].to_pylist(),
            transactions_of(records["transaction_id"]).to_pylist(),
            shown_ids,
            map(place_of_end, shown_ids),
            counts,
            records["sent_ms"].to_pylist(),
            records["followed_by"].to_pylist(),
        )
    )


def _counts(ends: pa.Table, topics: frozenset[str], transaction_topic: str) -> list[dict[str, int]]:
    """Return for each END the number of events by topic; tables that no topic holds are left out."""
    lists = ends["data_collections"].combine_chunks()
    listed = pc.list_flatten(lists)
    names = pc.struct_field(listed, "data_collection").dictionary_encode()
    topic_by_name: Mapping[int | None, str | None] = {
        number: topic_of(name, topics, transaction_topic) for number, name in enumerate(names.dictionary.to_pylist())
    }
    numbers = pc.fill_null(pc.struct_field(listed, "event_count"), 0)
    found: list[dict[str, int]] = [{} for _ in range(ends.num_rows)]
    entries = (pc.list_parent_indices(lists), names.indices, numbers)
    for end, name, count in zip(*(entry.to_pylist() for entry in entries), strict=True):
        topic = topic_by_name.get(name)
        if topic is not None:
            counts = found[end]
            counts[topic] = counts.get(topic, 0) + count
    return found
