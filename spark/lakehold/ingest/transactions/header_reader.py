"""Reads headers from raw records: one Spark job brings to the driver the facts about each record that whole transactions need.

Most topics are decoded for their tables, and the headers come from that (`record_headers.py`). This job is for the transaction
topic, for topics with messages that no table can decode, and for samples of large batches. Headers here are not Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from lakehold.arrow_frames import frame_of
from lakehold.definitions import FormatType
from lakehold.ingest.decode.envelope_fields import ANY_JSON, HeadSchemas, heads
from lakehold.ingest.decode.record_schemas import AvroIds
from lakehold.ingest.decode.schema_ids import schema_ids_in_driver
from lakehold.ingest.envelope.header_columns import header_columns
from lakehold.ingest.read.reader import RAW_DDL
from lakehold.ingest.transactions.metadata import RECORDS
from lakehold.ingest.transactions.record_headers import as_headers

if TYPE_CHECKING:
    # The registry's client takes a second to import, which sources without a registry do not need.
    from lakehold.kafka.registry import Registry

_UNKNOWN = "unknown_schema"


@dataclass(frozen=True)
class Records:
    """A reader of headers from the raw records of a source; it decodes only the fields around the rows of Debezium's messages.

    Args:
        transaction_topic: The source's transaction topic.
        written: The source's format.
        registry: The registry of Avro schemas; None for JSON.
        spark: Returns the session.
        max_record_bytes: Records whose key and value are longer together are not read.
    """

    transaction_topic: str
    written: FormatType
    registry: Registry | None
    spark: Callable[[], SparkSession]
    max_record_bytes: int

    def headers(self, records: pa.Table | DataFrame, topics: frozenset[str]) -> tuple[pa.Table, pa.Table]:
        """Fetch `HEADERS` of the records that have one, and `RECORDS` of the transaction topic.

        Args:
            records: Raw records of `topics`, of the transaction topic and perhaps of others, in any order: a table if they
                are few.
            topics: The topics whose events must be complete.

        Returns:
            `HEADERS` (`record_headers.py`) and `RECORDS` (`metadata.py`).
        """
        wanted = sorted({*topics, self.transaction_topic})
        if isinstance(records, pa.Table):
            records = records.filter(pc.is_in(records["topic"], pa.array(wanted, pa.string())))
            schemas = self._schemas_in(records)
            raw = frame_of(records, self.spark(), RAW_DDL)
        else:
            schemas = self._schemas_of(topics)
            raw = records.filter(records["topic"].isin(*wanted))
        found = self._fetch(raw, schemas)
        more = self._more(schemas, found)
        if more is not None:
            found = self._fetch(raw, more)
        of_transactions = self._are_of_transactions(found)
        changes, transactions = found.filter(pc.invert(of_transactions)), found.filter(of_transactions)
        return as_headers(changes), transactions.select(RECORDS.names).cast(RECORDS)

    def _fetch(self, raw: DataFrame, schemas: HeadSchemas) -> pa.Table:
        columns = header_columns()
        columns |= {
            "kind": f"coalesce(status, {columns['kind']})",
            "transaction_id": f"coalesce(id, {columns['transaction_id']})",
        }
        found = heads(raw, schemas, self.transaction_topic, self.max_record_bytes).selectExpr(
            "topic",
            "partition",
            "offset",
            *(f"{sql} AS {name}" for name, sql in columns.items()),
            "data_collections",
            _UNKNOWN,
        )
        return found.filter(found["kind"].isNotNull()).toArrow()

    def _schemas_in(self, records: pa.Table) -> HeadSchemas:
        """Return the schemas that a few records use."""
        if self.registry is None:
            return HeadSchemas(ANY_JSON, ANY_JSON)
        of_transactions = self._are_of_transactions(records)
        parts = (records.filter(pc.invert(of_transactions)), records.filter(of_transactions))
        changes, transactions = (schema_ids_in_driver(each, self.written).values for each in parts)
        return HeadSchemas(_known(self.registry, changes), _known(self.registry, transactions))

    def _schemas_of(self, topics: frozenset[str]) -> HeadSchemas:
        """Return the schemas that records of some topics, and of the transaction topic, most likely use."""
        if self.registry is None:
            return HeadSchemas(ANY_JSON, ANY_JSON)
        ids = self.registry.subject_ids
        changes = frozenset(i for topic in topics for i in ids(f"{topic}-value"))
        return HeadSchemas(
            _known(self.registry, changes), _known(self.registry, ids(f"{self.transaction_topic}-value"))
        )

    def _more(self, schemas: HeadSchemas, found: pa.Table) -> HeadSchemas | None:
        """Add the further schemas that records name; None: the registry has none of these."""
        unknown = found.filter(pc.is_valid(found[_UNKNOWN]))
        if self.registry is None or not unknown.num_rows:
            return None
        of_transactions = self._are_of_transactions(unknown)
        masks = (pc.invert(of_transactions), of_transactions)
        changes, transactions = (_known(self.registry, unknown[_UNKNOWN].filter(m).unique().to_pylist()) for m in masks)
        return schemas.joined(changes, transactions) if changes.schemas or transactions.schemas else None

    def _are_of_transactions(self, records: pa.Table) -> pa.ChunkedArray:
        return pc.equal(records["topic"], self.transaction_topic)


def _known(registry: Registry, ids: Iterable[int | str]) -> AvroIds:
    return AvroIds(registry.schema_texts(i for i in ids if isinstance(i, int)))
