"""Writes rows as data files of an output table: one file per partition, or several once enough rows have come."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import pyarrow as pa
from pyiceberg.io.pyarrow import write_file
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.table import Table, TableProperties, WriteTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import LongType

from lakehold.iceberg.attempts import changing
from lakehold.iceberg.deletion import delete_or_log
from lakehold.publish.output_columns import fit_columns
from lakehold.subscribe.output_batches import OutputChunk
from lakehold.subscribe.row_values import is_beyond_python

FILE_BYTES = 128 * 1024 * 1024
"""Bytes of rows in memory that are written as a file, so that a snapshot of any size fits in memory."""


class OutputFiles:
    """A writer of one commit's data files.

    Args:
        table: The output table, which has the columns of the rows.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._write_id = uuid.uuid4()
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self._partition: PartitionKey | None = None
        self._files: list[DataFile] = []

    def add(self, chunk: OutputChunk) -> None:
        """Add rows; timestamps never go back."""
        partition = self._partition_of(chunk.mz_timestamp)
        if self._waiting and (self._partition != partition or self._waiting_bytes >= FILE_BYTES):
            self._write()
        self._partition = partition
        self._waiting.append(chunk.rows)
        self._waiting_bytes += chunk.rows.nbytes

    def files(self) -> tuple[DataFile, ...]:
        """Write the remaining rows and return all files; nothing can be added afterwards."""
        if self._waiting:
            self._write()
        return tuple(self._files)

    def delete(self) -> None:
        """Delete the files that were written and will not be committed."""
        delete_or_log(self._table.io, [file.file_path for file in self._files])

    def _partition_of(self, mz_timestamp: int) -> PartitionKey:
        """Return the partition of rows at that time: `OutputTable.prepare` refuses tables that are partitioned otherwise."""
        values = [
            PartitionFieldValue(field, field.transform.transform(LongType())(mz_timestamp))
            for field in self._table.spec().fields
        ]
        return PartitionKey(values, self._table.spec(), self._table.schema())

    def _write(self) -> None:
        schema = self._table.schema()
        rows = _together(self._waiting, schema.as_arrow())
        task = WriteTask(
            write_uuid=self._write_id,
            task_id=len(self._files),
            schema=schema,
            record_batches=rows.to_batches(),
            partition_key=self._partition,
        )
        with changing(".".join(self._table.name())):
            self._files += write_file(self._table.io, _without_bounds_beyond_python(self._table, rows), iter([task]))
        self._waiting, self._waiting_bytes = [], 0


def _without_bounds_beyond_python(table: Table, rows: pa.Table) -> TableMetadata:
    """Return table metadata that disables bounds for columns with dates that Python cannot hold.

    PyIceberg computes bounds as Python values. Such columns are only counted.
    """
    beyond = [name for name in rows.column_names if any(map(is_beyond_python, rows.column(name).chunks))]
    modes = {f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}.{name}": "counts" for name in beyond}
    return table.metadata.model_copy(update={"properties": {**table.properties, **modes}})


def _together(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([fit_columns(table, schema) for table in tables]).combine_chunks()
