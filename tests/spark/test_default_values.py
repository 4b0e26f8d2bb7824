"""Columns that other writers added with defaults: in earlier rows every reader shows the values that Spark shows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import LakeFactory
from tests.histories import COPY_V3, NAME, WrittenTable, exact

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("jvm")]

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
