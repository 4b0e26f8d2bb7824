"""Reads BEGINs and ENDs from the records of a transaction topic, as columns. Pure.

Debezium writes a BEGIN before the events of each transaction of the database, and an END after it commits. The END counts the
events by table, which show when all of them have arrived.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehold.ingest.transactions.collection_topics import topic_of
from lakehold.ingest.transactions.columns import Flags, Numbers, filled, numbered
from lakehold.ingest.transactions.ids import positions_of

BEGIN = "BEGIN"
END = "END"

RECORDS = pa.schema(
    [
        ("offset", pa.int64()),
        ("sent_ms", pa.int64()),
        ("kind", pa.string()),
        ("transaction_id", pa.string()),
        ("data_collections", pa.list_(pa.struct([("data_collection", pa.string()), ("event_count", pa.int64())]))),
    ]
)
"""The fields of each record of a transaction topic: `kind` is its status, `BEGIN` or `END`. All but `offset` may be null."""


@dataclass(frozen=True)
class Boundaries:
    """BEGINs and ENDs in the order of offsets, as columns.

    Args:
        offset: Their offsets.
        transaction: The number of the transaction.
        is_end: Whether it is an END.
        sent_ms: When it was sent (epoch milliseconds).
        id: The transaction's id, as this record writes it.
        log: For ENDs, the number of the log in which it commits; -1: unknown.
        at: For ENDs, the log position of the commit, as columns (`lakehold.ingest.transactions.ids`).
        counting: For each count (an END has one for each table), the row of the END, ascending.
        topic: For each count, the number of a topic.
        events: For each count, the number of events in that topic.
    """

    offset: Numbers
    transaction: Numbers
    is_end: Flags
    sent_ms: Numbers
    id: pa.Array
    log: Numbers
    at: Numbers
    counting: Numbers
    topic: Numbers
    events: Numbers

    def between(self, start: int, stop: int) -> Boundaries:
        """Return the BEGINs and ENDs in a range of offsets (`stop` exclusive)."""
        first, end = np.searchsorted(self.offset, [start, stop]).tolist()
        rows, counts = slice(first, end), slice(*np.searchsorted(self.counting, [first, end]).tolist())
        columns = ("offset", "transaction", "is_end", "sent_ms", "log", "at")
        return replace(
            self,
            **{name: getattr(self, name)[..., rows] for name in columns},
            id=self.id[rows],
            counting=self.counting[counts] - first,
            topic=self.topic[counts],
            events=self.events[counts],
        )


def are_boundaries(records: pa.Table) -> pa.ChunkedArray:
    """Mark `RECORDS` that are a BEGIN or END of a transaction."""
    known = pc.is_in(records["kind"], pa.array([BEGIN, END]))
    return pc.and_(known, pc.is_valid(records["transaction_id"]))


def boundaries_of(
    records: pa.Table,
    logs: dict[str, int],
    topics: list[str],
    transaction_topic: str,
    alone: dict[int, int],
) -> Boundaries:
    """Find BEGINs and ENDs.

    Args:
        records: `RECORDS` that are BEGINs or ENDs, in the order of offsets, with the number of the transaction as a column
            `transaction`.
        logs: See `positions_of`.
        topics: Topics whose events are counted, in the order of their numbers; counts of other tables are skipped.
        transaction_topic: The topic of the records.
        alone: Transactions of one event that commits by itself, with the number of its topic. Debezium writes no END for
            them: their BEGIN stands for it.
    """
    transaction = records["transaction"].to_numpy()
    is_alone = np.isin(transaction, [*alone])
    ids = records["transaction_id"].combine_chunks()
    is_end = is_alone | (records["kind"].to_numpy() == END)
    log, at = positions_of(pc.if_else(pa.array(is_end), ids, pa.scalar("")), logs)
    counting, topic, events = _counts(records, topics, transaction_topic)
    lone = np.flatnonzero(is_alone)
    counting = np.concatenate([counting, lone])
    order = np.argsort(counting, kind="stable")
    lone_topics = np.array([alone[each] for each in transaction[lone].tolist()], np.int64)
    return Boundaries(
        filled(records["offset"]),
        transaction,
        is_end,
        filled(records["sent_ms"]),
        ids,
        log,
        at,
        counting[order],
        np.concatenate([topic, lone_topics])[order],
        np.concatenate([events, np.ones(len(lone), np.int64)])[order],
    )


def _counts(records: pa.Table, topics: list[str], transaction_topic: str) -> tuple[Numbers, Numbers, Numbers]:
    """Return rows of records, numbers of topics, and how many events each counts there; tables without a topic are skipped."""
    lists = records["data_collections"].combine_chunks()
    listed = pc.list_flatten(lists)
    collections, collection = numbered(pc.struct_field(listed, "data_collection"))
    known = frozenset(topics)
    of_collections = (
        None if name is None else topic_of(name, known, transaction_topic) for name in [*collections.to_pylist(), None]
    )
    number = np.array([-1 if topic is None else topics.index(topic) for topic in of_collections])[collection]
    events = pc.fill_null(pc.struct_field(listed, "event_count"), 0).to_numpy()
    is_known = number >= 0
    return pc.list_parent_indices(lists).to_numpy()[is_known], number[is_known], events[is_known]
