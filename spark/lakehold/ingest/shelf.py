"""What sources that are ingested together have decoded, kept until each has taken it (seed "Dynamic resource sharing")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakehold.definitions import Table
from lakehold.ingest.shared_topic import SharedTopic
from lakehold.model.offsets import OffsetRange, Offsets


@dataclass(frozen=True)
class Stretch:
    """Name records of a topic: those of `ranges`; read in the driver or by Spark."""

    topic: str
    ranges: frozenset[OffsetRange]
    in_driver: bool


@dataclass
class _Kept:
    stretch: Stretch
    topic: SharedTopic
    waits_for: set[str] = field(default_factory=set)


class Shelf:
    """What was decoded of each topic last.

    Args:
        tables: Those of each source, by its name.
    """

    def __init__(self, tables: Mapping[str, Sequence[Table]]) -> None:
        self._tables = tables
        self._stands: dict[str, tuple[Offsets, ...]] = {}
        self._kept: dict[str, _Kept] = {}

    def stands(self, source: str, positions: Sequence[Offsets]) -> None:
        """From where the readers of `source` read on; nothing is kept for one of which it is not told."""
        self._stands[source] = tuple(positions)

    def waiting(self, source: str, stretch: Stretch) -> list[Table]:
        """Tables of other sources than `source` that read on with `stretch`, or begin with it."""
        return [
            table
            for other, tables in self._tables.items()
            if other != source
            and any(self._is_at(position, source, stretch) for position in self._stands.get(other, ()))
            for table in tables
            if table.topic == stretch.topic
        ]

    def _is_at(self, position: Offsets, source: str, stretch: Stretch) -> bool:
        return all(
            position[r.topic_partition] == r.start_inclusive
            if r.topic_partition in position
            else not self._goes_on(source, r)
            for r in stretch.ranges
        )

    def _goes_on(self, source: str, with_: OffsetRange) -> bool:
        """Whether `source` has read before what it reads now, so that it is no beginning."""
        at = with_.start_inclusive
        return at > 0 and any(position.get(with_.topic_partition) == at for position in self._stands.get(source, ()))

    def take(self, source: str, stretch: Stretch) -> SharedTopic | None:
        """What another source has decoded of the same records."""
        kept = self._kept.get(stretch.topic)
        if kept is None or kept.stretch != stretch or source not in kept.waits_for:
            return None
        kept.waits_for.remove(source)
        return kept.topic

    def put(self, source: str, stretch: Stretch, topic: SharedTopic) -> None:
        """Keep what `source` decodes until its batch is done, and the others have taken it or another stretch is put."""
        before = self._kept.get(stretch.topic)
        if before is not None:
            before.topic.release()
        self._kept[stretch.topic] = _Kept(stretch, topic, {table.source for table in self.waiting(source, stretch)})

    def clear(self, *, but_waiting: bool = False) -> None:
        """Let go of everything, or of what no source waits for: when a batch is done."""
        gone = [name for name, kept in self._kept.items() if not (but_waiting and kept.waits_for)]
        for name in gone:
            self._kept.pop(name).topic.release()
