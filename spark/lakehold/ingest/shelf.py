"""What sources that are ingested together have decoded, kept until each has taken it (seed "Dynamic resource sharing")."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame

from lakehold.definitions import Table
from lakehold.ingest.decode.decoded import Shape
from lakehold.ingest.decode.schemas import TopicSchemas
from lakehold.ingest.decode.types import ColumnType
from lakehold.ingest.offsets import OffsetRange
from lakehold.ingest.topic import DecodedTopic, TopicDecoder, TopicPart, shape_of


class SharedTopic:
    """Records of one topic, and what they were decoded to so far.

    Args:
        decoder: Decodes.
        records: The records.
        keeps: Several tables may take them.
    """

    def __init__(self, decoder: TopicDecoder, records: pa.Table | DataFrame, *, keeps: bool) -> None:
        self._decoder = decoder
        self._part: TopicPart = decoder.part(records)
        self._keeps = keeps
        self._found: list[tuple[TopicSchemas, Shape, DecodedTopic]] = []

    def decoded(self, table: Table, stored_key: tuple[ColumnType, ...], *, look: bool) -> tuple[DecodedTopic, bool]:
        """The records decoded for a table, and whether they were for another one; see `TopicDecoder.schemas`."""
        schemas, knows_all = self._decoder.schemas(table, self._part, stored_key, look=look)
        shape = shape_of(table)
        for of_schemas, of_shape, topic in self._found:
            if (of_schemas, of_shape) == (schemas, shape):
                return topic, True
        topic = self._decoder.decode(table, self._part, schemas, knows_all=knows_all)
        if self._keeps:
            topic.decoded.frame.persist()
            self._found.append((schemas, shape, topic))
        return topic, False

    def release(self) -> None:
        """Let go of what is kept for several tables."""
        for _, _, topic in self._found:
            topic.decoded.frame.unpersist()
        self._found.clear()


@dataclass(frozen=True)
class Stretch:
    """Which records of a topic: those of `ranges`, whole files of a FILES source among them; read in the driver or by Spark."""

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
        takers: Names of the sources that take from each topic.
    """

    def __init__(self, takers: Mapping[str, Collection[str]]) -> None:
        self._takers = takers
        self._kept: dict[str, _Kept] = {}

    def is_shared(self, topic: str) -> bool:
        """Whether several sources take from `topic`."""
        return len(self._takers.get(topic, ())) > 1

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
        waits_for = {*self._takers.get(stretch.topic, ())} - {source}
        self._kept[stretch.topic] = _Kept(stretch, topic, waits_for)

    def clear(self, *, but_waiting: bool = False) -> None:
        """Let go of everything, or of what no source waits for: when a batch is done."""
        gone = [name for name, kept in self._kept.items() if not (but_waiting and kept.waits_for)]
        for name in gone:
            self._kept.pop(name).topic.release()
