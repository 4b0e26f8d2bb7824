"""Checks that fetched offsets continue what was read before. Pure: nothing here asks the broker.

Readers never jump to another offset by themselves: each contradiction is an error that says what is gone or was replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from lakehold.errors import UpstreamError
from lakehold.kafka.faults import LOAD_AGAIN, offsets_lost
from lakehold.model.offsets import Offsets, TopicPartition, Watermarks
from lakehold.model.topic_identities import is_another
from lakehold.nearest import close_names

if TYPE_CHECKING:
    from lakehold.ingest.read.reader import FetchedOffsets


def faults(
    fetched: FetchedOffsets, position: Offsets, identities: Mapping[str, str] | None = None
) -> dict[str, UpstreamError]:
    """Find the errors that keep topics from being read on from `position`.

    Args:
        fetched: The fetched offsets.
        position: The offset after the last batch, by partition.
        identities: `FetchedOffsets.identities` as recorded when each topic was first read.

    Returns:
        The first error of each topic: `topic-missing`, `topic-refused`, `topic-recreated` or `offsets-lost`. A caller raises one,
        or continues with `fetched.without(…)` and stops only the tables of these topics.
    """
    found: dict[str, UpstreamError] = {}
    for topic, error in _all_faults(fetched, position, identities or {}):
        found.setdefault(topic, error)
    return found


def _all_faults(
    fetched: FetchedOffsets, position: Offsets, identities: Mapping[str, str]
) -> Iterator[tuple[str, UpstreamError]]:
    for topic in fetched.missing:
        yield topic, topic_missing(topic, fetched)
    for topic in sorted(fetched.refused):
        yield topic, topic_refused(topic, fetched)
    for topic, recorded in sorted(identities.items()):
        current = fetched.identities.get(topic)
        if current is not None and is_another(recorded, current):
            yield topic, recreated(topic, f"Its identity was {recorded} when it was first read and is {current} now.")
    for tp, offset in sorted(position.items()):
        watermarks = fetched.partitions.get(tp)
        if watermarks is not None:
            yield from ((tp.topic, error) for error in _position_faults(tp, offset, watermarks))
        elif tp.topic in fetched.identities:
            yield tp.topic, recreated(tp.topic, f"It has no partition {tp.partition} any more, which was read before.")
    for tp in sorted(added_partitions(fetched, position)):
        if fetched.partitions[tp].earliest > 0 and tp.topic in fetched.identities:
            yield tp.topic, offsets_lost(tp, 0, fetched.partitions[tp].earliest)


def added_partitions(fetched: FetchedOffsets, position: Offsets) -> frozenset[TopicPartition]:
    """Return the partitions that topics got since they were first read: `position` names others of their topic."""
    read = {tp.topic for tp in position}
    return frozenset(tp for tp in fetched.partitions if tp.topic in read and tp not in position)


def _position_faults(tp: TopicPartition, offset: int, watermarks: Watermarks) -> Iterator[UpstreamError]:
    if watermarks.end_exclusive < offset:
        yield recreated(
            tp.topic,
            f"The offsets of partition {tp.partition} below {offset} were read before, but it now ends at "
            f"{watermarks.end_exclusive}.",
        )
    elif offset < watermarks.earliest:
        yield offsets_lost(tp, offset, watermarks.earliest)


def topic_missing(topic: str, fetched: FetchedOffsets) -> UpstreamError:
    """Return the error for a requested topic that does not exist."""
    similar = close_names(topic, fetched.other_topics, most=3)
    names = " or ".join(f'"{name}"' for name in similar)
    return UpstreamError(
        f'topic "{topic}" does not exist',
        code="topic-missing",
        detail=f"{fetched.where} has {len(fetched.other_topics)} other topics.",
        hint=f"Did you mean {names}?" if similar else "Create the topic or correct its name in the source.",
    )


def topic_refused(topic: str, fetched: FetchedOffsets) -> UpstreamError:
    """Return the error for a requested topic that the system does not let the caller read."""
    return UpstreamError(
        f'topic "{topic}" may not be read',
        code="topic-refused",
        detail=f"{fetched.where} does not let the user of the connection read it.",
        hint="Allow the user the operation READ on the topic (kafka-acls --add), and ingest again.",
    )


def recreated(topic: str, detail: str) -> UpstreamError:
    """Return the error for a topic that was deleted and created again since it was read; `detail` says what shows this."""
    return UpstreamError(
        f'topic "{topic}" was deleted and created again since it was last read',
        code="topic-recreated",
        detail=detail,
        hint=f"If the new topic is meant to be read, {LOAD_AGAIN}.",
    )
