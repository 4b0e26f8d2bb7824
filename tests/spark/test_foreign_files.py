"""Data files imported from foreign writers: SUBSCRIBE gives the same values as SELECT."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehold.subscribe.on_spark import OnSpark
from tests.conftest import LakeFactory
from tests.histories import PARTITION_V2, VECTORS_V3, WrittenTable, exact

pytestmark = pytest.mark.spark

LAST = dt.datetime.fromisoformat("9999-12-31T23:59:59.999999")
FIRST = dt.datetime.fromisoformat("0001-01-01")
TIMES = [
    LAST,
    FIRST,
    dt.datetime.fromisoformat("1816-03-29T05:56:08"),
    dt.datetime.fromisoformat("1969-12-31T23:59:59.999999"),
    None,
]
TEXTS = ["a", "ab", "abc", "", None]
NUMBERS = [1, -1, 100, 0, None]
NESTED = pa.struct([("a", pa.int32()), ("at", pa.list_(pa.timestamp("us", "UTC")))])

Column = tuple[str, pa.DataType, list[Any]]

COLUMNS: dict[str, Column] = {
    "id": ("INT", pa.int32(), [1, 2, 3, 4, 5]),
    "i8": ("INT", pa.int8(), NUMBERS),
    "i16": ("INT", pa.int16(), NUMBERS),
    "widened": ("BIGINT", pa.int32(), NUMBERS),
    "single": ("DOUBLE", pa.float32(), [0.1, -0.0, float("nan"), float("inf"), None]),
    "dec9": ("DECIMAL(9, 2)", pa.decimal128(9, 2), [Decimal("1.25"), Decimal("-0.01"), None, None, None]),
    "dec18": ("DECIMAL(18, 2)", pa.decimal128(18, 2), [Decimal("1.25"), Decimal("-0.01"), None, None, None]),
    "dec38": ("DECIMAL(38, 5)", pa.decimal128(38, 5), [Decimal("-1.25"), Decimal("9" * 33), None, None, None]),
    "decw": ("DECIMAL(20, 2)", pa.decimal128(9, 2), [Decimal("1.25"), None, None, None, None]),
    "local": ("TIMESTAMP_NTZ", pa.timestamp("us"), TIMES),
    "at": ("TIMESTAMP", pa.timestamp("us", "UTC"), TIMES),
    "unzoned": ("TIMESTAMP", pa.timestamp("us"), TIMES),
    "day": ("DATE", pa.date64(), [LAST.date(), FIRST.date(), None, None, None]),
    "large": ("STRING", pa.large_string(), TEXTS),
    "dict": ("STRING", pa.dictionary(pa.int8(), pa.string()), ["a", "a", None, "b", "a"]),
    "plain": ("STRING", pa.string(), TEXTS),
    "delta": ("STRING", pa.string(), TEXTS),
    "lengths": ("STRING", pa.string(), TEXTS),
    "packed": ("BIGINT", pa.int64(), NUMBERS),
    "split": ("DOUBLE", pa.float64(), [0.1, 2.0**-126, None, -1.5, 0.0]),
    "fixed": ("BINARY", pa.binary(3), [b"abc", None, b"\x00\xff\x01", None, None]),
    "flag": ("BOOLEAN", pa.bool_(), [True, False, None, None, True]),
    "lists": ("ARRAY<INT>", pa.list_(pa.field("item", pa.int32())), [[1, None], None, [], [2], None]),
    "pairs": ("ARRAY<INT>", pa.list_(pa.int32(), 2), [[1, None], None, [1, 2], None, None]),
    "maps": ("MAP<STRING, INT>", pa.map_(pa.string(), pa.int32()), [[("a", 1), ("b", None)], None, [], None, None]),
    "st": (
        "STRUCT<a: INT, at: ARRAY<TIMESTAMP>>",
        NESTED,
        [{"a": 1, "at": None}, None, {"a": None, "at": TIMES[:3]}, {"a": 2, "at": []}, None],
    ),
}
ENCODINGS = {
    "id": "DELTA_BINARY_PACKED",
    "plain": "PLAIN",
    "delta": "DELTA_BYTE_ARRAY",
    "lengths": "DELTA_LENGTH_BYTE_ARRAY",
    "packed": "DELTA_BINARY_PACKED",
    "split": "BYTE_STREAM_SPLIT",
}
CODECS = ["snappy", "gzip", "zstd", "lz4", "none"]

ODD: dict[str, Column] = {
    "ms": ("TIMESTAMP_NTZ", pa.timestamp("ms"), [1_704_067_200_000, -1, None]),
    "ns": ("TIMESTAMP_NTZ", pa.timestamp("ns"), [1_500, -1, None]),
    "ny": ("TIMESTAMP", pa.timestamp("us", "America/New_York"), [*TIMES[:2], None]),
    "json": ("STRING", pa.json_(), ['{"a": 1}', None, None]),
    "dec32": ("DECIMAL(9, 2)", pa.decimal32(9, 2), [Decimal("1.25"), None, None]),
    "dec256": ("DECIMAL(38, 2)", pa.decimal256(38, 2), [Decimal("1.25"), None, None]),
    "view": ("ARRAY<INT>", pa.list_view(pa.int32()), [[1, None], None, []]),
}


def arrow(columns: dict[str, Column]) -> pa.Table:
    return pa.table({name: pa.array(values, kind) for name, (_, kind, values) in columns.items()})


def sql(columns: dict[str, Column]) -> str:
    return ", ".join(f"{name} {kind}" for name, (kind, *_) in columns.items())


def imported(table: WrittenTable, directory: Path) -> None:
    table.call("add_files", f"source_table => '`parquet`.`{directory}`'")


@pytest.fixture
def read_here(monkeypatch: pytest.MonkeyPatch) -> Iterable[None]:
    """Forbid Spark to read both ends of a step, which would hide how this process reads a file."""

    def refused(*_: object) -> None:
        pytest.fail("Spark reads a file that this process should read")

    with monkeypatch.context() as patched:
        patched.setattr(OnSpark, "state", refused)
        yield


@pytest.mark.usefixtures("read_here")
def test_every_type_encoding_and_codec_reads_as_in_spark(make_lake: LakeFactory, tmp_path: Path) -> None:
    table = WrittenTable.created(make_lake, VECTORS_V3, sql(COLUMNS))
    rows, plain = arrow(COLUMNS), [name for name in COLUMNS if name not in ENCODINGS]
    compression = {path: CODECS[n % len(CODECS)] for n, path in enumerate(_paths(rows))}
    written: dict[str, dict[str, Any]] = {
        "v1": {"data_page_version": "1.0"},
        "v2": {"data_page_version": "2.0", "store_decimal_as_integer": True, "use_compliant_nested_type": False},
        "int96": {"use_deprecated_int96_timestamps": True, "row_group_size": 2},
    }
    for directory, options in written.items():
        (tmp_path / directory).mkdir()
        pq.write_table(
            rows,
            tmp_path / directory / "f.parquet",
            use_dictionary=plain,
            column_encoding=ENCODINGS,
            compression=compression,
            **options,
        )
        imported(table, tmp_path / directory)
    table.run("DELETE FROM {t} WHERE id = 2", "UPDATE {t} SET i8 = 7 WHERE id = 3")
    came = [diffs for diffs in table.changes() if diffs]
    assert [len(diffs) for diffs in came] == [5, 5, 5, 1, 2]
    assert {exact(diffs[0][1:]) for diffs in came[:3]} == {exact(came[0][0][1:])}
    index = list(COLUMNS).index("at")
    assert [diff[1 + index] for diff in sorted(came[2], key=lambda diff: diff[1])] == TIMES


def _paths(rows: pa.Table) -> list[str]:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, use_compliant_nested_type=False)
    schema = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    return [schema.column(n).path for n in range(len(schema))]


def test_types_that_iceberg_does_not_store_read_as_in_spark(make_lake: LakeFactory, tmp_path: Path) -> None:
    """Read milliseconds, nanoseconds and other types that no Iceberg table stores, as Spark's SELECT shows them."""
    table = WrittenTable.created(make_lake, VECTORS_V3, f"id INT, {sql(ODD)}")
    for name, column in ODD.items():
        (tmp_path / name).mkdir()
        columns: dict[str, Column] = {"id": ("INT", pa.int32(), [1, 2, 3]), name: column}
        pq.write_table(arrow(columns), tmp_path / name / "f.parquet")
        imported(table, tmp_path / name)
    table.run("DELETE FROM {t} WHERE id = 2")
    assert [sum(diff[0] for diff in diffs) for diffs in table.changes() if diffs] == [3] * len(ODD) + [-len(ODD)]
    assert len(table.changes(table.reading_by_spark())) == len(ODD) + 1


@pytest.mark.usefixtures("read_here")
def test_hive_files_and_partition_values_outside_files_read_as_in_spark(make_lake: LakeFactory, tmp_path: Path) -> None:
    """Import files with Hive's lists, maps and INT96, whose partition values exist only in directory names."""
    table = WrittenTable.created(
        make_lake,
        PARTITION_V2,
        "id INT, l ARRAY<INT>, m MAP<STRING, ARRAY<INT>>, at TIMESTAMP, dec DECIMAL(9, 2), d DATE, s STRING, n INT",
        "d, s, n",
    )
    session = table.lake.spark
    legacy = {"spark.sql.parquet.writeLegacyFormat": "true", "spark.sql.parquet.outputTimestampType": "INT96"}
    for name, value in legacy.items():
        session.conf.set(name, value)
    try:
        rows = session.sql(
            "SELECT 1 AS id, array(1, NULL) AS l, map('k', array(2)) AS m, TIMESTAMP '9999-12-31 23:59:59.999999' AS at, "
            "CAST(1.25 AS DECIMAL(9, 2)) AS dec, DATE '2024-02-29' AS d, 'a b/ü' AS s, 7 AS n UNION ALL "
            "SELECT 2, NULL, map(), TIMESTAMP '0001-01-01 00:00:00', NULL, NULL, NULL, NULL"
        )
        rows.write.partitionBy("d", "s", "n").parquet(str(tmp_path / "hive"))
    finally:
        for name in legacy:
            session.conf.unset(name)
    imported(table, tmp_path / "hive")
    table.run("ALTER TABLE {t} RENAME COLUMN s TO place", "DELETE FROM {t} WHERE id = 1")
    (came, went) = table.changes()
    assert sorted(diff[1] for diff in came) == [1, 2]
    assert went == [
        (-1, 1, [1, None], {"k": [2]}, LAST, Decimal("1.25"), dt.date(2024, 2, 29), "a b/ü", 7),
    ]
