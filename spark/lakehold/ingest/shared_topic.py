"""Reads the records of one topic once, and decodes them in one pass for all tables that the topic feeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehold.definitions import Table
from lakehold.errors import LakeholdError
from lakehold.ingest.decode.decoded import Decoded, Wanted
from lakehold.ingest.decode.shared_decoding import DecodedTogether
from lakehold.ingest.topic import DecodedTopic, Stored, TopicDecoder, TopicPart


class SharedTopic:
    """A topic's records, with the results of decoding them so far.

    Args:
        decoder: Decodes.
        records: The records in the driver, also called `here`, or a function that has Spark read them.
        tables: The tables that take them.
    """

    def __init__(
        self, decoder: TopicDecoder, records: pa.Table | Callable[[], DataFrame], tables: Sequence[Table]
    ) -> None:
        self.here = records if isinstance(records, pa.Table) else None
        self._tables = tables
        self._decoder = decoder
        self._records = records
        self._together: list[DecodedTogether] = []
        self._persisted: list[DataFrame] = []

    @cached_property
    def _part(self) -> TopicPart:
        """Return the records, in the session of the lane that decodes them."""
        return self._decoder.part(self._records() if callable(self._records) else self._records)

    @property
    def may_have_records(self) -> bool:
        """Return whether there may be records; without Spark that is not always known."""
        return self.here is None or self.here.num_rows > 0

    def decoded(self, table: Table, stored: Stored, *, scan_schemas: bool) -> tuple[DecodedTopic, bool]:
        """Return the records decoded for a table, and whether another table's decoding served.

        Args:
            table: The table.
            stored: The columns of its Iceberg table.
            scan_schemas: Whether to look up in the records which schemas they use, rather than take those of the registry.
        """
        wanted, knows_all = self._decoder.wanted(table, self._part, stored, scan_schemas=scan_schemas)
        is_shared = (found := self._found(wanted)) is not None
        if found is None:
            self._decode_with_others(table, wanted, scan_schemas=scan_schemas)
            found = self._found(wanted) or self._decoder.decode(table, self._part, wanted, stored.columns)
        return DecodedTopic(self._part.raw, found, knows_all), is_shared

    def release(self) -> None:
        """Release what is kept for several tables."""
        for frame in self._persisted:
            frame.unpersist()
        self._persisted.clear()
        self._together.clear()

    def _found(self, wanted: Wanted) -> Decoded | None:
        return next((found for each in self._together if (found := each.of(wanted)) is not None), None)

    def _decode_with_others(self, table: Table, wanted: Wanted, *, scan_schemas: bool) -> None:
        """Decode the records for a table, and in the same pass for the other tables whose definitions show what they need."""
        others = [
            each for other in self._tables if other != table for each in self._wanted(other, scan_schemas=scan_schemas)
        ]
        # If one of them cannot be decoded, it alone stops, when its turn comes.
        with suppress(LakeholdError):
            if others:
                self._together.append(self._decoder.decode_together(self._part, [wanted, *others], self._kept))

    def _wanted(self, table: Table, *, scan_schemas: bool) -> Iterator[Wanted]:
        # The table stops with this error when its turn comes.
        with suppress(LakeholdError):
            yield self._decoder.wanted(table, self._part, Stored(), scan_schemas=scan_schemas)[0]

    def _kept(self, frame: DataFrame) -> DataFrame:
        """Return the same records, cached once they have been read."""
        # In one column: Spark's cache takes twice as long for a dozen columns.
        packed = frame.select(F.struct("*").alias("record"))
        self._persisted.append(packed.persist())
        return packed.select("record.*")
