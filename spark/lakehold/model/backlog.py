"""Progress of tables that are catching up, from the states of their reader and of `main`, without asking any upstream."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lakehold.model.readers import MAIN_READER, Readers, ReaderState


@dataclass(frozen=True)
class Backlog:
    """The progress of a reader that catches up, counted as offsets: at least as many as records.

    Attributes:
        read: Offsets that it has read since it began to catch up.
        behind: Offsets that are left until it reaches `main`.
    """

    read: int = 0
    behind: int = 0

    @property
    def total(self) -> int:
        """Return how many offsets there are to read in all."""
        return self.read + self.behind

    def __add__(self, other: Backlog) -> Backlog:
        """Add the backlogs of two readers."""
        return Backlog(self.read + other.read, self.behind + other.behind)


def backlog(state: ReaderState, main: ReaderState, topics: Collection[str]) -> Backlog | None:
    """Return the progress of `state` over some of its topics.

    Args:
        state: A reader.
        main: The reader `main` of its source.
        topics: The topics that count.

    Returns:
        None for `main` itself, and before an ingest has seen how much there is to read.
    """
    if state.reader == MAIN_READER:
        return None
    known = {**state.catch_up_to, **main.position}
    ends = {tp: end for tp, end in known.items() if tp.topic in topics}
    begins = {**state.position, **state.catch_up_from}
    if ends.keys().isdisjoint(begins):
        return None
    # A partition that the reader has not seen is newer than the reader, and begins at 0.
    reached = {tp: state.position.get(tp, begins.get(tp, 0)) for tp in ends}
    return Backlog(
        read=sum(max(0, at - begins.get(tp, 0)) for tp, at in reached.items()),
        behind=sum(max(0, end - reached[tp]) for tp, end in ends.items()),
    )


def backlogs(readers: Readers, topics: Mapping[str, str]) -> dict[str, Backlog]:
    """Return the progress of the tables that catch up, by full name.

    Args:
        readers: The readers of their source.
        topics: The topic of each of the source's tables.
    """
    found = {
        name: backlog(state, readers[MAIN_READER], {topics[name]})
        for state in readers.values()
        for name in state.tables
        if name in topics
    }
    return {name: of_table for name, of_table in found.items() if of_table is not None}
