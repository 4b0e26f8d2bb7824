"""Counts what an ingest of a source would read, without its lease: a source that has nothing new costs no commit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from lakehold.definitions import Table
from lakehold.ingest.read.reader import FetchedOffsets
from lakehold.model.lake_definitions import Entry
from lakehold.model.offsets import TopicPartition, Watermarks
from lakehold.model.readers import MAIN_READER, Readers, ReaderState
from lakehold.model.topic_identities import is_another


def pending_messages(readers: Readers, tables: Collection[Entry[Table]], fetched: FetchedOffsets) -> int:
    """Return about how many messages an ingest of a source will read.

    At least 1 if it has other work to do, such as a batch that was begun. With 0 it does no more than move the write frontier.

    Args:
        readers: The source's readers.
        tables: Its tables, as they are defined.
        fetched: The end offsets of its topics.
    """
    positions = [reader.position for reader in readers.values()] or [{}]
    unread = {
        tp: watermarks.end_exclusive - min(position.get(tp, watermarks.earliest) for position in positions)
        for tp, watermarks in fetched.partitions.items()
    }
    # An end below the position is a fault, which an ingest reports. Internal partitions do not count messages.
    behind = sum(abs(count) for tp, count in unread.items() if not tp.is_internal)
    return behind if _is_in_sync(readers, tables, fetched) and not any(unread.values()) else max(1, behind)


def unread_offsets(
    readers: Iterable[ReaderState], tables: Collection[Entry[Table]], fetched: FetchedOffsets
) -> dict[str, int]:
    """Return for each table of a source how many offsets of its topic it has not read; they are no fewer than messages.

    Args:
        readers: The source's readers.
        tables: Its tables, as they are defined.
        fetched: The end offsets of its topics.
    """
    positions = {name: reader.position for reader in readers for name in reader.tables}
    ends = defaultdict[str, dict[TopicPartition, Watermarks]](dict)
    for tp, watermarks in fetched.partitions.items():
        if not tp.is_internal:
            ends[tp.topic][tp] = watermarks
    found = {}
    for table in (entry.definition for entry in tables):
        position = positions.get(table.full_name, {})
        found[table.full_name] = sum(
            max(0, of.end_exclusive - max(of.earliest, position.get(tp, 0))) for tp, of in ends[table.topic].items()
        )
    return found


def _is_in_sync(readers: Readers, tables: Collection[Entry[Table]], fetched: FetchedOffsets) -> bool:
    """Return whether all tables are in `main`, and nothing is unfinished."""
    main = readers.get(MAIN_READER)
    if main is None or len(readers) > 1 or any((main.intent, main.waiting, main.error, fetched.missing)):
        return False
    progress = main.tables.values()
    return (
        {p.object_id for p in progress} == {entry.object_id for entry in tables}
        and all(p.since_ms is not None for p in progress)
        and not any(is_another(main.topic_ids.get(topic, found), found) for topic, found in fetched.identities.items())
    )
