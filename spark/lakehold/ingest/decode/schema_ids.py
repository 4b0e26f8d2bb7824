"""Which schemas the records of a batch were written with: read from their first bytes, before anything is decoded."""

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
"""What Connect's JSON converter writes before a payload, for Java and Python alike; `.` stands for line ends too.

The schema of a null tells nothing of rows.
"""

SCHEMA_MEMBER = "$.schema"
"""Path of the schema in a record that does not begin with it, for `get_json_object`."""

_HEADER_BYTES = 5
_HEAD = re.compile(HEAD, re.DOTALL)
_ENDS_IN_NULL = re.compile(rb'"payload"\s*:\s*null\s*\}\s*$')


@dataclass(frozen=True)
class SchemaIds:
    """Schema ids (Avro) or heads (JSON) of the records' keys and values; records that have none are left out.

    Among heads, which end in a colon, are schemas of records that do not begin with one.
    """

    keys: frozenset[int] | frozenset[str]
    values: frozenset[int] | frozenset[str]


def schema_ids(raw: DataFrame, written: FormatType) -> SchemaIds:
    """The schemas of raw records (see `decode.decode`), by one aggregation."""
    found = raw.select(*(_distinct(raw, part, written).alias(part) for part in ("key", "value"))).first()
    keys, values = (found.key, found.value) if found is not None else ([], [])
    if written is FormatType.AVRO:
        return SchemaIds(_avro_ids(keys), _avro_ids(values))
    return SchemaIds(frozenset(keys), frozenset(values))


def _distinct(raw: DataFrame, part: str, written: FormatType) -> Column:
    if written is FormatType.AVRO:
        begin = F.substring(raw[part], 1, _HEADER_BYTES)
    else:
        text = f"CAST({part} AS STRING)"
        head = f"nullif(regexp_extract({text}, {literal('(?s)' + HEAD)}, 0), '')"
        begin = F.expr(f"coalesce({head}, {_schema_apart(text)})")
    return F.collect_set(begin)


def _schema_apart(text: str) -> str:
    """SQL of the schema in a record of Connect's whose members stand in another order, or among others."""
    member = f"get_json_object({text}, {literal(SCHEMA_MEMBER)})"
    is_schema = f"{member} LIKE '{{%' AND get_json_object({member}, '$.type') IS NOT NULL"
    is_schema += f" AND get_json_object({text}, '$.payload') IS NOT NULL"
    may_have_one = f"""contains({text}, '"schema"') AND contains({text}, '"payload"')"""
    return f"CASE WHEN {may_have_one} THEN CASE WHEN {is_schema} THEN {member} END END"


def begin_with_schemas(raw: pa.Table) -> bool:
    """Return whether JSON records that have a schema begin with it, which is what `schema_ids_of` finds."""
    texts = (text for part in ("key", "value") for text in raw.column(part).drop_null().to_pylist())
    return not any(
        b'"schema"' in text
        and b'"payload"' in text
        and not _ENDS_IN_NULL.search(text)
        and not _HEAD.match(_decoded(text))
        for text in texts
    )


def schema_ids_of(raw: pa.Table, written: FormatType) -> SchemaIds:
    """The same of records that are here already, without Spark."""
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
