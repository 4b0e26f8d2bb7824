"""Records of one topic for all tables that take them: parsed once, and decoded once for those that want the same of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame

from lakehold.definitions import Table
from lakehold.errors import LakeholdError
from lakehold.ingest.decode.decoded import Wanted
from lakehold.ingest.decode.parsers import Call, Parsed, parsed_for
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
        self._expected: dict[bool, list[tuple[Table, Wanted]]] = {}
        self._parsed: list[Parsed] = []
        self._decoded: list[tuple[Wanted, DecodedTopic]] = []
        self._kept: list[DataFrame] = []

    def decoded(self, table: Table, stored_key: tuple[ColumnType, ...], *, look: bool) -> tuple[DecodedTopic, bool]:
        """The records decoded for a table, and whether they were parsed for another one; see `TopicDecoder.wanted`."""
        wanted, knows_all = self._decoder.wanted(table, self._part, stored_key, look=look)
        for of_another, topic in self._decoded:
            if of_another == wanted:
                return topic, True
        others = [expected for other, expected in self._expecting(look=look) if other != table]
        calls = self._calls(wanted)
        before = next((parsed for parsed in self._parsed if all(map(parsed.has, calls))), None)
        parsed = before or self._parsed_with(calls, [other for other in others if other != wanted])
        topic = self._decoder.decode(table, self._part, wanted, parsed, knows_all=knows_all)
        self._decoded.append((wanted, topic))
        if wanted in others:
            self._keep(topic.decoded.frame)
        return topic, before is not None

    def release(self) -> None:
        """Let go of what is kept for several tables."""
        for frame in self._kept:
            frame.unpersist()
        for made in (self._kept, self._parsed, self._decoded):
            made.clear()

    def _expecting(self, *, look: bool) -> list[tuple[Table, Wanted]]:
        """What each table will want, as far as its definition tells; nothing where one table takes all."""
        if look not in self._expected:
            several = self._tables if len(self._tables) > 1 else ()
            self._expected[look] = [(table, wanted) for table in several for wanted in self._wanted(table, look=look)]
        return self._expected[look]

    def _wanted(self, table: Table, *, look: bool) -> Iterator[Wanted]:
        try:
            yield self._decoder.wanted(table, self._part, (), look=look)[0]
        except LakeholdError:
            # The table stops by this when its turn comes.
            return

    def _parsed_with(self, calls: Sequence[Call], others: Sequence[Wanted]) -> Parsed | None:
        """The records parsed for one table and `others`; None if nobody else wants anything of them."""
        of_others = [call for other in others for call in self._calls(other)]
        if not of_others:
            return None
        parsed = parsed_for(self._part.raw, [*calls, *of_others])
        self._keep(parsed.frame)
        self._parsed.append(parsed)
        return parsed

    def _calls(self, wanted: Wanted) -> Sequence[Call]:
        try:
            return self._decoder.calls(wanted)
        except LakeholdError:
            # The table stops by this when its turn comes.
            return ()

    def _keep(self, frame: DataFrame) -> None:
        frame.persist()
        self._kept.append(frame)
