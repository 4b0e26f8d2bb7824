"""A candidate for a batch: an offset range of a source, with everything that is needed to find the batch's end. Pure.

`whole_transactions.py` makes one for each range that it plans; `boundary.py` finds where in it the batch ends. Partitions,
topics, transactions and logs have numbers here, by which the columns of runs and boundaries refer to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehold.ingest.transactions.columns import Flags, Numbers, filled, numbered
from lakehold.ingest.transactions.ids import transactions_of
from lakehold.ingest.transactions.metadata import Boundaries, are_boundaries, boundaries_of
from lakehold.ingest.transactions.runs import Runs, runs_of
from lakehold.model.high_water_marks import Position
from lakehold.model.offsets import Offsets, TopicPartition


@dataclass(frozen=True)
class Extent:
    """The extent of an offset range, with the facts from fetching its ends.

    Args:
        starts: Where the range starts in each partition, including that of the transaction topic.
        stops: Where it ends in each partition (exclusive).
        unread: Partitions with records after the range and below the fetched ends.
        written: The ends of partitions including records in open Kafka transactions, fetched after the ends above. A
            partition that is not named ended where it was read to.
        fetched_ms: When the ends were fetched (epoch milliseconds), that of the transaction topic first.
        lag_ms: How long a message may be in flight (milliseconds): others that were sent after it may be written so much earlier.
        shown: The topics of tables that can be read already, with the upstream position of the connector snapshot that they
            show; None: they show none.
        joining: The topics of tables that join readable ones of a captured database, and cannot be read yet: events that an END
            counts may have been in an earlier topic of the name, which DROP TABLE deleted.
    """

    starts: Offsets
    stops: Offsets
    unread: frozenset[TopicPartition] = frozenset()
    written: Offsets = field(default_factory=dict)
    fetched_ms: int = 0
    lag_ms: int = 0
    shown: Mapping[str, Position | None] = field(default_factory=dict)
    joining: frozenset[str] = frozenset()

    @property
    def is_all(self) -> bool:
        """Return whether the range contains all records below the fetched ends."""
        return not self.unread

    def is_early(self, sent_ms: Numbers) -> Flags:
        """Mark times (epoch milliseconds) that are so recent that messages sent before may not be written yet."""
        return sent_ms > self.fetched_ms - self.lag_ms

    def is_fully_read(self, tp: TopicPartition) -> bool:
        """Return whether a partition was read to its end, including records of open Kafka transactions."""
        return tp not in self.unread and self.stops.get(tp, 0) >= self.written.get(tp, 0)


@dataclass(frozen=True)
class Candidate:
    """An offset range with its runs (consecutive events of one transaction in one partition), BEGINs and ENDs.

    Args:
        extent: The range.
        transaction_topic: The partition of the transaction topic.
        topics: The topics whose events must be complete, in the order of their numbers.
        transactions: The number of transactions: their numbers are below it.
        logs: The upstream's logs (`lakehold.model.log_positions`), in the order of their numbers.
        runs: The range's runs.
        boundaries: The range's BEGINs and ENDs.
        unreadable: Offsets of the transaction topic's records that are no BEGIN and no END.
        followed_later: Partitions in which the records after the range are known to be later than all ENDs.
    """

    extent: Extent
    transaction_topic: TopicPartition
    topics: Sequence[str]
    transactions: int
    logs: Sequence[str]
    runs: Runs
    boundaries: Boundaries
    unreadable: Numbers
    followed_later: frozenset[TopicPartition] = frozenset()

    @cached_property
    def topic_of(self) -> Numbers:
        """Find the number of each partition's topic."""
        return np.array([self.topics.index(tp.topic) for tp in self.runs.partitions], np.int64)


def candidate_of(
    extent: Extent, headers: pa.Table, records: pa.Table, topics: frozenset[str], transaction_topic: str
) -> Candidate:
    """Make a candidate from the records of an offset range.

    Args:
        extent: The range.
        headers: The facts about its records, as `record_headers.HEADERS`, in any order.
        records: The records of the transaction topic, as `metadata.RECORDS`.
        topics: The topics whose events must be complete.
        transaction_topic: The transaction topic.
    """
    is_boundary = are_boundaries(records)
    unreadable = np.sort(filled(records.filter(pc.invert(is_boundary))["offset"]))
    records = records.filter(is_boundary).sort_by("offset")
    ids = (headers["transaction_id"], records["transaction_id"])
    names, of_rows = numbered(
        pa.chunked_array([chunk for each in ids for chunk in transactions_of(each).chunks], "string")
    )
    names_of = sorted(topics)
    partitions = sorted(tp for tp in extent.stops if tp.topic in topics)
    logs: dict[str, int] = {}
    runs = runs_of(headers, of_rows[: headers.num_rows], names, logs, partitions)
    rows = np.flatnonzero(runs.commits).tolist()
    alone = {int(runs.transaction[row]): names_of.index(partitions[runs.partition[row]].topic) for row in rows}
    numbered_records = records.append_column("transaction", pa.array(of_rows[headers.num_rows :]))
    boundaries = boundaries_of(numbered_records, logs, names_of, transaction_topic, alone)
    tp = TopicPartition(transaction_topic, 0)
    return Candidate(extent, tp, names_of, len(names), [*logs], runs, boundaries, unreadable)
