"""Histories of other writers: PyIceberg, files that are not Parquet, equality deletes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.conftest import LakeFactory
from tests.histories import COPY_V1, FILE_V2, NAME, PARTITION_V2, VECTORS_V3, Mode, WrittenTable, written_by

pytestmark = pytest.mark.spark


def test_changes_of_tables_that_pyiceberg_writes_are_exact(make_lake: LakeFactory) -> None:
    table = WrittenTable(make_lake)
    columns = pa.schema([("id", pa.int64()), ("v", pa.string())])

    def rows(*values: tuple[int, str | None]) -> pa.Table:
        return pa.Table.from_pylist([{"id": number, "v": text} for number, text in values], columns)

    written = table.lake.catalog.create_table(NAME, columns)
    written.append(rows((1, "a"), (2, "b"), (3, None)))
    written.delete("id = 2")
    written.upsert(rows((3, "c"), (4, "d")), join_cols=["id"])
    table.run("UPDATE {t} SET v = 'e' WHERE id = 1")
    written.refresh()
    written.overwrite(rows((1, "e"), (5, "f")))
    written.append(rows())
    changes = table.changes()
    assert changes[:2] == [[(1, 1, "a"), (1, 2, "b"), (1, 3, None)], [(-1, 2, "b")]]
    together = [diff for diffs in changes for diff in diffs]
    assert (-1, 3, None) in together
    assert (1, 3, "c") in together
    # PyIceberg commits an overwrite as two snapshots: the deletes, then the inserts.
    assert [diffs for diffs in changes if diffs][-2:] == [
        [(-1, 1, "e"), (-1, 3, "c"), (-1, 4, "d")],
        [(1, 1, "e"), (1, 5, "f")],
    ]
    assert table.changes(table.reading_by_spark()) == changes


@pytest.mark.parametrize(
    ("mode", "file_format"),
    [
        (VECTORS_V3, "orc"),
        (COPY_V1, "avro"),
        *(
            pytest.param(mode, file_format, marks=pytest.mark.soak)
            for mode, file_format in ((VECTORS_V3, "avro"), (COPY_V1, "orc"), (FILE_V2, "orc"), (FILE_V2, "avro"))
        ),
    ],
    ids=str,
)
def test_changes_in_files_that_are_not_parquet_are_exact(make_lake: LakeFactory, mode: Mode, file_format: str) -> None:
    """Diff tables of ORC and Avro files, for which Spark reads and subtracts both ends of a step."""
    table = WrittenTable(make_lake)
    table.create(mode, "id INT, s STRUCT<x: DATE, y: MAP<STRING, INT>>", **{"write.format.default": file_format})
    table.run(
        "INSERT INTO {t} SELECT id, named_struct('x', DATE '2024-01-01', 'y', map('k', id)) FROM range(4)",
        "DELETE FROM {t} WHERE id = 1",
        "ALTER TABLE {t} ADD COLUMN v STRING",
        "UPDATE {t} SET v = 'a' WHERE id = 2",
    )
    table.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    table.run("DELETE FROM {t} WHERE id = 3")
    changes = table.changes()
    assert [[(diff[0], diff[1], diff[-1]) for diff in diffs] for diffs in changes] == [
        [(1, 0, None), (1, 1, None), (1, 2, None), (1, 3, None)],
        [(-1, 1, None)],
        [(-1, 2, None), (1, 2, "a")],
        [],
        [(-1, 3, None)],
    ]
    first = table.versions[0].mz_timestamp
    plan = [line for (line,) in table.lake.sql(f"EXPLAIN SUBSCRIBE {NAME} AS OF {first}").rows]
    assert any(f" as {file_format.upper()} in " in line for line in plan)


def test_position_deletes_that_are_not_parquet_are_exact(make_lake: LakeFactory) -> None:
    table = WrittenTable(make_lake)
    table.create(PARTITION_V2, "id INT", **{"write.delete.format.default": "avro"})
    table.run("INSERT INTO {t} VALUES (1), (2), (3)", "DELETE FROM {t} WHERE id = 2", "INSERT INTO {t} VALUES (2)")
    assert table.changes() == [[(1, 1), (1, 2), (1, 3)], [(-1, 2)], [(1, 2)]]


@pytest.mark.usefixtures("jvm")
@written_by(VECTORS_V3, soak=[FILE_V2])
def test_equality_deletes_are_exact(make_lake: LakeFactory, tmp_path: Path, mode: Mode) -> None:
    """Diff equality deletes, which streaming engines write to hide rows of older files by value."""
    table = WrittenTable.created(make_lake, mode, "id INT, v STRING")
    table.run("INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (3, 'c')", "INSERT INTO {t} VALUES (2, 'B'), (4, 'd')")
    delete_ids(table.lake.spark, table.lake.settings.catalog_name, tmp_path / "deletes.parquet", [2, 4])
    table.run("INSERT INTO {t} VALUES (2, 'new')", "DELETE FROM {t} WHERE id = 3")
    table.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    table.run("UPDATE {t} SET v = 'e' WHERE id = 1")
    expected = [
        [(1, 1, "a"), (1, 2, "b"), (1, 3, "c")],
        [(1, 2, "B"), (1, 4, "d")],
        [(-1, 2, "B"), (-1, 2, "b"), (-1, 4, "d")],
        [(1, 2, "new")],
        [(-1, 3, "c")],
        [],
        [(-1, 1, "a"), (1, 1, "e")],
    ]
    assert table.changes() == expected
    first = table.versions[0].mz_timestamp
    counted = table.lake.sql(f"SUBSCRIBE (SELECT count(*) AS n FROM {NAME}) AS OF {first}").rows
    assert [row[2] for row in counted if row[1] > 0] == [3, 5, 2, 3, 2]


def delete_ids(spark: SparkSession, catalog: str, file: Path, ids: list[int]) -> None:
    """Commit equality deletes through Iceberg's Java API, since Spark and PyIceberg cannot write them."""
    field = pa.field("id", pa.int32(), metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table([pa.array(ids, pa.int32())], schema=pa.schema([field])), file)
    java = spark._jvm
    assert java is not None
    iceberg = java.org.apache.iceberg
    loaded = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"{catalog}.{NAME}")
    columns = spark.sparkContext._gateway.new_array(java.int, 1)  # type: ignore[union-attr]
    columns[0] = 1
    deletes = iceberg.FileMetadata.deleteFileBuilder(loaded.spec()).ofEqualityDeletes(columns)
    described = deletes.withPath(file.as_uri()).withFileSizeInBytes(file.stat().st_size).withRecordCount(len(ids))
    loaded.newRowDelta().addDeletes(described.withFormat("parquet").build()).commit()
