"""Records of one topic for all tables that take them: read once, and decoded in one pass for what all of them want."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehold.definitions import Table
from lakehold.errors import LakeholdError
from lakehold.ingest.decode.decoded import Decoded, Wanted
from lakehold.ingest.decode.together import DecodedTogether
from lakehold.ingest.decode.types import ColumnType
from lakehold.ingest.topic import DecodedTopic, TopicDecoder, TopicPart


class SharedTopic:
    """Records of one topic, and what was made of them so far.

    Args:
        decoder: Decodes.
        records: The records.
        tables: Those that take them.
    """

    def __init__(self, decoder: TopicDecoder, records: pa.Table | DataFrame, tables: Sequence[Table]) -> None:
        self._decoder = decoder
        self._part: TopicPart = decoder.part(records)
        self._tables = tables
        self._alike: list[tuple[Wanted, Decoded]] = []
        self._together: list[DecodedTogether] = []
        self._persisted: list[DataFrame] = []

    def decoded(self, table: Table, stored_key: tuple[ColumnType, ...], *, look: bool) -> tuple[DecodedTopic, bool]:
        """The records decoded for a table, and whether they were for another one; see `TopicDecoder.wanted`."""
        wanted, knows_all = self._decoder.wanted(table, self._part, stored_key, look=look)
        before = self._found(wanted)
        found = before or self._found_with_others(table, wanted, look=look)
        return DecodedTopic(self._part.raw, found, knows_all), before is not None

    def release(self) -> None:
        """Let go of what is kept for several tables."""
        for frame in self._persisted:
            frame.unpersist()
        for made in (self._persisted, self._alike, self._together):
            made.clear()

    def _found(self, wanted: Wanted) -> Decoded | None:
        alike = (decoded for of_another, decoded in self._alike if of_another == wanted)
        apart = (decoded for together in self._together if (decoded := together.of(wanted)) is not None)
        return next(alike, None) or next(apart, None)

    def _found_with_others(self, table: Table, wanted: Wanted, *, look: bool) -> Decoded:
        """The records decoded for a table and for what others are expected to want, who find it then."""
        others = self._expected(table, look=look)
        if any(other != wanted for other in others):
            try:
                together = self._decoder.decode_together(self._part, [wanted, *others], self._kept)
            except LakeholdError:
                # One of them cannot be decoded: which one is told when its turn comes, and it alone stops.
                pass
            else:
                self._together.append(together)
                if (found := together.of(wanted)) is not None:
                    return found
        decoded = self._decoder.decode(table, self._part, wanted)
        if wanted in others:
            decoded = replace(decoded, frame=self._kept(decoded.frame))
            self._alike.append((wanted, decoded))
        return decoded

    def _expected(self, table: Table, *, look: bool) -> list[Wanted]:
        """What the other tables will want, as far as their definitions tell."""
        return [wanted for other in self._tables if other != table for wanted in self._wanted(other, look=look)]

    def _wanted(self, table: Table, *, look: bool) -> Iterator[Wanted]:
        try:
            yield self._decoder.wanted(table, self._part, (), look=look)[0]
        except LakeholdError:
            # The table stops by this when its turn comes.
            return

    def _kept(self, frame: DataFrame) -> DataFrame:
        """The same records, in memory once they have been read."""
        # In one column, because Spark's cache takes twice as long for a dozen.
        packed = frame.select(F.struct("*").alias("record"))
        self._persisted.append(packed.persist())
        return packed.select("record.*")
