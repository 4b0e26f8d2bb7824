"""The lake's side of `lakehold verify`: its digests are those of Spark, and it ends when the database's side fails."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import wait
from dataclasses import replace
from threading import Event

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.types import LongType, NestedField

from lakehold.errors import NotReadable
from lakehold.iceberg.data_tables import DataTables
from lakehold.lake import Lake
from lakehold.progress import NoProgress
from lakehold.subscribe.file_rows import file_rows
from lakehold.upstream.found.columns import FoundColumn
from lakehold.verify.compared_columns import ComparedColumns
from lakehold.verify.database_rows import DatabaseRows
from lakehold.verify.frame_rows import FrameRows, numbered, snapshot_frame
from lakehold.verify.lake_rows import LakeRows
from lakehold.verify.selected_rows import FirstKey, Selection

pytestmark = pytest.mark.spark


class _DatabaseFailedError(Exception):
    pass


class _FailingRows:
    """The rows of a database that answers nothing, and then with an error."""

    estimate = 0
    version = ""
    standby_ms: int | None = None

    def __init__(self) -> None:
        self.fails = Event()

    def columns(self) -> tuple[FoundColumn, ...]:
        return ()

    def batches(self, texts: Sequence[str], first_key: FirstKey | None = None) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        assert self.fails.wait(60)
        raise _DatabaseFailedError
        yield

    def cancel(self) -> None:
        self.fails.set()


_TYPES = {
    "id": "id",
    "flag": "id % 3 = 0",
    "small": "int(id % 7)",
    "ratio": "double(id) / 7",
    "real": "float(id) / 3",
    "text": "if(id % 11 = 0, NULL, concat('row ', id))",
    "bytes": "CAST(repeat('b', int(id % 5)) AS BINARY)",
    "price": "CAST(id / 100 AS DECIMAL(20, 2))",
    "day": "date_add(DATE'1969-12-25', int(id % 1000))",
    "at": "timestampadd(MICROSECOND, id, TIMESTAMP'1969-12-31 23:00:00')",
    "local": "timestampadd(MICROSECOND, id, TIMESTAMP_NTZ'2026-01-01 00:00:00')",
    "list": "array(id, NULL)",
    "map": "map('a', id, 'b', NULL)",
    "struct": "named_struct('x', id, 'y', concat('v', id))",
}


def _write(lake: Lake, rows: int, columns: Collection[str] = _TYPES.keys()) -> str:
    """Write two files, and return the name of their table."""
    name = f"{lake.settings.catalog_name}.shop.many"
    lake.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {lake.settings.catalog_name}.shop")
    frame = lake.spark.range(0, rows, numPartitions=2).selectExpr(*(f"{_TYPES[n]} AS `{n}`" for n in columns))
    writing = frame.writeTo(name).tableProperty("format-version", "3")
    writing.tableProperty("write.delete.mode", "merge-on-read").create()
    return name


def _rows(lake: Lake, name: str, go_on: Callable[[], object] = lambda: None) -> LakeRows:
    table = lake.catalog.load_table("shop.many")
    snapshot, columns = table.current_snapshot(), tuple(field.name for field in table.schema().fields)
    assert snapshot is not None
    return LakeRows(
        table,
        snapshot.snapshot_id,
        columns,
        1,
        lambda snapshot_id: snapshot_frame(lake.spark, name, snapshot_id),
        go_on,
    )


def _sums(rows: LakeRows | FrameRows) -> dict[str, list[int]]:
    with NoProgress().task("read", unit="rows") as task:
        found: dict[str, list[int]] = rows.sums(task).to_batch().to_pydict()
    return found


def test_files_and_spark_give_the_same_digests(lake: Lake) -> None:
    """Digest each type, deleted rows, a new column with a default, a missing one, and a file that only Spark can read."""
    name = _write(lake, 20_000)
    lake.spark.sql(f"DELETE FROM {name} WHERE id % 100 = 7 OR id BETWEEN 13100 AND 13200")
    lake.spark.sql(f"ALTER TABLE {name} RENAME COLUMN real TO share")
    added = NestedField(100, "added", LongType(), initial_default=5, write_default=5)
    DataTables(lake.catalog).add_columns("shop.many", [added])
    lake.spark.sql(f"REFRESH TABLE {name}")
    lake.spark.sql(f"INSERT INTO {name} SELECT -id, * EXCEPT (id) FROM {name} WHERE id < 10")
    by_file = _rows(lake, name)
    by_file = replace(by_file, columns=(*by_file.columns, "missing"))
    by_spark = FrameRows(numbered(lake.spark.table(name), by_file.columns), 1)
    sums = _sums(by_file)
    assert sum(sums["rows"]) == lake.spark.table(name).count()
    assert sums == _sums(by_spark)
    chosen = Selection(buckets=np.arange(0, 1 << 16, 4096), with_columns=True)
    wanted, found = (
        pa.Table.from_batches(rows.selected(chosen)).combine_chunks().sort_by([("key", "ascending")])
        for rows in (by_spark, by_file)
    )
    assert wanted.num_rows > 0
    assert found.equals(wanted)
    lake.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.format.default' = 'orc')")
    lake.spark.sql(f"INSERT INTO {name} SELECT -id, * EXCEPT (id) FROM {name} WHERE id BETWEEN 10 AND 20")
    with_orc = _rows(lake, name)
    assert sum(_sums(with_orc)["rows"]) == sum(sums["rows"]) + 11
    assert sum(batch.num_rows for batch in with_orc.selected(chosen)) >= wanted.num_rows


def test_a_file_is_not_read_whole_into_memory(lake: Lake) -> None:
    _write(lake, 800_000, ("id", "text"))
    table = lake.catalog.load_table("shop.many")
    rows = file_rows(table, table.schema())
    snapshot = table.current_snapshot()
    assert snapshot is not None
    for file in LakeRows(table, snapshot.snapshot_id, ("id",), 1, lambda _: lake.spark.range(0)).files():
        before = pa.total_allocated_bytes()
        sizes, most = [], 0
        for batch in rows.batches(file):
            sizes.append(batch.nbytes)
            most = max(most, pa.total_allocated_bytes() - before)
        assert len(sizes) > 1
        assert most < sum(sizes)


def test_a_snapshot_that_another_program_expired_is_an_error_and_not_a_table_without_rows(lake: Lake) -> None:
    name = _write(lake, 10, ("id", "text"))
    rows = _rows(lake, name)
    lake.spark.sql(f"INSERT INTO {name} VALUES (10, 'new')")
    assert rows.snapshot_id is not None
    catalog = lake.settings.catalog_name
    lake.spark.sql(f"CALL {catalog}.system.expire_snapshots('shop.many', snapshot_ids => array({rows.snapshot_id}))")
    late = replace(rows, table=lake.catalog.load_table("shop.many"))
    with pytest.raises(NotReadable, match="was expired before it was read"):
        _sums(late)


def test_the_read_of_the_lake_ends_when_the_read_of_the_database_fails(lake: Lake) -> None:
    name, rows = _write(lake, 800_000, ("id", "text")), _FailingRows()
    database = DatabaseRows(rows, ComparedColumns((), (), ()))
    read: list[int] = []

    def compare() -> None:
        with NoProgress().task("read", unit="rows") as task, database.sums_meanwhile(task) as theirs:

            def go_on() -> None:
                read.append(1)
                rows.fails.set()
                wait([theirs], 60)
                theirs.result()

            _rows(lake, name, go_on).sums(task)

    with pytest.raises(_DatabaseFailedError):
        compare()
    assert 1 <= len(read) <= 4, "each of the threads has read one batch at most"


def test_the_read_of_the_database_ends_when_the_caller_fails() -> None:
    rows = _FailingRows()
    database = DatabaseRows(rows, ComparedColumns((), (), ()))
    with (
        NoProgress().task("read", unit="rows") as task,
        pytest.raises(KeyboardInterrupt),
        database.sums_meanwhile(task) as theirs,
    ):
        raise KeyboardInterrupt
    assert isinstance(theirs.exception(timeout=0), _DatabaseFailedError)
