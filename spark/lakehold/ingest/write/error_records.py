"""Messages that cannot be applied become rows of `mz_catalog.mz_source_errors`; a good value heals its key.

Messages that cannot be decoded, for example, do not stop their table (unless it was created with ON ERROR = 'fail'). A later good
message of the same key makes the error obsolete: it is *healed*, and `healed_at` has the timestamp of the batch. A batch's
messages of one table are written in one commit, and only if the batch has written none. So a crash leaves neither a gap nor a
repetition, and a writer that lost its lease does not reopen a healed error. A table that stops after that tries the batch again
under another timestamp: offsets that are recorded already are skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.expressions import And, BooleanExpression, EqualTo, In, IsNull, Or, Reference
from pyiceberg.expressions.literals import literal as iceberg_literal
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehold.errors import CommitConflict
from lakehold.iceberg.data_tables import DataTables
from lakehold.ingest.deduplicate.carriers import COUNTS
from lakehold.ingest.envelope.change_columns import (
    DETAIL,
    ERROR,
    KEY_BYTES,
    OFFSET,
    OP,
    PARTITION,
    ROW_MISSING,
    Op,
)
from lakehold.ingest.read.reader import MalformedLine
from lakehold.session import row_by_row, temp_view
from lakehold.spark_sql import literal, quoted_table

if TYPE_CHECKING:
    from lakehold.definitions import Table
    from lakehold.ingest.deduplicate.statistics import BatchStatistics
    from lakehold.ingest.write.batch_effects import BatchIdentity

log = logging.getLogger(__name__)

TABLE = "mz_catalog.mz_source_errors"
_GOOD = "lakehold_good_keys"
_PLACE = ["topic", "partition", "offset"]
_ATTEMPTS = 10


@dataclass(frozen=True)
class ErrorRecords:
    """The messages in error of a source, in `mz_source_errors`.

    Args:
        spark: Returns the session.
        catalog_name: Spark's name of the lake's catalog.
        tables: Reads a table's metadata.
    """

    spark: Callable[[], SparkSession]
    catalog_name: str
    tables: DataTables
    _writing: Lock = field(default_factory=Lock, init=False, repr=False)

    @property
    def _table(self) -> str:
        return quoted_table(self.catalog_name, TABLE)

    def record(  # noqa: PLR0913 - a batch, a table and its messages
        self,
        batch: BatchIdentity,
        table: Table,
        deduplicated: DataFrame,
        raw: DataFrame,
        statistics: BatchStatistics,
        open_errors: int,
        *,
        heals: bool,
    ) -> int:
        """Record the batch's bad messages of `table`, and heal errors by its good ones.

        Args:
            batch: The batch.
            table: The table.
            deduplicated: The deduplicated changes.
            raw: The raw records.
            statistics: The batch's statistics.
            open_errors: Errors of the table that were not healed before the batch.
            heals: Whether a later message takes the place of an earlier one, by its key.

        Returns:
            Errors of the table that are not healed after the batch.
        """
        if statistics.errors:
            bad = deduplicated.filter(F.col(ERROR).isNotNull()).select(PARTITION, OFFSET, ERROR, DETAIL)
            self._write(batch, table.full_name, _with_records(bad, raw))
        if heals and (statistics.errors or (open_errors and statistics.records)):
            self._heal(batch, table.full_name, deduplicated)
        elif not statistics.errors:
            return open_errors
        return self.open_of(batch.source, table.full_name)

    def record_missing(self, batch: BatchIdentity, table: Table, missing: DataFrame, raw: DataFrame) -> None:
        """Record changes that remove rows which `table` lacks. They are found after `record`, while the batch is written.

        Args:
            batch: The batch.
            table: The table.
            missing: Partition, offset, error and detail of the changes.
            raw: The raw records.
        """
        self._write(batch, table.full_name, _with_records(missing, raw), reason=ROW_MISSING)

    def record_malformed(self, batch: BatchIdentity, lines: Sequence[MalformedLine]) -> None:
        """Record lines of a FILES source that are no messages: the file serves as topic, the byte offset as offset."""
        rows = pa.table(
            {
                "topic": [line.file for line in lines],
                "partition": pa.array([0] * len(lines), pa.int32()),
                "offset": pa.array([line.byte_offset for line in lines], pa.int64()),
                "timestamp_ms": pa.array([None] * len(lines), pa.int64()),
                "key": pa.array([None] * len(lines), pa.binary()),
                "value": pa.array([line.raw for line in lines], pa.binary()),
                "reason": ["malformed-line"] * len(lines),
                "detail": [f"line {line.line_number}: {line.reason}" for line in lines],
            }
        )
        self._write(batch, None, self.spark().createDataFrame(rows))

    def forget(self, source: str, table_names: Collection[str], *, malformed: bool = False) -> None:
        """Remove the errors of earlier tables of these names, and those of malformed lines if `malformed`.

        The new tables would heal them, and be reported to have them. Messages at their offsets would count as recorded. Another
        source may feed a new table, and have errors of its own for it.
        """
        name = Reference("table_name")
        wanted: BooleanExpression = In(term=name, literals={iceberg_literal(each) for each in table_names})
        own = f"table_name IN ({', '.join(map(literal, sorted(table_names)))})"
        if malformed:
            wanted, own = Or(wanted, IsNull(term=name)), f"({own} OR table_name IS NULL)"
        if not self._finds(And(_equals("source", source), wanted))[0]:
            return

        def delete() -> None:
            spark = self.spark()
            with row_by_row(spark):
                spark.sql(f"DELETE FROM {self._table} WHERE {_condition({'source': source})} AND {own}")

        self._retried(delete)

    def _write(
        self, batch: BatchIdentity, table_name: str | None, found: DataFrame, *, reason: str | None = None
    ) -> None:
        """Write messages in error of a table, or of none, unless the batch has written some, of this `reason` if given."""
        of_batch: dict[str, str | int | None] = {
            "source": batch.source,
            "table_name": table_name,
            "mz_timestamp": batch.timestamp_ms,
            **({} if reason is None else {"reason": reason}),
        }
        rows = found.select(
            F.lit(batch.source).alias("source"),
            F.lit(table_name).cast("string").alias("table_name"),
            "topic",
            "partition",
            "offset",
            F.lit(batch.timestamp_ms).cast("bigint").alias("mz_timestamp"),
            F.col("timestamp_ms").alias("record_timestamp_ms"),
            "key",
            "value",
            "reason",
            "detail",
            F.lit(None).cast("bigint").alias("healed_at"),
        )
        of_table = _condition({"source": batch.source, "table_name": table_name})
        spark = rows.sparkSession

        def write() -> None:
            is_written, snapshot_id = self._finds(And(*(_equals(name, value) for name, value in of_batch.items())))
            if is_written:
                return
            new, seen = rows, {}
            if snapshot_id is not None:
                recorded = f"SELECT {', '.join(_PLACE)} FROM {self._table} VERSION AS OF {snapshot_id} WHERE {of_table}"
                new = rows.join(spark.sql(recorded), _PLACE, "left_anti").select(*rows.columns)
                seen = {"validate-from-snapshot-id": str(snapshot_id)}
            writer = new.writeTo(self._table).option("isolation-level", "serializable").options(**seen)
            with row_by_row(spark):
                writer.overwrite(F.expr(_condition(of_batch)))

        self._retried(write)

    def _finds(self, wanted: BooleanExpression) -> tuple[bool, int | None]:
        """Return whether such messages exist, and in which snapshot that was checked."""
        state = self.tables.table_state(TABLE)
        if state is None or state.snapshot_id is None:
            return False, None
        found = state.table.scan(wanted, selected_fields=("offset",), limit=1).to_arrow()
        return found.num_rows > 0, state.snapshot_id

    def _heal(self, batch: BatchIdentity, table_name: str, deduplicated: DataFrame) -> None:
        """Heal earlier errors of the keys of good messages; a null key with a null value heals errors without a key."""
        good = (
            deduplicated.filter(F.col(COUNTS) | (F.col(OP) == Op.NOTHING.value))
            .groupBy(F.col(KEY_BYTES).alias("key"))
            .agg(F.max(OFFSET).alias("offset"), F.max_by(PARTITION, OFFSET).alias("partition"))
        )
        statement = f"""
            MERGE INTO {self._table} e USING {_GOOD} g
            ON {_condition({"e.source": batch.source, "e.table_name": table_name})} AND e.healed_at IS NULL
               AND e.key <=> g.key
               AND (e.offset < g.offset OR (e.partition <> g.partition AND e.mz_timestamp < {batch.timestamp_ms}))
            WHEN MATCHED THEN UPDATE SET healed_at = {batch.timestamp_ms}"""
        spark = good.sparkSession

        def heal() -> None:
            with temp_view(good, _GOOD), row_by_row(spark):
                spark.sql(statement)

        self._retried(heal)

    def open_of(self, source: str, table_name: str) -> int:
        """Count the errors of a table that are not healed."""
        own = _condition({"source": source, "table_name": table_name})
        with row_by_row(self.spark()):
            return self.spark().table(self._table).filter(f"{own} AND healed_at IS NULL").count()

    def _retried(self, write: Callable[[], object]) -> None:
        """Write, and retry after a conflict: all sources share the table, and Iceberg does not retry.

        Within a process, tables write one after the other: otherwise all but one would fail each time. `write` takes the lock of
        a session (`row_by_row`, `temp_view`) only inside: taken in either order, two tables could wait for each other for ever.
        """
        with self._writing:
            self._retry(write)

    def _retry(self, write: Callable[[], object]) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                write()
            # Each session kind has its own class for Iceberg's conflict; its text is the same.
            except Exception as error:
                conflict = any(name in str(error) for name in ("CommitFailedException", "ValidationException"))
                if not conflict:
                    raise
                if attempt == _ATTEMPTS - 1:
                    raise CommitConflict(
                        f'other writers kept changing "{TABLE}"',
                        hint="Ingest again: the batch continues where it stopped.",
                    ) from error
                log.info("another writer changed %s first, retrying", TABLE)
            else:
                return


def _with_records(bad: DataFrame, raw: DataFrame) -> DataFrame:
    """Return the raw records of messages in error, with the reasons."""
    at = (F.col("partition") == F.col(PARTITION)) & (F.col("offset") == F.col(OFFSET))
    return raw.join(F.broadcast(bad), at).select(
        "topic",
        "partition",
        "offset",
        "timestamp_ms",
        "key",
        "value",
        F.col(ERROR).alias("reason"),
        F.col(DETAIL).alias("detail"),
    )


def _equals(name: str, value: str | int | None) -> BooleanExpression:
    if value is None:
        return IsNull(term=Reference(name))
    return EqualTo(term=Reference(name), value=iceberg_literal(value))


def _condition(values: Mapping[str, str | int | None]) -> str:
    return " AND ".join(
        f"{name} IS NULL" if value is None else f"{name} = {literal(value)}" for name, value in values.items()
    )
