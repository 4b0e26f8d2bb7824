"""Diffs too large for one process: Spark reads, sums and sorts them, and returns them in chunks.

Data frames of diffs have the columns `t` (mz_timestamp), `d` (mz_diff), then `c0`, `c1`, … for the row's columns, whose own names
may be anything.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from operator import itemgetter
from uuid import uuid4

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType
from pyiceberg.types import MapType as IcebergMap
from pyiceberg.types import StructType as IcebergStruct
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from lakehold.arrow_frames import frame_of
from lakehold.executor_python import map_in_arrow
from lakehold.spark_sql import quoted, quoted_table
from lakehold.subscribe.file_rows import DatedSelection, FileRows, best_known, diff_schema
from lakehold.subscribe.project import arrow_type, is_readable
from lakehold.subscribe.project_sql import projection
from lakehold.subscribe.spark_types import spark_schema, spark_type
from lakehold.timeline.table_timeline import Timeline

_TIMESTAMP, _DIFF = "t", "d"
_SPREAD = (0, 4, 2, 6, 1, 5, 3, 7)
"""The order of the tasks that read few rows, from the one with the most: so halves and quarters of them have about as many.

More rows have a task for each chunk.
"""
_ROWS_PER_CHUNK = 250_000
"""Rows per chunk of a large sorted frame: the driver holds a whole chunk in memory."""
_CHUNKS_BY_SPARK = 8
"""Number of chunks up to which Spark chooses the partitions itself, and joins small ones."""

_UNFILTERED = "element_at(array({}), 1)"
"""Returns a column unchanged, but keeps Spark from pushing filters on it down to Iceberg."""

_EVALUATION = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled", "spark.sql.caseSensitive")

_NOT_KEPT_BY_GROUPING = (MapType, FloatType, DoubleType)


@dataclass(frozen=True)
class LargeDiffs:
    """Diffs that are too large for this process.

    Attributes:
        frame: The diffs.
        rows: Upper bound of their number; 0 if unknown.
        times: The timestamps that they may have, ascending; empty if nobody needs them.
    """

    frame: DataFrame
    rows: int
    times: tuple[int, ...] = ()


@dataclass(frozen=True)
class OnSpark:
    """Access to a lake's tables through Spark.

    Args:
        session: Returns the Spark session.
        catalog_name: Spark's name of the lake's catalog.
    """

    session: Callable[[], SparkSession]
    catalog_name: str

    def state(self, timeline: Timeline, snapshot_id: int | None, wanted: Schema) -> DataFrame:
        """Read the rows of a snapshot in the columns of `wanted`; no rows for None."""
        name = quoted_table(self.catalog_name, timeline.full_name)
        if snapshot_id is None:
            return self.empty(wanted)
        written = snapshot_schema(timeline, snapshot_id)
        expressions = projection(written, wanted)
        if misses_filtered_columns(timeline, snapshot_id):
            expressions = [_UNFILTERED.format(expression) for expression in expressions]
        columns = _columns(expressions, wanted)
        return self.session().sql(f"SELECT {columns} FROM {name} VERSION AS OF {snapshot_id}")

    def select(self, text: str, views: Mapping[str, DataFrame]) -> DataFrame:
        """Run a query that reads `views` by names that occur nowhere else in its text.

        The data frames are passed with the query, not registered in the session: Spark Connect resolves names only when it runs.
        """
        if not views:
            return self.session().sql(text)
        escaped = text.replace("{", "{{").replace("}", "}}")
        for name in views:
            escaped = escaped.replace(name, f"{{{name}}}")
        return self.session().sql(escaped, None, **views)

    def evaluation_settings(self) -> tuple[str | None, ...]:
        """Return the settings of the session on which the values of expressions depend."""
        conf = self.session().conf
        return tuple(conf.get(name, None) for name in _EVALUATION)

    def empty(self, columns: Schema) -> DataFrame:
        """Create a data frame without rows; columns that SUBSCRIBE cannot read get the type variant."""
        return self.session().createDataFrame([], _struct_type(columns.as_struct()))

    def read_selections(self, reader: FileRows, selections: Sequence[DatedSelection]) -> LargeDiffs:
        """Read the rows of `selections` as diffs on Spark's executors, each file once."""
        spark = self.session()
        of_file: dict[str, list[DatedSelection]] = {}
        for selection in selections:
            of_file.setdefault(selection.selection.file.path, []).append(selection)
        rows = sum(selection.selection.rows for selection in selections)
        columns = diff_schema(reader.schema)
        schema = spark_schema(renamed(columns, frame_names(len(columns) - 2)))

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for task in batch.column(0).to_pylist():
                    files: list[Sequence[DatedSelection]] = pickle.loads(task)
                    for together in files:
                        found = reader.shaped([reader.read(best_known(together), together)])
                        yield from found.rename_columns(schema.names).to_batches()

        tasks = dealt(of_file.values(), max(len(_SPREAD), rows // _ROWS_PER_CHUNK))
        frame = frame_of(pa.table({"task": pa.array(map(pickle.dumps, tasks), pa.binary())}), spark, "task binary")
        if len(tasks) > len(_SPREAD):
            # More tasks than Spark makes of few local rows. It deals few rows unevenly, so few tasks stay where they are.
            frame = frame.repartition(len(tasks))
        times = tuple(sorted({selection.mz_timestamp for selection in selections}))
        return LargeDiffs(map_in_arrow(frame, read, schema), rows, times)


def dealt(files: Iterable[Sequence[DatedSelection]], most: int) -> list[list[Sequence[DatedSelection]]]:
    """Deal the selections of files, each to one task, to at most `most` tasks that have about as many rows.

    Runs of few tasks, as Spark makes them for its cores, have about as many rows, too.
    """
    sized = [(sum(dated.selection.rows for dated in file), file) for file in files]
    loads = [(0, number) for number in range(min(len(sized), most))]
    tasks: list[list[Sequence[DatedSelection]]] = [[] for _ in loads]
    for rows, file in sorted(sized, key=itemgetter(0), reverse=True):
        load, number = loads[0]
        tasks[number].append(file)
        heapreplace(loads, (load + rows, number))
    largest_first = [tasks[number] for _, number in sorted(loads, reverse=True)]
    if len(tasks) > len(_SPREAD):
        return largest_first
    return [largest_first[place] for place in _SPREAD if place < len(tasks)]


def snapshot_schema(timeline: Timeline, snapshot_id: int) -> Schema:
    """Return the schema that a snapshot was written with."""
    table = timeline.table
    snapshot = table.snapshot_by_id(snapshot_id)
    schema_id = snapshot.schema_id if snapshot is not None else None
    return table.schemas().get(schema_id, table.schema()) if schema_id is not None else table.schema()


def dated(rows: DataFrame, mz_timestamp: int, diff: int) -> DataFrame:
    """Add a timestamp and a diff to `rows`."""
    named = _named(rows)
    return named.select(F.lit(mz_timestamp).alias(_TIMESTAMP), F.lit(diff).cast("bigint").alias(_DIFF), "*")


def dated_between(rows: DataFrame, came_at: int | None, went_at: int | None) -> DataFrame:
    """Convert `rows` to diffs: +1 at `came_at` and -1 at `went_at`; None omits that diff."""
    changes = [(came_at, 1), (went_at, -1)]
    structs = [
        F.struct(F.lit(at).alias(_TIMESTAMP), F.lit(d).cast("bigint").alias(_DIFF))
        for at, d in changes
        if at is not None
    ]
    named = _named(rows)
    return named.select(F.inline(F.array(*structs)), *named.columns)


def misses_filtered_columns(timeline: Timeline, snapshot_id: int) -> bool:
    """Return whether Iceberg fails on a filter over a snapshot that is requested by its id.

    For the current snapshot Iceberg resolves the filter's columns in the table's newest schema, but reads with the snapshot's own
    schema. So after a column was renamed it does not find the column.
    """
    table = timeline.table
    written = snapshot_schema(timeline, snapshot_id).as_struct()
    return snapshot_id == table.metadata.current_snapshot_id and written != table.schema().as_struct()


def summed(diffs: LargeDiffs) -> LargeDiffs:
    """Sum the diffs of equal rows per timestamp, and drop zeros.

    Columns with maps or floats are grouped by a copy (maps as sorted arrays), and the first original value of a group is
    returned: Spark takes a null value in a map for 0, and would return -0.0 as 0.0.
    """
    fields = diffs.frame.schema.fields[2:]
    names = [field.name for field in fields]
    images = {f.name: _sortable(F.col(f.name), f.dataType) for f in fields if _has(_NOT_KEPT_BY_GROUPING, f.dataType)}
    total = (
        diffs.frame.select("*", *(image.alias(f"k{name}") for name, image in images.items()))
        .groupBy(_TIMESTAMP, *(f"k{name}" if name in images else name for name in names))
        .agg(F.sum(_DIFF).alias(_DIFF), *(F.first(name).alias(name) for name in images))
    )
    return LargeDiffs(total.filter(F.col(_DIFF) != 0).select(_TIMESTAMP, _DIFF, *names), diffs.rows)


def clustered(diffs: LargeDiffs, key: Sequence[int]) -> DataFrame:
    """Sum diffs, and bring those of a timestamp and key next to each other in one partition.

    Args:
        diffs: The diffs, not summed.
        key: Zero-based positions of the key among the row's columns.
    """
    fields = [diffs.frame.schema.fields[2 + place] for place in key]
    # Spark may hash equal floats differently; then the rows of a timestamp stay together, whatever their key.
    hashed = [field.name for field in fields if not _has(_NOT_KEPT_BY_GROUPING, field.dataType)]
    together = diffs.frame.repartition(_TIMESTAMP, *hashed)
    found = summed(LargeDiffs(together, diffs.rows)).frame
    return found.sortWithinPartitions(_TIMESTAMP, *(row_column(place, found) for place in key))


def ordered(diffs: LargeDiffs, first: Sequence[Column] = (), row_columns: int | None = None) -> DataFrame:
    """Sort diffs by timestamp, then by `first`, then by row and diff, as `lakehold.subscribe.consolidate` sorts.

    `first` are sort keys, such as those of an envelope's key. `row_columns` is the number of columns in the row, for frames with
    further columns after them; None: there are none.
    """
    fields = diffs.frame.schema.fields[2:][:row_columns]
    row = [_sortable(F.col(field.name), field.dataType) for field in fields]
    by = [F.col(_TIMESTAMP), *first, *row, F.col(_DIFF)]
    chunks = -(-diffs.rows // _ROWS_PER_CHUNK)
    if chunks <= _CHUNKS_BY_SPARK:
        return diffs.frame.orderBy(*by)
    return diffs.frame.repartitionByRange(chunks, *by).sortWithinPartitions(*by)


def row_column(place: int, of: DataFrame) -> Column:
    """Return the sort key for the row's column at the zero-based position `place`, in a frame of diffs."""
    field = of.schema.fields[2 + place]
    return _sortable(F.col(field.name), field.dataType)


def streamed(diffs: DataFrame, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows in order, chunk by chunk: Spark returns one partition after the other, as Arrow data.

    Args:
        diffs: A frame of diffs.
        schema: Names and types of the returned tables.
    """

    def packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            yield pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], ["batch"])

    for row in map_in_arrow(diffs, packed, "batch binary").toLocalIterator(prefetchPartitions=True):
        with pa.ipc.open_stream(row[0]) as stream:
            table = stream.read_all()
        if table.num_rows:
            yield pa.Table.from_arrays(
                [column.cast(field.type) for column, field in zip(table.columns, schema, strict=True)], schema=schema
            )


def frame_of_diffs(diffs: pa.Table, spark: SparkSession) -> DataFrame:
    """Convert a table of diffs to a data frame."""
    columns = renamed(diffs.schema, frame_names(diffs.num_columns - 2))
    return frame_of(diffs.rename_columns(columns.names), spark, spark_schema(columns))


def frame_names(count: int) -> list[str]:
    """Return the column names of a data frame of diffs whose rows have `count` columns."""
    return [_TIMESTAMP, _DIFF, *_names(count)]


def _named(rows: DataFrame) -> DataFrame:
    return uncollated(rows, _names(len(rows.columns)))


def uncollated(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """Rename columns, and drop collations of text: by them Spark would sum the diffs of rows that differ."""
    types = [field.dataType for field in rows.schema.fields]
    plain = [without_collations(of) for of in types]
    named = rows.toDF(*names)
    if types == plain:
        return named
    return named.select(*(F.col(name).cast(of).alias(name) for name, of in zip(names, plain, strict=True)))


def without_collations(of: DataType) -> DataType:
    """Return a type without the collations of text in it."""
    match of:
        case StringType():
            return StringType()
        case ArrayType():
            return ArrayType(without_collations(of.elementType), of.containsNull)
        case MapType():
            return MapType(without_collations(of.keyType), without_collations(of.valueType), of.valueContainsNull)
        case StructType():
            return StructType(
                [StructField(f.name, without_collations(f.dataType), f.nullable, f.metadata) for f in of.fields]
            )
        case _:
            return of


def _names(count: int) -> list[str]:
    return [f"c{place}" for place in range(count)]


def _columns(expressions: Sequence[str], schema: Schema) -> str:
    pairs = zip(expressions, schema.fields, strict=True)
    return ", ".join(f"{expression} AS {quoted(field.name)}" for expression, field in pairs)


def view_name() -> str:
    """Create a unique name for a data frame that a query reads."""
    return f"lakehold_{uuid4().hex}"


def renamed(columns: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Give `columns` other names."""
    return pa.schema([field.with_name(name) for field, name in zip(columns, names, strict=True)])


def _has(kinds: tuple[type[DataType], ...], data_type: DataType) -> bool:
    """Return whether values of `data_type` contain a type of `kinds`; maps are not searched."""
    match data_type:
        case ArrayType():
            return _has(kinds, data_type.elementType)
        case StructType():
            return any(_has(kinds, field.dataType) for field in data_type.fields)
        case _:
            return isinstance(data_type, kinds)


def _struct_type(struct: IcebergStruct) -> StructType:
    return StructType([StructField(field.name, _spark_type(field.field_type)) for field in struct.fields])


def _spark_type(of: IcebergType) -> DataType:
    match of:
        case IcebergStruct():
            return _struct_type(of)
        case ListType():
            return ArrayType(_spark_type(of.element_type))
        case IcebergMap():
            return MapType(_spark_type(of.key_type), _spark_type(of.value_type))
        case _:
            return spark_type(arrow_type(of)) if is_readable(of) else VariantType()


def has_variant(data_type: DataType) -> bool:
    """Return whether values of `data_type` are or contain a variant."""
    return _has((VariantType,), data_type) or (
        isinstance(data_type, MapType) and (has_variant(data_type.keyType) or has_variant(data_type.valueType))
    )


def _sortable(column: Column, data_type: DataType) -> Column:
    """Convert a column to a value that Spark can sort by.

    Spark has no order for maps, so a map becomes the sorted array of its entries.
    """
    if not _has((MapType,), data_type):
        return column
    match data_type:
        case MapType(keyType=key, valueType=value):
            entries = F.transform(
                F.map_entries(column),
                lambda entry: F.struct(_sortable(entry["key"], key), _sortable(entry["value"], value)),
            )
            return F.array_sort(entries)
        case ArrayType(elementType=element):
            return F.transform(column, lambda inner: _sortable(inner, element))
        case StructType(fields=fields):
            image = F.struct(*(_sortable(column.getField(f.name), f.dataType) for f in fields))
            return F.when(column.isNotNull(), image)
        case _:
            return column
