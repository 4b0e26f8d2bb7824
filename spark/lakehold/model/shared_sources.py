"""Finds sources that can share their reads: they read a topic of the same broker or directory, in the same format.

Whether they are at the same offsets, too, is found when they read (`lakehold.ingest.shared_reads`).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

from lakehold.definitions import Source
from lakehold.model.lake_definitions import Definitions


def place_of(source: Source, definitions: Definitions) -> Hashable:
    """Return a key for where a source reads and how messages are encoded, independent of its connections' names."""
    kafka, registry = (
        frozenset(definitions.connection(name).options.items()) if name is not None else None
        for name in (source.connection, source.format.registry)
    )
    return kafka, source.path, source.format.type, registry


def topics_of(source: str, definitions: Definitions) -> frozenset[str]:
    """Return the topics that feed tables of a source."""
    return frozenset(entry.definition.topic for entry in definitions.tables_of(source))


def sharing(source: Source, topics: Collection[str], definitions: Definitions) -> tuple[str, ...]:
    """Return the names of the other sources that read one of `topics` where `source` does, in order.

    Topics that they only declare count as well.
    """
    place = place_of(source, definitions)
    others = (entry.definition for name, entry in sorted(definitions.sources.items()) if name != source.name)
    return tuple(
        other.name
        for other in others
        if place_of(other, definitions) == place
        and not {*other.topics, *topics_of(other.name, definitions)}.isdisjoint(topics)
    )


def together(sources: Sequence[str], definitions: Definitions) -> list[list[str]]:
    """Group `sources` whose tables share topics, directly or through others."""
    groups: list[list[str]] = []
    for name in dict.fromkeys(sources):
        own = definitions.source(name)
        place, topics = place_of(own, definitions), topics_of(name, definitions)

        def shares(other: str, place: Hashable = place, topics: frozenset[str] = topics) -> bool:
            is_alike = place_of(definitions.source(other), definitions) == place
            return is_alike and not topics_of(other, definitions).isdisjoint(topics)

        joined = [group for group in groups if any(map(shares, group))]
        groups = [group for group in groups if group not in joined]
        groups.append([*(member for group in joined for member in group), name])
    return groups
