"""Targets: what captured sources want upstream, computed from the definitions and the state of their readers.

A *reader* is one position over a source's topics: `main` for tables in sync, others for tables that catch up or are stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from lakehold.definitions import ConnectionType
from lakehold.model.high_water_marks import HighWaterMarks
from lakehold.model.lake_definitions import Definitions
from lakehold.model.log_positions import WAL
from lakehold.model.readers import MAIN_READER, Readers
from lakehold.upstream.wanted.connections import UpstreamConnections, connections_of
from lakehold.upstream.wanted.wanted import InLake, Wanted, wanted


@dataclass(frozen=True)
class Target:
    """The upstream objects that one source wants, and the connections to its systems."""

    wanted: Wanted
    connections: UpstreamConnections


@dataclass(frozen=True)
class Targets:
    """A view of what each source wants upstream.

    Args:
        definitions: Reads the current definitions.
        readers: Reads the states of a source's readers, which say how far the lake is.
    """

    definitions: Callable[[], Definitions]
    readers: Callable[[str], Readers]

    def now(self, source: str) -> Target | None:
        """Return what a source wants by the current definitions; None and errors as of `between`."""
        defined = self.definitions()
        return self.between(source, defined, defined)

    def between(self, source: str, before: Definitions, after: Definitions) -> Target | None:
        """Return what a source wants after a change of the definitions.

        Returns:
            None: The source captures nothing, or has tables neither before nor after.

        Raises:
            DefinitionError: Neither the definitions before nor those after have the source.
        """
        stays = source in after.sources
        defined = after if stays else before
        definition = defined.source(source)
        capture = definition.capture
        tables = after.tables_of(source) if stays else ()
        released = [entry.definition.topic for entry in before.tables_of(source)] if source in before.sources else []
        if capture is None or not (tables or released):
            return None
        connections = connections_of(definition, capture, defined)
        ids = {table.object_id for table in tables}
        ids_before = {table.object_id for table in before.tables_of(source)} if source in before.sources else set()
        declared = frozenset(ids - ids_before) if ids != ids_before else None
        readers = self.readers(source)
        applied_position = highest_position(readers, ids) if capture.database is ConnectionType.POSTGRES else None
        entry = defined.sources[source]
        return Target(
            wanted(
                entry,
                capture,
                tables,
                connections,
                applied_position=applied_position,
                released=released,
                declared=declared,
                seen_upstream_ms=readers[MAIN_READER].seen_upstream_ms if MAIN_READER in readers else None,
                lake=_in_lake(readers, {table.object_id: table.definition.topic for table in tables}),
            ),
            connections,
        )


def _high_water_marks(readers: Readers, ids: Collection[str]) -> dict[str, HighWaterMarks]:
    progress = [p for state in readers.values() for p in state.tables.values() if p.object_id in ids]
    return {p.object_id: p.high_water_marks for p in progress}


def _in_lake(readers: Readers, topics: Mapping[str, str]) -> dict[str, InLake]:
    """Return how far the lake is with each of some tables, whose topics are given by object id."""
    high_water_marks = _high_water_marks(readers, topics)
    return {
        p.object_id: InLake(
            {tp: at for tp, at in state.position.items() if tp.topic == topics[p.object_id]},
            high_water_marks[p.object_id].repeated,
        )
        for state in readers.values()
        for p in state.tables.values()
        if p.object_id in high_water_marks
    }


def highest_position(readers: Readers, ids: Collection[str]) -> int | None:
    """Return the highest position of PostgreSQL's log that any of some tables has applied; None: none is known."""
    high_water_marks = _high_water_marks(readers, ids).values()
    positions = [position for each in high_water_marks for position in each.positions.values()]
    positions += [each.snapshot.position for each in high_water_marks if each.snapshot is not None]
    if not positions:
        return None
    # Marks have the positions of events, which lie below the end of their commit.
    ends = [state.transactions.commits[WAL][0] for state in readers.values() if WAL in state.transactions.commits]
    return max([*ends, *(max(position[0], position[1]) for position in positions)])
