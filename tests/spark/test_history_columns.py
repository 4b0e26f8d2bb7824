"""Columns of every type, and columns that changed between snapshots: lakehold reads each value as Spark shows it."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import FixedType, IntegerType, NestedField, TimeType, UUIDType
from pyspark.sql import Row

from lakehold.errors import LakeholdError
from tests.conftest import LakeFactory
from tests.histories import COPY_V1, COPY_V3, NAME, PARTITION_V2, VECTORS_V3, Mode, WrittenTable, exact, written_by

pytestmark = pytest.mark.spark

FLAT = {
    "b": ("BOOLEAN", "true", "false"),
    "i": ("INT", "-2147483648", "2147483647"),
    "l": ("BIGINT", "9223372036854775807", "-1"),
    "f": ("FLOAT", "FLOAT('NaN')", "FLOAT('-0.0')"),
    "d": ("DOUBLE", "DOUBLE('-Infinity')", "DOUBLE('NaN')"),
    "dec": ("DECIMAL(38, 10)", "CAST('-9999999999999999999999999999.0123456789' AS DECIMAL(38, 10))", "0"),
    "dt": ("DATE", "DATE '0001-01-01'", "DATE '9999-12-31'"),
    "at": ("TIMESTAMP", "TIMESTAMP '1969-12-31 23:59:59.999999'", "TIMESTAMP '2024-03-10 07:30:00'"),
    "ntz": ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ '0001-01-01 00:00:00'", "TIMESTAMP_NTZ '2024-02-29 12:00:00.000001'"),
    "s": ("STRING", "''", "'ünï\\u0000 𝄞'"),
    "bin": ("BINARY", "X''", "X'00FF'"),
}
NESTED = {
    "st": (
        "STRUCT<x: INT, y: STRUCT<z: DATE, `odd name`: STRING>>",
        "named_struct('x', 1, 'y', named_struct('z', DATE '2024-01-01', 'odd name', 'a'))",
        "named_struct('x', CAST(NULL AS INT), 'y', NULL)",
    ),
    "ar": ("ARRAY<INT>", "array(1, NULL, 3)", "array()"),
    "ars": (
        "ARRAY<STRUCT<q: DOUBLE, at: TIMESTAMP>>",
        "array(named_struct('q', DOUBLE('NaN'), 'at', TIMESTAMP '2024-01-01 00:00:00'), NULL)",
        "array(named_struct('q', DOUBLE('-0.0'), 'at', NULL))",
    ),
    "ara": ("ARRAY<ARRAY<STRING>>", "array(array('a', NULL), NULL, array())", "array(array())"),
    "m": ("MAP<STRING, INT>", "map('b', 2, 'a', NULL)", "map()"),
    "ms": (
        "MAP<INT, STRUCT<l: ARRAY<BINARY>, n: DECIMAL(5, 2)>>",
        "map(1, named_struct('l', array(X'01'), 'n', 1.5), 2, NULL)",
        "map(3, named_struct('l', NULL, 'n', NULL))",
    ),
    "am": ("ARRAY<MAP<STRING, DATE>>", "array(map('k', DATE '2024-01-01'), NULL)", "array(map('k', NULL))"),
}
COLUMNS = FLAT | NESTED


@pytest.mark.parametrize(
    ("mode", "time_zone"), [(COPY_V1, "UTC"), (VECTORS_V3, "America/New_York")], indirect=["time_zone"], ids=str
)
@pytest.mark.usefixtures("time_zone")
def test_values_of_every_type_equal_those_that_spark_shows(make_lake: LakeFactory, mode: Mode) -> None:
    table = WrittenTable(make_lake)
    table.create(mode, "id INT, " + ", ".join(f"{name} {kind}" for name, (kind, *_) in COLUMNS.items()))
    first, second = (", ".join(values[which] for values in COLUMNS.values()) for which in (1, 2))
    nulls = ", ".join(["NULL"] * len(COLUMNS))
    for values in (f"SELECT 1, {first}", f"SELECT 2, {second}", f"SELECT 3, {nulls}"):
        table.run(f"INSERT INTO {{t}} {values}")
    table.run("INSERT OVERWRITE {t} SELECT * FROM {t}", "DELETE FROM {t} WHERE id = 3")
    version = table.versions[2]
    shown = table.lake.sql(f"SELECT * FROM {NAME} VERSION AS OF {version.snapshot_id} ORDER BY id").rows
    one, two, three = map(exact, shown)
    # Rewriting all rows changed none of them.
    expected = [(1, one), (1, two), (1, three), (-1, three)]
    row_by_row, sorted_whole = f"(SELECT * FROM {NAME} WHERE id > 0)", f"(SELECT * FROM {NAME} ORDER BY id LIMIT 9)"
    by_spark = table.reading_by_spark()
    for lake, relation in [
        (table.lake, NAME),
        (by_spark, NAME),
        (table.lake, row_by_row),
        (by_spark, row_by_row),
        (table.lake, sorted_whole),
    ]:
        rows = lake.sql(f"SUBSCRIBE {relation} AS OF {version.mz_timestamp}").rows
        assert [(row[1], exact(row[2:])) for row in rows] == expected
    for lake in (table.lake, by_spark):
        rows = lake.sql(f"SUBSCRIBE {NAME} ENVELOPE UPSERT (KEY (id)) AS OF {version.mz_timestamp}").rows
        assert [(row[1], exact(row[2:])) for row in rows[:3]] == [("upsert", one), ("upsert", two), ("upsert", three)]
        assert rows[3][1:] == ("delete", 3, *[None] * len(COLUMNS))


def test_uuids_and_fixed_bytes_are_read_as_in_spark(make_lake: LakeFactory) -> None:
    """Read a UUID as text and fixed bytes as bytes, like Spark."""
    table = WrittenTable(make_lake)
    fields = [NestedField(1, "id", IntegerType()), NestedField(2, "u", UUIDType()), NestedField(3, "f", FixedType(3))]
    made = table.lake.catalog.create_table(NAME, Schema(*fields))
    key = uuid.UUID(int=7)
    types = pa.schema([("id", pa.int32()), ("u", pa.uuid()), ("f", pa.binary(3))])
    rows = [{"id": 1, "u": key.bytes, "f": b"abc"}, {"id": 2, "u": None, "f": None}]
    made.append(pa.Table.from_pylist(rows, types))
    table.run("DELETE FROM {t} WHERE id = 1")
    expected = [[(1, 1, str(key), b"abc"), (1, 2, None, None)], [(-1, 1, str(key), b"abc")]]
    assert table.changes() == expected
    assert table.changes(table.reading_by_spark()) == expected


def test_a_type_that_spark_cannot_read_is_read_without_spark(make_lake: LakeFactory) -> None:
    """Read a TIME column in diffs that need no Spark, and refuse it in a query."""
    table = WrittenTable(make_lake)
    made = table.lake.catalog.create_table(NAME, Schema(NestedField(1, "at", TimeType())))
    made.append(pa.table({"at": pa.array([1], pa.time64("us"))}))
    assert [row[1:] for row in table.subscribe("").rows] == [(1, dt.time(0, 0, 0, 1))]
    with pytest.raises(LakeholdError):
        table.lake.sql(f"SUBSCRIBE (SELECT count(*) FROM {NAME})")


@written_by(COPY_V1, VECTORS_V3, soak=[COPY_V3, PARTITION_V2])
def test_columns_are_added_renamed_widened_dropped_and_moved(make_lake: LakeFactory, mode: Mode) -> None:
    """Read rows of every time with the current columns; a column added later is null in earlier rows."""
    table = WrittenTable.created(make_lake, mode, "id INT, a INT, f FLOAT, d DECIMAL(6, 2), s STRING, gone STRING")
    table.run(
        "INSERT INTO {t} VALUES (1, 1, 0.5, 1.25, 'x', 'y'), (2, 2, NULL, 2.25, 'x', 'y'), (3, 3, 3.5, 3.25, 'x', 'y')",
        "ALTER TABLE {t} ADD COLUMN later STRING",
        "INSERT INTO {t} VALUES (4, 4, 4.5, 4.25, 'x', 'y', 'z')",
        "ALTER TABLE {t} RENAME COLUMN a TO `A b`",
        "ALTER TABLE {t} ALTER COLUMN `A b` TYPE BIGINT",
        "ALTER TABLE {t} ALTER COLUMN f TYPE DOUBLE",
        "ALTER TABLE {t} ALTER COLUMN d TYPE DECIMAL(12, 2)",
        "UPDATE {t} SET `A b` = 5000000000 WHERE id = 1",
        "ALTER TABLE {t} DROP COLUMN gone",
        "ALTER TABLE {t} DROP COLUMN s",
        "DELETE FROM {t} WHERE id = 2",
        # A new column of the same name: the values of the dropped column do not come back.
        "ALTER TABLE {t} ADD COLUMN s STRING AFTER id",
        "ALTER TABLE {t} ALTER COLUMN later FIRST",
        "UPDATE {t} SET s = 'new' WHERE id = 3",
    )
    expected = [
        [
            (1, None, 1, None, 1, 0.5, Decimal("1.25")),
            (1, None, 2, None, 2, None, Decimal("2.25")),
            (1, None, 3, None, 3, 3.5, Decimal("3.25")),
        ],
        [(1, "z", 4, None, 4, 4.5, Decimal("4.25"))],
        [
            (-1, None, 1, None, 1, 0.5, Decimal("1.25")),
            (1, None, 1, None, 5_000_000_000, 0.5, Decimal("1.25")),
        ],
        [(-1, None, 2, None, 2, None, Decimal("2.25"))],
        [
            (-1, None, 3, None, 3, 3.5, Decimal("3.25")),
            (1, None, 3, "new", 3, 3.5, Decimal("3.25")),
        ],
    ]
    assert table.changes() == expected
    if mode in (COPY_V1, VECTORS_V3):
        assert table.changes(table.reading_by_spark()) == expected
    result = table.subscribe("WITH (SNAPSHOT = false)")
    assert result.columns == ("mz_timestamp", "mz_diff", "later", "id", "s", "A b", "f", "d")


def test_queries_read_columns_that_changed(make_lake: LakeFactory) -> None:
    """Query earlier times by the current column names; renaming a column changes no result."""
    table = WrittenTable.created(make_lake, VECTORS_V3, "id INT, a INT")
    table.run(
        "INSERT INTO {t} VALUES (1, 1), (2, 2)",
        "ALTER TABLE {t} RENAME COLUMN a TO b",
        "ALTER TABLE {t} ADD COLUMN c INT",
        "UPDATE {t} SET c = b WHERE id = 2",
    )
    first, last = (version.mz_timestamp for version in table.versions)
    for lake in (table.lake, table.reading_by_spark()):
        rows = lake.sql(f"SUBSCRIBE (SELECT id, b, c FROM {NAME} WHERE c IS NULL) AS OF {first}").rows
        assert rows == [(first, 1, 1, 1, None), (first, 1, 2, 2, None), (last, -1, 2, 2, None)]
        rows = lake.sql(f"SUBSCRIBE (SELECT sum(b) AS b, sum(c) AS c FROM {NAME}) AS OF {first}").rows
        assert rows == [(first, 1, 3, None), (last, -1, 3, None), (last, 1, 3, 2)]


@written_by(COPY_V1, VECTORS_V3, soak=[COPY_V3, PARTITION_V2])
def test_nested_fields_are_added_renamed_widened_and_dropped(make_lake: LakeFactory, mode: Mode) -> None:
    table = WrittenTable.created(
        make_lake,
        mode,
        "id INT, s STRUCT<x: INT, y: STRING>, l ARRAY<STRUCT<x: INT>>, m MAP<STRING, STRUCT<x: INT, y: INT>>",
    )
    row = "named_struct('x', {0}, 'y', 'y'), array(named_struct('x', {0})), map('k', named_struct('x', {0}, 'y', 0))"
    table.run(
        f"INSERT INTO {{t}} SELECT 1, {row.format(1)}",
        "INSERT INTO {t} VALUES (2, NULL, array(NULL), map('k', NULL)), (3, NULL, NULL, NULL)",
        "ALTER TABLE {t} RENAME COLUMN s.x TO xx",
        "ALTER TABLE {t} ALTER COLUMN s.xx TYPE BIGINT",
        "ALTER TABLE {t} DROP COLUMN s.y",
        "ALTER TABLE {t} ADD COLUMN s.z STRING",
        "ALTER TABLE {t} ADD COLUMN l.element.z STRING FIRST",
        "ALTER TABLE {t} DROP COLUMN m.value.x",
        "ALTER TABLE {t} ALTER COLUMN m.value.y TYPE BIGINT",
        "DELETE FROM {t} WHERE id = 1",
        "UPDATE {t} SET s = named_struct('xx', 5000000000, 'z', 'z') WHERE id = 3",
        "DELETE FROM {t} WHERE id = 2",
    )
    one = (1, Row(xx=1, z=None), [Row(z=None, x=1)], {"k": Row(y=0)})
    expected = [
        [(1, *one)],
        [(1, 2, None, [None], {"k": None}), (1, 3, None, None, None)],
        [(-1, *one)],
        [(-1, 3, None, None, None), (1, 3, Row(xx=5_000_000_000, z="z"), None, None)],
        [(-1, 2, None, [None], {"k": None})],
    ]
    assert table.changes() == expected
    if mode in (COPY_V1, VECTORS_V3):
        assert table.changes(table.reading_by_spark()) == expected


def test_a_renamed_column_is_filtered_before_the_next_commit(make_lake: LakeFactory) -> None:
    """Filter by a column between its rename and the next commit, where Iceberg itself misses the old name and fails."""
    lake = make_lake(foreign_lag_ms=0)
    lake.sql("CREATE NAMESPACE s; CREATE TABLE s.t (k INT, v INT) USING iceberg; INSERT INTO s.t VALUES (1, 1), (2, 2)")
    at_ms = lake.catalog.load_table("s.t").metadata.snapshot_log[-1].timestamp_ms
    lake.sql("ALTER TABLE s.t RENAME COLUMN k TO c")
    (row,) = lake.sql("SUBSCRIBE (SELECT count(*) AS n FROM s.t WHERE c = 1)").rows
    assert row[1:] == (1, 1)
    assert lake.sql(f"SELECT v FROM s.t WHERE k > 1 AS OF {at_ms}").rows == [(2,)]
