"""Columns that were added with defaults: in earlier rows every reader shows the values that Spark shows."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from tests.catalog_servers import NewLake, new_lake, postgres_server, rest_server
from tests.conftest import LakeFactory
from tests.histories import COPY_V3, NAME, WrittenTable, exact

__all__ = ["new_lake", "postgres_server", "rest_server"]

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("jvm")]

OWN: dict[str, tuple[IcebergType, Any]] = {
    "bin": (BinaryType(), b"\x00'\\\xff"),
    "text": (StringType(), 'it\'s \\ "q" `b` ${env:HOME} \n %'),
    "empty": (StringType(), ""),
    "flag": (BooleanType(), False),
    "i": (IntegerType(), -(2**31)),
    "l": (LongType(), 2**63 - 1),
    "f": (FloatType(), 0.1),
    "d": (DoubleType(), 1e-320),
    "dec": (DecimalType(38, 20), Decimal("-123456789012345678.00000000000000000001")),
    "zero": (DecimalType(20, 10), Decimal("0E-10")),
    "day": (DateType(), date(9999, 12, 31)),
    "local": (TimestampType(), datetime(1, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001 - has no zone
    "instant": (TimestamptzType(), datetime(2026, 11, 26, 10, 0, 0, 123456, UTC)),
}
"""Columns as lakehold adds them."""

DEFAULTS: dict[str, tuple[str, Any]] = {
    "bin": ("binary", b"\x00'\\\xff${env:HOME}"),
    "empty": ("binary", b""),
    "fixed": ("fixed[3]", b"\x00'\xff"),
    "text": ("string", 'it\'s \\ "q" `b` ${env:HOME} {d} \n %'),
    "flag": ("boolean", False),
    "i": ("int", -(2**31)),
    "l": ("long", -(2**63)),
    "f": ("float", 0.1),
    "d": ("double", 1e-320),
    "dec": ("decimal(38,20)", "-123456789012345678.00000000000000000001"),
    "day": ("date", "0001-01-01"),
    "local": ("timestamp", "0001-01-01T00:00:00.000001"),
    "instant": ("timestamptz", "1582-10-04T23:59:59.999999+00:00"),
    "u": ("uuid", "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
}


def add_with_defaults(table: WrittenTable, parent: str | None = None) -> None:
    """Add a column of each type with a default, which only Iceberg's Java API can."""
    spark: Any = table.lake.spark
    java = spark._jvm
    iceberg = java.org.apache.iceberg
    name = f"{table.lake.settings.catalog_name}.{NAME}"
    update = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name).updateSchema()
    for column, (of, value) in DEFAULTS.items():
        kind = iceberg.types.Types.fromPrimitiveString(of)
        given = java.java.nio.ByteBuffer.wrap(value) if of == "binary" else value
        default = iceberg.expressions.Expressions.lit(given).to(kind)
        update = update.addColumn(*([parent] if parent else []), column, kind, None, default)
    update.commit()
    table.lake.sql(f"REFRESH TABLE {NAME}")


@pytest.mark.parametrize("file_format", ["parquet", "avro"])
def test_a_default_is_read_as_spark_shows_it(make_lake: LakeFactory, file_format: str) -> None:
    table = WrittenTable(make_lake)
    columns = "id INT, s STRUCT<x: INT>, items ARRAY<STRUCT<x: INT>>"
    table.create(COPY_V3, columns, **{"write.format.default": file_format})
    row = "named_struct('x', 1)"
    table.run(f"INSERT INTO {{t}} VALUES (1, {row}, array({row}, NULL)), (2, NULL, NULL)")
    for parent in (None, "s", "items"):
        add_with_defaults(table, parent)
    table.run("DELETE FROM {t} WHERE id = 1")
    by_spark = table.reading_by_spark()
    ((_, _, _, *shown),) = table.lake.sql(f"SELECT * FROM {NAME}").rows
    assert shown[:2] == [DEFAULTS["bin"][1], b""]
    for lake in (table.lake, by_spark):
        first, second, gone = (row for diffs in table.changes(lake) for row in diffs)
        assert exact(second[4:]) == exact(shown) == exact(first[4:])
        inside = [first[2], first[3][0]]
        assert [exact(tuple(each)[1:]) for each in inside] == [exact(shown)] * 2
        assert exact(gone[1:]) == exact(first[1:])
    where = "`text` LIKE '%${env:HOME}%' AND bin = X'00275CFF247B656E763A484F4D457D'"
    for lake in (table.lake, by_spark):
        assert len(lake.sql(f"SUBSCRIBE (SELECT * FROM {NAME} WHERE {where}) WITH (SNAPSHOT)").rows) == 1


def add_own(table: WrittenTable) -> None:
    fields = [NestedField(0, name, of, required=False, initial_default=value) for name, (of, value) in OWN.items()]
    for _ in range(2):
        table.lake.tables.add_columns(NAME, fields)
    table.lake.sql(f"REFRESH TABLE {NAME}")


@pytest.mark.parametrize("catalog", ["sqlite", pytest.param("rest", marks=pytest.mark.stack)])
def test_a_property_that_lakehold_removes_is_gone_for_spark_too(
    make_lake: LakeFactory, new_lake: NewLake, catalog: str
) -> None:
    table = WrittenTable(make_lake, **new_lake(catalog))
    table.create(COPY_V3, "id INT", mark="1", kept="2")
    for _ in range(2):
        table.lake.tables.set_property(NAME, "mark", None)
    table.lake.sql(f"REFRESH TABLE {NAME}")
    properties = dict(table.lake.sql(f"SHOW TBLPROPERTIES {NAME}").rows)
    assert ("mark" in properties, properties["kept"]) == (False, "2")
    table.run("INSERT INTO {t} VALUES (1)")
    assert table.lake.sql(f"SELECT * FROM {NAME}").rows == [(1,)]


@pytest.mark.parametrize("catalog", ["sqlite", pytest.param("rest", marks=pytest.mark.stack)])
def test_a_column_that_lakehold_adds_has_its_default_in_all_readers_and_after_a_merge(
    make_lake: LakeFactory, new_lake: NewLake, catalog: str
) -> None:
    table = WrittenTable(make_lake, **new_lake(catalog))
    table.create(COPY_V3, "id INT", **{"write.merge.mode": "merge-on-read"})
    table.run("INSERT INTO {t} VALUES (1), (2), (3)")
    add_own(table)
    wanted = [value for _, value in OWN.values()]
    table.run(
        "MERGE INTO {t} t USING (SELECT id, 7 AS i FROM VALUES (2), (4) AS v(id)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET t.i = s.i WHEN NOT MATCHED THEN INSERT (id, i) VALUES (s.id, s.i)"
    )
    table.run("ALTER TABLE {t} RENAME COLUMN text TO words")
    first, second, third, fourth = sorted(table.lake.sql(f"SELECT * FROM {NAME}").rows)
    names = [*OWN]
    merged = [7 if name == "i" else value for name, value in zip(names, third[1:], strict=True)]
    assert (exact(first[1:]), exact(second[1:])) == (exact(third[1:]), exact(merged))
    assert fourth[1:] == tuple(7 if name == "i" else None for name in names)
    assert exact(third[1:6]) == exact(wanted[:5])
    by_pyiceberg = table.lake.catalog.load_table(NAME).scan(row_filter="id = 3").to_arrow().to_pylist()[0]
    assert [by_pyiceberg[name] for name in names if name in by_pyiceberg] == [
        pytest.approx(value) if name == "f" else value
        for name, value in zip(names, wanted, strict=True)
        if name != "text"
    ]
    where = "words LIKE '%${env:HOME}%' AND flag = false AND bin = X'00275CFF'"
    assert [row[2] for row in table.lake.sql(f"SUBSCRIBE (SELECT id FROM {NAME} WHERE {where}) WITH (SNAPSHOT)").rows]
    shown = "id, i, words, dec, day, bin, CAST(local AS VARCHAR), CAST(instant AS VARCHAR)"
    moments = ("0001-01-01 00:00:00.000001", "2026-11-26 10:00:00.123456+00")
    location = table.lake.catalog.load_table(NAME).metadata_location
    assert by_duckdb(f"SELECT {shown} FROM iceberg_scan('{location}') WHERE id = 3") == [
        (3, *(OWN[name][1] for name in ("i", "text", "dec", "day", "bin")), *moments)
    ]


def by_duckdb(query: str) -> list[tuple[Any, ...]]:
    """Rows that DuckDB finds, with its extensions as packages bring them."""
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        for name in ("avro", "iceberg"):
            folder = Path(import_module(f"duckdb_extension_{name}").__file__ or "").parent
            (extension,) = folder.glob(f"extensions/*/{name}.duckdb_extension")
            connection.execute(f"LOAD '{extension}'")
        connection.execute("SET TimeZone = 'UTC'")
        return connection.execute(query).fetchall()
