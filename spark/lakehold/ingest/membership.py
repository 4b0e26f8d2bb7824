"""Membership: which reader reads which table. Tables come and go, stop, catch up and join. Pure: readers in, readers out.

A *reader* is a group of tables of one source that share a position: `main` for those in sync, others for tables that catch up.
The steps of an ingest store the results, under the lease of the source. `model/readers.py` moves tables between readers; this
module decides which.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import count

from lakehold.definitions import Table
from lakehold.errors import LakeholdError
from lakehold.ingest.read.reader import FetchedOffsets
from lakehold.model import readers as reader_state
from lakehold.model.committed_transactions import NOTHING_COMMITTED, CommittedTransactions, joined_transactions
from lakehold.model.lake_definitions import Entry
from lakehold.model.offsets import Offsets, TopicPartition
from lakehold.model.readers import BACKFILL_READER, MAIN_READER, ReaderError, Readers, ReaderState, TableProgress
from lakehold.model.topic_identities import with_found


def with_tables(
    readers: Readers, source: str, tables: Mapping[str, Entry[Table]], transaction_topic: str | None = None
) -> Readers:
    """Return the readers with each defined table in one of them, without tables that are not defined or were created again.

    The first tables of a source without a position join `main` at once. Later ones become the tables of the reader `backfill`,
    which begins at their topics' earliest offsets, and at `main`'s position for everything else. While an earlier `backfill` is
    catching up, new tables share another reader, or get a reader of its own if there is only one.
    """
    found = dict(readers)
    for state in readers.values():
        for name, progress in state.tables.items():
            if name not in tables or progress.object_id != tables[name].object_id:
                found = dict(reader_state.dropped(found, name))
    found[MAIN_READER] = _pruned(found[MAIN_READER], tables, transaction_topic)
    read = {name for state in found.values() for name in state.tables}
    new = {name: TableProgress(object_id=entry.object_id) for name, entry in tables.items() if name not in read}
    if not new:
        return found
    main = found[MAIN_READER]
    if not main.position and main.intent is None:
        return {**found, MAIN_READER: replace(main, tables={**main.tables, **new})}
    reader = _free_reader(found, new)
    topics = {tables[name].definition.topic for name in new}
    position = {tp: at for tp, at in main.position.items() if tp.topic not in topics}
    return {**found, reader: ReaderState(source, reader, tables=new, position=position)}


def _free_reader(readers: Readers, new: Mapping[str, TableProgress]) -> str:
    """Choose a name for the reader of new tables that no other reader has."""
    if BACKFILL_READER not in readers:
        return BACKFILL_READER
    if len(new) == 1:
        return next(iter(new))
    return next(name for n in count(2) if (name := f"{BACKFILL_READER}_{n}") not in readers)


def _pruned(main: ReaderState, tables: Mapping[str, Entry[Table]], transaction_topic: str | None) -> ReaderState:
    """Return `main` without the topics that none of its tables reads: a topic that returns is read from its beginning.

    When the last table is gone, a batch that a crash left open is abandoned; its timestamp stays taken.
    """
    topics = {tables[name].definition.topic for name in main.tables}
    if not topics:
        next_ms = () if main.intent is None else (main.intent.mz_timestamp + 1,)
        upper_ms = max((*next_ms, *(() if main.upper_ms is None else (main.upper_ms,))), default=None)
        return replace(
            main,
            position={},
            topic_ids={},
            transactions=NOTHING_COMMITTED,
            waiting=None,
            intent=None,
            upper_ms=upper_ms,
        )
    if main.intent is not None:
        return main
    kept = {*topics, transaction_topic}
    return replace(
        main,
        position={tp: at for tp, at in main.position.items() if tp.topic in kept or tp.is_internal},
        topic_ids={t: i for t, i in main.topic_ids.items() if t in kept or TopicPartition(t, 0).is_internal},
    )


def identified(readers: Readers, fetched: FetchedOffsets, topics: Callable[[ReaderState], Collection[str]]) -> Readers:
    """Record the identity of each of a reader's `topics`: a topic that is created again under its name has another one."""

    def with_identities(state: ReaderState) -> ReaderState:
        own = fetched.without(fetched.topics - {*topics(state)})
        return replace(state, topic_ids=with_found(state.topic_ids, own.identities))

    return {name: with_identities(state) for name, state in readers.items()}


def split(
    readers: Readers, stopped: Mapping[str, LakeholdError], written: Mapping[str, TableProgress] | None = None
) -> Readers:
    """Return the readers with each stopped table in a reader of its own.

    `written` is the progress of those whose history has the open batch of their reader.
    """
    found = readers
    for name, error in stopped.items():
        found = reader_state.split_off(found, name, ReaderError.of(error), (written or {}).get(name))
    return found


def with_catch_up_range(readers: Readers, name: str, begins: Offsets, ends: Offsets) -> Readers:
    """Record which range reader `name` has to catch up: the end moves with the topics, a recorded beginning stays."""
    state = readers[name]
    return {**readers, name: replace(state, catch_up_from={**begins, **state.catch_up_from}, catch_up_to=ends)}


def without_old_stops(readers: Readers, name: str, oldest_ms: Mapping[str, int]) -> Readers:
    """Return the readers with the stops of reader `name`'s tables that still concern a time at which a table can be read.

    Args:
        readers: The readers.
        name: The reader.
        oldest_ms: By table: the timestamp of the oldest snapshot that remains. Nothing before it can be read.
    """
    state = readers[name]
    tables = {
        table: replace(
            progress, stops=tuple(stop for stop in progress.stops if stop.until_ms > oldest_ms.get(table, 0))
        )
        for table, progress in state.tables.items()
    }
    return {**readers, name: replace(state, tables=tables)}


def joined(
    readers: Readers,
    name: str,
    fetched: FetchedOffsets,
    must_stay_unreadable: Callable[[str, TableProgress, CommittedTransactions], bool],
    read: Collection[str],
) -> Readers:
    """Return the readers with the tables of `name` in `main`, with which they are in sync.

    Args:
        readers: The readers.
        name: The reader that joins.
        fetched: The fetched offsets of its topics.
        must_stay_unreadable: Returns whether a table with this progress must stay unreadable after these transactions: rows of
            its connector snapshot may be missing, or its sync point is not reached.
        read: The topics that it read. Positions in other topics, whose tables were dropped meanwhile, are removed, and the
            identities of these topics: they may exist again.

    Raises:
        ValueError: Either reader has an open batch.
    """
    main, joining = readers[MAIN_READER], readers[name]
    transactions = joined_transactions(main.transactions, joining.transactions)
    # Internal partitions, which say how far files were scanned, belong to no table: `main`'s count, once it has a position.
    own = {tp: at for tp, at in joining.position.items() if tp.topic in read or not main.position}
    position = {**own, **main.position}
    own_ids = {
        topic: identity
        for topic, identity in joining.topic_ids.items()
        if topic in read or TopicPartition(topic, 0).is_internal
    }
    identities = {t: identity for t, identity in fetched.identities.items() if t in fetched.topics}
    tables = {
        table: progress
        if must_stay_unreadable(table, progress, transactions)
        else _readable(progress, joining.upper_ms)
        for table, progress in joining.tables.items()
    }
    in_sync = {
        **readers,
        MAIN_READER: replace(
            main,
            position=position,
            topic_ids=with_found(main.topic_ids, {**own_ids, **identities}),
            transactions=transactions,
        ),
        name: replace(joining, tables=tables, position=position, error=None),
    }
    return reader_state.joined(in_sync, name)


def _readable(progress: TableProgress, upper_ms: int | None) -> TableProgress:
    """Return the progress of a table that joins: readable from its reader's last batch on, unless a snapshot is half read."""
    if progress.since_ms is not None or upper_ms is None or not progress.high_water_marks.is_whole:
        return progress
    return replace(progress, since_ms=upper_ms - 1)
