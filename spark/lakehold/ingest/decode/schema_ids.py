"""Finds which schemas the messages of a batch use, from their first bytes, so that only these are fetched and decoded with.

An Avro message begins with the id of its schema in the registry, a message of Connect's JSON converter with the schema itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehold.definitions import FormatType
from lakehold.spark_sql import literal

HEAD = r'^\s*\{\s*"schema"\s*:\s*\{.*?\}\s*,\s*"payload"\s*:(?!\s*null)'
"""The text that Connect's JSON converter writes before a payload, as a pattern for Java and Python; `.` matches line ends, too.

A message whose payload is null does not match: its schema shows nothing about rows.
"""

_HEADER_BYTES = 5
_HEAD = re.compile(HEAD, re.DOTALL)
_NULL = re.compile(r"\s*null")


@dataclass(frozen=True)
class SchemaIds:
    """The schemas of the records' keys and values, oldest first: ids of Avro, or `HEAD`s of JSON.

    A greater id is a newer schema. `HEAD`s have no number: they are in the order in which the topic got them. `has_bare_keys` and
    `has_bare_values` say whether JSON without a `HEAD` is among them.
    """

    keys: tuple[int, ...] | tuple[str, ...]
    values: tuple[int, ...] | tuple[str, ...]
    has_bare_keys: bool = False
    has_bare_values: bool = False


def schema_ids_by_spark(raw: DataFrame, written: FormatType) -> SchemaIds:
    """Find the schemas of a large batch, whose records Spark holds, by one aggregation."""
    if written is FormatType.AVRO:
        begins = (F.collect_set(F.substring(raw[part], 1, _HEADER_BYTES)).alias(part) for part in ("key", "value"))
        found = raw.select(*begins).first()
        return SchemaIds(_avro_ids(found.key), _avro_ids(found.value)) if found is not None else SchemaIds((), ())
    heads = (F.expr(f"{_head_of(part)} AS {part}") for part in ("key", "value"))
    used = raw.select("partition", "offset", "timestamp_ms", *heads).groupBy("partition", "key", "value")
    # Two minima of numbers, because Spark sorts all records for a minimum of structures.
    rows = used.agg(F.min("offset").alias("offset"), F.min("timestamp_ms").alias("timestamp_ms")).collect()
    firsts = [[_FirstUse(r.partition, r.offset, r.timestamp_ms, r[part]) for r in rows] for part in ("key", "value")]
    return _ids_of(*firsts)


def _head_of(part: str) -> str:
    """Write the `HEAD` of a key or value: '' if it has none, null if it is null itself."""
    return f"regexp_extract(CAST({part} AS STRING), {literal('(?s)' + HEAD)}, 0)"


def _ids_of(keys: Collection[_FirstUse], values: Collection[_FirstUse]) -> SchemaIds:
    bare = (any(use.head == "" for use in uses) for uses in (keys, values))
    return SchemaIds(_oldest_first(keys), _oldest_first(values), *bare)


def schema_ids_in_driver(raw: pa.Table, written: FormatType) -> SchemaIds:
    """Find the schemas of a small batch, whose records are in the driver, without a Spark job."""
    if written is FormatType.AVRO:
        keys, values = (_avro_ids(_begins(raw[part].combine_chunks())) for part in ("key", "value"))
        return SchemaIds(keys, values)
    return _ids_of(*([*_first_uses(raw, part)] for part in ("key", "value")))


def _begins(part: pa.Array) -> list[bytes]:
    begins: list[bytes] = pc.unique(pc.binary_slice(part.drop_null(), 0, _HEADER_BYTES)).to_pylist()
    return begins


def _avro_ids(begins: list[bytes]) -> tuple[int, ...]:
    whole = (b for b in begins if len(b) == _HEADER_BYTES and b[0] == 0)
    return tuple(sorted(int.from_bytes(b[1:], "big") for b in whole))


class _FirstUse(NamedTuple):
    """The first use of a `HEAD` in some records of a partition; empty: these have none; None: they are null."""

    partition: int
    offset: int
    timestamp_ms: int
    head: str | None


def _first_uses(raw: pa.Table, part: str) -> Iterator[_FirstUse]:
    heads: list[str | None] = []
    known: dict[str, None] = {}
    for text in raw[part].to_pylist():
        body = "" if text is None else _decoded(text)
        head = next((h for h in known if body.startswith(h) and not _NULL.match(body, len(h))), "")
        if not head and (match := _HEAD.match(body)):
            known[head := match.group(0)] = None
        heads.append(None if text is None else head)
    uses = raw.select(["partition", "offset", "timestamp_ms"]).append_column("head", pa.array(heads, pa.string()))
    firsts = uses.group_by(["partition", "head"]).aggregate([("offset", "min"), ("timestamp_ms", "min")])
    columns = (firsts[name].to_pylist() for name in ("partition", "offset_min", "timestamp_ms_min", "head"))
    return (_FirstUse(*row) for row in zip(*columns, strict=True))


def _oldest_first(uses: Iterable[_FirstUse]) -> tuple[str, ...]:
    """Return the `HEAD`s in the order of their first use.

    In a partition offsets give the order. Partitions are compared by timestamp: the greatest so far, which never decreases.
    """
    firsts: dict[str, tuple[int, int, int]] = {}
    reached: dict[int, int] = {}
    for partition, offset, timestamp_ms, head in sorted(uses, key=lambda use: (use.partition, use.offset)):
        if head:
            reached[partition] = max(reached.get(partition, timestamp_ms), timestamp_ms)
            first = (reached[partition], offset, partition)
            firsts[head] = min(firsts.get(head, first), first)
    return tuple(sorted(firsts, key=firsts.__getitem__))


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")
