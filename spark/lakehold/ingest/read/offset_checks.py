"""Checks that fetched offsets continue what was read before. Pure: nothing here asks the broker.

Readers never jump to another offset by themselves: every contradiction is an error that names the missing records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from lakehold.errors import UpstreamError
from lakehold.kafka.faults import LOAD_AGAIN, offsets_lost
from lakehold.model.offsets import Offsets, TopicPartition, Watermarks

if TYPE_CHECKING:
    from lakehold.ingest.read.reader import Available


def faults(
    available: Available, position: Offsets, identities: Mapping[str, str] | None = None
) -> dict[str, UpstreamError]:
    """Find the errors that keep topics from being read on from `position`.

    Args:
        available: The fetched offsets.
        position: Where the last batch ended.
        identities: `Available.identities` as recorded when each topic was first read.

    Returns:
        The first error of each topic, with code `topic-missing`, `topic-recreated` or `offsets-lost`. A caller raises one,
        or continues with `available.without(…)` and stops only the tables of these topics.
    """
    found: dict[str, UpstreamError] = {}
    for topic, error in _all_faults(available, position, identities or {}):
        found.setdefault(topic, error)
    return found


def _all_faults(
    available: Available, position: Offsets, identities: Mapping[str, str]
) -> Iterator[tuple[str, UpstreamError]]:
    for topic in available.missing:
        yield topic, topic_missing(topic, available)
    for topic, recorded in sorted(identities.items()):
        current = available.identities.get(topic)
        if current is not None and current != recorded:
            yield topic, recreated(topic, f"Its identity was {recorded} when it was first read and is {current} now.")
    for tp, offset in sorted(position.items()):
        marks = available.partitions.get(tp)
        if marks is not None:
            yield from ((tp.topic, error) for error in _position_faults(tp, offset, marks))
        elif tp.topic in available.identities:
            yield tp.topic, recreated(tp.topic, f"It has no partition {tp.partition} any more, which was read before.")
    for tp in sorted(added_partitions(available, position)):
        if available.partitions[tp].earliest > 0 and tp.topic in available.identities:
            yield tp.topic, offsets_lost(tp, 0, available.partitions[tp].earliest)


def added_partitions(available: Available, position: Offsets) -> frozenset[TopicPartition]:
    """Return the partitions that topics got since they were first read."""
    read = {tp.topic for tp in position}
    return frozenset(tp for tp in available.partitions if tp.topic in read and tp not in position)


def _position_faults(tp: TopicPartition, offset: int, marks: Watermarks) -> Iterator[UpstreamError]:
    if marks.end_exclusive < offset:
        yield recreated(
            tp.topic,
            f"The offsets of partition {tp.partition} below {offset} were read before, but it now ends at {marks.end_exclusive}.",
        )
    elif offset < marks.earliest:
        yield offsets_lost(tp, offset, marks.earliest)


def topic_missing(topic: str, available: Available) -> UpstreamError:
    """Return the error for a requested topic that does not exist."""
    similar = get_close_matches(topic, available.other_topics, n=3)
    names = " or ".join(f'"{name}"' for name in similar)
    return UpstreamError(
        f'topic "{topic}" does not exist',
        code="topic-missing",
        detail=f"{available.where} has {len(available.other_topics)} other topics.",
        hint=f"Did you mean {names}?" if similar else "Create the topic or correct its name in the source.",
    )


def recreated(topic: str, detail: str) -> UpstreamError:
    """Return the error for a topic that is another one than the one read before."""
    return UpstreamError(
        f'topic "{topic}" was deleted and created again since it was last read',
        code="topic-recreated",
        detail=detail,
        hint=f"If the new topic is meant to be read, {LOAD_AGAIN}.",
    )
