"""Finds which schemas the messages of a batch use, from their first bytes, so that only these are fetched and decoded with.

An Avro message begins with the id of its schema in the registry, a message of Connect's JSON converter with the schema itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakehold.definitions import FormatType
from lakehold.spark_sql import literal

HEAD = r'^\s*\{\s*"schema"\s*:\s*\{.*?\}\s*,\s*"payload"\s*:(?!\s*null)'
"""The text that Connect's JSON converter writes before a payload, as a pattern for Java and Python; `.` matches line ends, too.

A message whose payload is null does not match: its schema shows nothing about rows.
"""

_HEADER_BYTES = 5
_HEAD = re.compile(HEAD, re.DOTALL)


@dataclass(frozen=True)
class SchemaIds:
    """The schemas of the records' keys and values: ids of Avro, or `HEAD`s of JSON; records without one are skipped."""

    keys: frozenset[int] | frozenset[str]
    values: frozenset[int] | frozenset[str]


def schema_ids_by_spark(raw: DataFrame, written: FormatType) -> SchemaIds:
    """Find the schemas of a large batch, whose records Spark holds, by one aggregation."""
    found = raw.select(*(_distinct(raw, part, written).alias(part) for part in ("key", "value"))).first()
    keys, values = (found.key, found.value) if found is not None else ([], [])
    if written is FormatType.AVRO:
        return SchemaIds(_avro_ids(keys), _avro_ids(values))
    return SchemaIds(frozenset(keys), frozenset(values))


def _distinct(raw: DataFrame, part: str, written: FormatType) -> Column:
    if written is FormatType.AVRO:
        begin = F.substring(raw[part], 1, _HEADER_BYTES)
    else:
        begin = F.expr(f"nullif(regexp_extract(CAST({part} AS STRING), {literal('(?s)' + HEAD)}, 0), '')")
    return F.collect_set(begin)


def schema_ids_in_driver(raw: pa.Table, written: FormatType) -> SchemaIds:
    """Find the schemas of a small batch, whose records are in the driver, without a Spark job."""
    keys, values = (raw.column(part).combine_chunks() for part in ("key", "value"))
    if written is FormatType.AVRO:
        return SchemaIds(_avro_ids(_begins(keys)), _avro_ids(_begins(values)))
    return SchemaIds(_heads(keys), _heads(values))


def _begins(part: pa.Array) -> list[bytes]:
    begins: list[bytes] = pc.unique(pc.binary_slice(part.drop_null(), 0, _HEADER_BYTES)).to_pylist()
    return begins


def _avro_ids(begins: list[bytes]) -> frozenset[int]:
    whole = (b for b in begins if len(b) == _HEADER_BYTES and b[0] == 0)
    return frozenset(int.from_bytes(b[1:], "big") for b in whole)


def _heads(part: pa.Array) -> frozenset[str]:
    heads: set[str] = set()
    for text in part.drop_null().to_pylist():
        body = _decoded(text)
        if not any(body.startswith(h) for h in heads) and (match := _HEAD.match(body)):
            heads.add(match.group(0))
    return frozenset(heads)


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")
