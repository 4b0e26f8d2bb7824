"""Rows of data files that a change added or removed, as Arrow tables of diffs in the table's current schema.

A table of diffs has the columns `mz_timestamp` (int64, epoch milliseconds), `mz_diff` (int64), then the row's columns. Columns
are addressed by position, because a table may have a column of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyiceberg.io import FileIO, InputStream
from pyiceberg.io.pyarrow import PYARROW_PARQUET_FIELD_ID_KEY, UnsupportedPyArrowTypeException, pyarrow_to_schema
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.transforms import IdentityTransform
from pyroaring import BitMap64

from lakehold.subscribe.changed_rows import RowSelection
from lakehold.subscribe.deleted_positions import FilesUnreadable
from lakehold.subscribe.fetching import opened
from lakehold.subscribe.live_files import LiveFile
from lakehold.subscribe.project import arrow_schema, project
from lakehold.subscribe.stored_types import reads_alike

TIMESTAMP, DIFF = 0, 1
"""Positions of the first two columns of a table of diffs."""

ROW = 2
"""Position of the row's first column."""

Indices = NDArray[np.int64]

_ROWS_PER_BATCH = 1 << 17
"""Rows of a batch of `FileRows.batches`: enough for NumPy to be fast, and little memory."""


@dataclass(frozen=True)
class DatedSelection:
    """Rows that were added or removed at `mz_timestamp`."""

    mz_timestamp: int
    selection: RowSelection


def best_known(selections: Iterable[DatedSelection]) -> LiveFile:
    """Return the file that all `selections` are of, with its size if one of them knows it: one made from deletes does not."""
    return max((dated.selection.file for dated in selections), key=lambda file: file.size_bytes)


@dataclass(frozen=True)
class FoundRows:
    """Rows as they are stored in a file.

    Args:
        written: The columns of the rows.
        constants: Values of columns that the file omits, by field id.
        rows: The rows of all selections, in the order of `selections`.
        selections: Timestamp, diff and number of rows of each selection.
    """

    written: Schema
    constants: Mapping[int, Any]
    rows: pa.Table
    selections: Sequence[tuple[int, int, int]]


@dataclass(frozen=True)
class FileRows:
    """A reader of one table's data files. It holds only values, so Spark's workers can use it too.

    Args:
        io: Opens files.
        schema: The columns wanted.
        specs: The table's partition specs: files may omit the values of identity partitions.
        names: Maps names to columns for files that were written without field ids.
        format_version: The table's format version.
        known: Cached answers of `_written`, by the serialized Arrow schema of a file.
    """

    io: FileIO
    schema: Schema
    specs: Mapping[int, PartitionSpec]
    names: NameMapping | None
    format_version: int
    known: dict[bytes, Schema] = field(default_factory=dict, compare=False)

    def read(self, file: LiveFile, selections: Sequence[DatedSelection]) -> FoundRows:
        """Read the rows of `selections`, which all belong to `file`.

        Raises:
            FilesUnreadable: Arrow cannot read the file, or neither file nor table maps its columns to field ids.
        """
        is_whole = any(dated.selection.is_whole_file for dated in selections)
        with _read_by_arrow(), opened(self.io, file.path) as stream, _parquet(stream) as parquet:
            written = self._written(parquet.schema_arrow)
            columns = [field.name for field in written.fields]
            if is_whole:
                rows, counts = _take_selections(parquet.read(columns, use_threads=False), selections)
            else:
                rows, counts = _at_positions(parquet, columns, selections)
        dated = [(of.mz_timestamp, of.selection.diff, count) for of, count in zip(selections, counts, strict=True)]
        return FoundRows(written, self._constants(file), rows, dated)

    def batches(self, selection: RowSelection) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a file but the hidden ones, in the wanted columns, without keeping the whole file in memory.

        Raises:
            FilesUnreadable: As `read` does.
        """
        hidden, first = _array(selection.hidden), 0
        constants = self._constants(selection.file)
        with _read_by_arrow(), opened(self.io, selection.file.path) as stream, _parquet(stream) as parquet:
            written = self._written(parquet.schema_arrow)
            columns = [field.name for field in written.fields]
            for batch in parquet.iter_batches(_ROWS_PER_BATCH, columns=columns, use_threads=False):
                low, high = np.searchsorted(hidden, (first, first + batch.num_rows))
                shown = np.ones(batch.num_rows, np.bool_)
                shown[hidden[low:high] - first] = False
                rows = pa.Table.from_batches([batch if high == low else batch.filter(pa.array(shown))])
                yield from project(rows, written, self.schema, constants).to_batches()
                first += batch.num_rows

    def check(self, file: LiveFile) -> None:
        """Check that a file's columns can be read, without reading rows; raises as `read` does."""
        with _read_by_arrow(), opened(self.io, file.path) as stream, _parquet(stream) as parquet:
            self._written(parquet.schema_arrow)

    def shaped(self, found: Iterable[FoundRows]) -> pa.Table:
        """Convert rows read from files to diffs in the wanted columns; files stored alike are converted together."""
        alike: list[list[FoundRows]] = []
        for rows in found:
            for others in alike:
                if others[0].written is rows.written and others[0].constants == rows.constants:
                    others.append(rows)
                    break
            else:
                alike.append([rows])
        schema = diff_schema(self.schema)
        with _read_by_arrow():
            return pa.concat_tables([schema.empty_table(), *(self._shaped(rows, schema) for rows in alike)])

    def _shaped(self, alike: Sequence[FoundRows], schema: pa.Schema) -> pa.Table:
        rows = pa.concat_tables(found.rows for found in alike).combine_chunks()
        row = project(rows, alike[0].written, self.schema, alike[0].constants)
        timestamps, diffs, counts = zip(*(selection for found in alike for selection in found.selections), strict=True)
        dates = (pa.array(np.repeat(np.array(values, np.int64), counts)) for values in (timestamps, diffs))
        return pa.Table.from_arrays([*dates, *row.columns], schema=schema)

    def _written(self, columns: pa.Schema) -> Schema:
        """Find the wanted columns in a file's schema.

        Files of one writer have the same columns, and examining them takes longer than reading a small file. So answers are kept.
        """
        key = columns.remove_metadata().serialize().to_pybytes()
        if key not in self.known:
            wanted = {field.field_id for field in self.schema.fields}
            ids = [_field_id(field) for field in columns]
            # Other columns are not needed. If a file has no wanted column, one other column still gives the number of rows.
            read = [field for field, id_ in zip(columns, ids, strict=True) if id_ is None or id_ in wanted]
            in_file = pyarrow_to_schema(
                pa.schema(read or list(columns)[:1]),
                self.names if not any(ids) else None,
                downcast_ns_timestamp_to_us=True,
                format_version=self.format_version,  # type: ignore[arg-type]
            )
            fields = [field for field in in_file.fields if field.field_id in wanted] or in_file.fields[:1]
            written = Schema(*fields)
            if not reads_alike(
                pa.struct([columns.field(f.name) for f in fields]), written.as_struct(), self.schema.as_struct()
            ):
                raise FilesUnreadable("columns stored in other types than Iceberg's")
            self.known[key] = written
        return self.known[key]

    def _constants(self, file: LiveFile) -> dict[int, Any]:
        spec = self.specs.get(file.spec_id)
        if spec is None:
            return {}
        values = zip(spec.fields, file.partition, strict=False)
        return {field.source_id: value for field, value in values if isinstance(field.transform, IdentityTransform)}


@contextmanager
def _read_by_arrow() -> Iterator[None]:
    """Turn errors of Arrow and PyIceberg into `FilesUnreadable`, so that Spark reads the file.

    They cannot read some encodings and types, nor values that do not fit their types.
    """
    try:
        yield
    except (
        pa.ArrowInvalid,
        pa.ArrowNotImplementedError,
        UnsupportedPyArrowTypeException,
        TypeError,
        ValueError,
    ) as error:
        raise FilesUnreadable(str(error)) from error


def _parquet(stream: InputStream | pa.BufferReader) -> pq.ParquetFile:
    # As nanoseconds, INT96 would end in the year 2262 and begin again in 1677.
    # Columns that are far apart in a file are requested at once, and neighbours with one request.
    return pq.ParquetFile(stream, coerce_int96_timestamp_unit="us", pre_buffer=True)


def _field_id(field: pa.Field) -> int | None:
    written = (field.metadata or {}).get(PYARROW_PARQUET_FIELD_ID_KEY)
    return int(written) if written is not None else None


def file_rows(table: Table, schema: Schema) -> FileRows:
    """Build a reader of the files of `table`, in the columns of `schema`."""
    return FileRows(table.io, schema, table.specs(), table.name_mapping(), table.format_version)


def diff_schema(schema: Schema) -> pa.Schema:
    """Return the columns of diffs for rows with `schema`."""
    first = [pa.field("mz_timestamp", pa.int64()), pa.field("mz_diff", pa.int64())]
    return pa.schema([*first, *arrow_schema(schema)])


def _positions(selection: RowSelection, total: int) -> Indices:
    if selection.positions is not None:
        return _array(selection.positions)
    every = np.arange(total, dtype=np.int64)
    return np.delete(every, _array(selection.hidden)) if selection.hidden else every


def _array(positions: BitMap64) -> Indices:
    return np.fromiter(positions, dtype=np.int64, count=len(positions))


def _union(positions: Sequence[Indices]) -> Indices:
    return positions[0] if len(positions) == 1 else np.unique(np.concatenate(positions))


def _take_selections(rows: pa.Table, selections: Sequence[DatedSelection]) -> tuple[pa.Table, list[int]]:
    """Take the rows of the selections from all rows of a file; also return the number of rows per selection."""
    if len(selections) == 1:
        return rows, [rows.num_rows]
    positions = [_positions(dated.selection, rows.num_rows) for dated in selections]
    return rows.take(pa.array(np.concatenate(positions))), [len(wanted) for wanted in positions]


def _at_positions(
    parquet: pq.ParquetFile, columns: list[str], selections: Sequence[DatedSelection]
) -> tuple[pa.Table, list[int]]:
    """Read the rows of one file's selections in one pass; also return the number of rows per selection.

    A row that was added and removed appears once for each.
    """
    positions = [_positions(dated.selection, parquet.metadata.num_rows) for dated in selections]
    together = _union(positions)
    rows = _take(parquet, columns, together)
    if len(selections) > 1:
        rows = rows.take(pa.array(np.searchsorted(together, np.concatenate(positions))))
    return rows, [len(wanted) for wanted in positions]


def _take(parquet: pq.ParquetFile, columns: list[str], positions: Indices) -> pa.Table:
    """Read the rows at `positions`, in order; row groups without any of them are not read."""
    found = [parquet.schema_arrow.empty_table().select(columns)]
    first = 0
    for group in range(parquet.metadata.num_row_groups):
        end = first + parquet.metadata.row_group(group).num_rows
        low, high = np.searchsorted(positions, (first, end))
        if high > low:
            rows = parquet.read_row_group(group, columns=columns)
            whole = high - low == end - first
            found.append(rows if whole else rows.take(pa.array(positions[low:high] - first)))
        first = end
    return pa.concat_tables(found)
