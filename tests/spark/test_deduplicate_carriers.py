"""Change headers identify keys as Spark does; the decisions of deduplication reach the rows in the driver and in Spark alike."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import LongType, StringType
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakehold.ingest.deduplicate.carriers import APPLIED, COUNTS, Carrier, DriverRows, SparkRows
from lakehold.ingest.deduplicate.engine import Engine, Rule
from lakehold.ingest.envelope.change_columns import KEPT, OFFSET, PARTITION, Changes, Op, Phase
from lakehold.model.high_water_marks import HighWaterMarks
from lakehold.tables.column_types import ColumnType
from lakehold.tables.spark_types import from_spark

pytestmark = pytest.mark.spark

INTERNAL = """CAST(0 AS int) AS _lh_partition, _lh_offset, 'u' AS _lh_op,
    CAST(NULL AS struct<a:bigint,b:bigint,c:bigint,d:bigint>) AS _lh_position, CAST(NULL AS bigint) AS _lh_source_ms,
    'stream' AS _lh_phase, CAST(NULL AS array<string>) AS _lh_kept, CAST(NULL AS string) AS _lh_connector,
    false AS _lh_before_missing, CAST(NULL AS string) AS _lh_error"""

VALUES = {
    "boolean": ["true", "false"],
    "int": ["0", "-1", "2147483647"],
    "bigint": ["0", "-1", "9223372036854775807"],
    "float": ["float('NaN')", "0.0f", "-0.0f", "0.1f", "float('-Infinity')"],
    "double": ["double('NaN')", "sqrt(-1)", "0.0d", "-0.0d", "4.9E-324d", "0.1d", "double('Infinity')"],
    "decimal(38,2)": ["1.20BD", "1.2BD", "-999999999999999999999999999999999999.99BD"],
    "date": ["date_from_unix_date(6670000)", "date_from_unix_date(-735160)", "DATE'2026-11-21'"],
    "timestamp": ["timestamp_micros(576300000000000000)", "timestamp_micros(-1)", "timestamp_micros(0)"],
    "timestamp_ntz": [
        *("TIMESTAMP_NTZ'2026-03-29 02:30:00'", "TIMESTAMP_NTZ'2026-03-29 03:30:00'"),
        "TIMESTAMP_NTZ'+20232-03-21 21:20:00.000001'",
    ],
    "string": ["''", "'a'", "'a '", "'A'", "'e\u0301'", "'\u00e9'", "'null'", "repeat('x', 1000)"],
    "binary": ["X''", "X'00'", "X'0000'", "X'FF'"],
}


@pytest.mark.parametrize("kind", VALUES)
def test_equal_keys_are_those_that_spark_groups(spark: SparkSession, kind: str) -> None:
    values = ["NULL", *VALUES[kind]]
    # Each value is paired with each, so that parts of different keys meet; one value is in twice.
    pairs = [(one, other) for one in [*values, values[-1]] for other in values]
    rows = ", ".join(f"({offset}L, {one}, {other})" for offset, (one, other) in enumerate(pairs))
    frame = spark.sql(
        f"SELECT {INTERNAL}, CAST(a AS {kind}) AS a, CAST(b AS {kind}) AS b FROM VALUES {rows} AS t(_lh_offset, a, b)"
    )
    columns = tuple(ColumnType(f.name, from_spark(f.dataType)) for f in frame.schema.fields[-2:])
    carrier = SparkRows(Changes(frame, ("a", "b"), columns))
    try:
        headers = carrier.headers
    finally:
        carrier.release()
    found: dict[int, set[int]] = {}
    for number, offset in zip(headers.key.tolist(), headers.offset.tolist(), strict=True):
        found.setdefault(number, set()).add(offset)
    groups = frame.groupBy("a", "b").agg(F.collect_list(OFFSET).alias("offsets")).select("offsets").collect()
    assert sorted(map(sorted, found.values())) == sorted(sorted(row["offsets"]) for row in groups)
    with_null = {offset for offset, pair in enumerate(pairs) if "NULL" in pair}
    assert {o for o, null in zip(headers.offset.tolist(), headers.key_has_null, strict=True) if null} == with_null


ROWS = """_lh_partition int, _lh_offset bigint, _lh_op string, _lh_position struct<a:bigint,b:bigint,c:bigint,d:bigint>,
    _lh_source_ms bigint, _lh_phase string, _lh_kept array<string>, _lh_connector string, _lh_before_missing boolean,
    _lh_error string, id bigint, `a.b` string, `it's` array<string>, none int"""
COLUMNS = tuple(ColumnType(name, kind) for name, kind in (("id", LongType()), ("a.b", StringType())))


def random_rows(seed: int) -> list[tuple[Any, ...]]:
    """Return changes of few keys, many without values; some records are a delete and an update at one offset."""
    chosen = random.Random(seed)
    rows: list[tuple[Any, ...]] = []
    for offset in range(60):
        op = chosen.choice([Op.UPSERT.value] * 4 + [op.value for op in Op])
        error = chosen.choice([None] * 5 + ["null-key"])
        kept = chosen.choice([None, ["a.b"], ["it's"], ["a.b", "it's"], ["undeclared"], ["a.b", "undeclared"]])
        values = (f"text {offset}", [f"{offset}"], chosen.choice([None, offset]))
        rest = (None, Phase.STREAM.value, kept, "postgresql", False)
        place = (offset % 2, offset // 2)
        if error is not None:
            rows.append((*place, None, None, *rest, error, None, *values))
            continue
        if chosen.random() < 0.2:
            rows.append((*place, Op.DELETE.value, (offset, offset, 0, 0), *rest, None, chosen.randrange(4), *values))
            op = Op.UPSERT.value
        rows.append((*place, op, (offset, offset, 0, 1), *rest, None, 4 + chosen.randrange(4), *values))
    return rows


@pytest.mark.parametrize("seed", range(4))
def test_decisions_reach_rows_in_the_driver_and_in_spark_alike(spark: SparkSession, seed: int) -> None:
    rows = random_rows(seed)
    names = ("id", "a.b", "it's", "none")
    found = []
    for carrier in (DriverRows, SparkRows):
        rows_here = carrier(Changes(spark.createDataFrame(rows, ROWS).repartition(3), ("id",), COLUMNS))
        found.append(deduplicated(rows_here, names))
        rows_here.release()
    assert found[0] == found[1]
    assert {(row[0], row[1]) for row in found[0]} == {row[:2] for row in rows}
    assert any(
        applied and text != f"text {2 * offset + partition}"
        for partition, offset, _, _, applied, _, text, *_ in found[0]
    )


def deduplicated(carrier: Carrier, names: tuple[str, ...]) -> list[Any]:
    """Return each change after the decisions, without the values that the table keeps."""
    engine = Engine(carrier.headers, Rule(True, False, HighWaterMarks({0: (10, 10, 0, 1)})))
    decisions = engine.deduplicate()
    frame = carrier.frame(decisions, engine.givers(decisions, {"a.b", "it's", "none"}))
    return sorted(
        (
            *(
                row[PARTITION],
                row[OFFSET],
                str(row["_lh_op"]),
                row[COUNTS],
                row[APPLIED],
                *(row[name] for name in names),
            ),
            row[KEPT] if row[KEPT] and row[APPLIED] else None,
        )
        for row in frame.collect()
    )


def test_the_rows_of_many_changes_are_decoded_once(spark: SparkSession, tmp_path: Path) -> None:
    decoded = str(tmp_path)

    def seen(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            tempfile.mkstemp(dir=decoded)
            yield batch

    rows = spark.createDataFrame(random_rows(0), ROWS).coalesce(1).withColumnRenamed("a.b", "text")
    frame = rows.mapInArrow(seen, rows.schema).withColumnRenamed("text", "a.b")
    carrier = SparkRows(Changes(frame, ("id",), COLUMNS))
    try:
        first, again = deduplicated(carrier, ("id", "a.b")), deduplicated(carrier, ("id", "a.b"))
    finally:
        carrier.release()
    assert first == again
    assert len(list(tmp_path.iterdir())) == 1
