"""From the bytes of a topic's records to typed columns, in one pass of built-in functions.

Each stage is one projection: parse every part with the schema it was written with; convert it to the columns of the
table, which are the same for all versions of the schema; say what is wrong; put it together. Each parser call stands in
one projection and is then referred to by name, so that it runs once per record. The last stage is a generator, because
no filter of a later stage is pushed through one: below it Spark would run the parsers again to decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import DataFrame

from lakehold.ingest.decode import debezium
from lakehold.ingest.decode.parsers import Call, Parsed
from lakehold.ingest.decode.parts import Part, is_small_value, part
from lakehold.ingest.decode.schemas import TopicSchemas, declared_envelope
from lakehold.ingest.decode.sql_text import literal, struct_of
from lakehold.ingest.decode.structures import Structure, calls, parsed_column, structure
from lakehold.ingest.decode.types import ColumnType

UNKNOWN_SCHEMA = "unknown-schema"
DEFAULT_MAX_RECORD_BYTES = 64 * 1024 * 1024
_RAW = ("topic", "partition", "offset", "timestamp_ms", "key", "value")


class Shape(StrEnum):
    """What a topic's values are."""

    DEBEZIUM = "debezium"
    FLAT = "flat"


@dataclass(frozen=True)
class Decoded:
    """Decoded records.

    `frame` has `topic, partition, offset, timestamp_ms, key_bytes, key struct<key_columns>, error, error_detail` and

    - DEBEZIUM: `op, before struct<columns>, after struct<columns>, unavailable array<string>` (columns of `after` that
      hold Debezium's placeholder for a value it does not have, null if none), `source struct<connector, snapshot,
      sequence, lsn, file, pos, row, ts_ms>, transaction struct<id, total_order>`;
    - FLAT: `value struct<columns>`.

    A tombstone (null value) has null everywhere and no error. A record with an error has no value; it has its key if
    that could be read. Errors: `oversized, empty-value, undecodable-key, undecodable-value, unknown-schema,
    unsupported-schema, not-debezium, not-null-violated`. Structures without columns (no schema given, or none usable)
    are of type `void`.

    Reading `frame` needs the JVM options of `lakehold.session`: without them Avro believes a corrupt record that says
    it is 2 GiB long, and takes the JVM down.

    `keys` has the names of the key's columns, once for each way that keys were written.
    """

    frame: DataFrame
    key_columns: tuple[ColumnType, ...]
    columns: tuple[ColumnType, ...]
    keys: frozenset[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class _Decoding:
    """A part and the structures it becomes; `is_small` tells the records that may be parsed."""

    part: Part
    structures: tuple[Structure, ...]
    is_small: str

    def calls(self) -> dict[str, Call]:
        """What parses the part, by the column that it gives."""
        return {parsed_column(self.part, i): call for i, call in enumerate(calls(self.part, self.is_small))}


@dataclass(frozen=True)
class Wanted:
    """What a reader wants of a topic's records: how keys and values were written, and what the values are."""

    schemas: TopicSchemas
    shape: Shape


def calls_for(wanted: Wanted, *, max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES) -> list[Call]:
    """What `decode` has parsers do: see `lakehold.ingest.decode.parsers.parsed_for`.

    Raises:
        TypeConflict: Two of the schemas give a column types that do not fit together.
    """
    parts = _parts(wanted.schemas, wanted.shape, max_record_bytes)
    return [call for part in parts for call in part.calls().values()]


def decode(
    raw: DataFrame,
    schemas: TopicSchemas,
    shape: Shape,
    *,
    max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES,
    parsed: Parsed | None = None,
) -> Decoded:
    """Decodes the raw records of one topic.

    Args:
        raw: `topic string, partition int, offset bigint, timestamp_ms bigint, key binary, value binary`.
        schemas: How keys and values were written. A record with another schema is an error `unknown-schema`.
        shape: What the values are.
        max_record_bytes: A record whose key and value are longer together is an error `oversized`.
        parsed: What parsers made of the same records.

    Raises:
        TypeConflict: Two of the schemas give a column types that do not fit together.
    """
    both = key, value = _parts(schemas, shape, max_record_bytes)
    wanted = key.calls() | value.calls()
    if parsed is None:
        results = raw.selectExpr("*", *(f"{call.sql} AS {name}" for name, call in wanted.items()))
    else:
        found = {name: parsed.result(call) for name, call in wanted.items()}
        results = parsed.frame.selectExpr(*_RAW, *(f"{sql} AS {name}" for name, sql in found.items()))
    typed = results.selectExpr("*", *(e for d in both for s in d.structures for e in s.conversions()))
    judged = typed.selectExpr("*", *(f"{_problem(d, shape)} AS _{d.part.name}_problem" for d in both))
    rest = debezium.fields(value.part, value.structures[-1]) if shape is Shape.DEBEZIUM else {}
    content = rest | {s.name: s.value() for s in value.structures}
    fields = {
        "key": f"CASE WHEN _key_problem IS NULL THEN {key.structures[0].value()} END",
        "error": "coalesce(_key_problem.code, _value_problem.code)",
        "error_detail": "coalesce(_key_problem.detail, _value_problem.detail)",
        **{n: f"CASE WHEN _key_problem IS NULL AND _value_problem IS NULL THEN {e} END" for n, e in content.items()},
    }
    result = f"inline_outer(array({struct_of(fields)}))"
    frame = judged.selectExpr("topic", "partition", "offset", "timestamp_ms", "key AS key_bytes", result)
    keys = frozenset(frozenset(f.name for f in version.schema.fields) for version in key.part.versions)
    return Decoded(frame, key.structures[0].columns, value.structures[-1].columns, keys)


def _parts(schemas: TopicSchemas, shape: Shape, max_bytes: int) -> tuple[_Decoding, _Decoding]:
    """The key and the value."""
    return _decode_key(schemas, max_bytes), _decode_value(schemas, shape, max_bytes)


def _decode_key(schemas: TopicSchemas, max_bytes: int) -> _Decoding:
    key = part("key", schemas.key)
    return _Decoding(key, (structure("key", key),), f"length(key) <= {max_bytes}")


def _decode_value(schemas: TopicSchemas, shape: Shape, max_bytes: int) -> _Decoding:
    is_small = is_small_value(max_bytes)
    if shape is Shape.FLAT:
        value = part("value", schemas.value)
        return _Decoding(value, (structure("value", value),), is_small)
    value = debezium.only_envelopes(part("value", schemas.value, declared_envelope))
    after = structure("after", value, "after")
    return _Decoding(value, (structure("before", value, "before", after.columns), after), is_small)


def _problem(of: _Decoding, shape: Shape) -> str:
    """What is wrong with a part, as `struct<code, detail>`; null if nothing is."""
    if not of.part.versions and not of.part.written_with:
        return "CAST(NULL AS struct<code:string,detail:string>)"
    name, undecodable = of.part.name, f"undecodable-{of.part.name}"
    cases = [
        (f"{name} IS NULL", None, ""),
        (f"NOT ({of.is_small})", "oversized", literal("The record is longer than the limit.")),
        (of.part.is_blank, undecodable if name == "key" else "empty-value", literal(f"The {name} is empty, not null.")),
        (of.part.is_broken, undecodable, literal(f"The {name} does not begin with a byte 0 and the id of a schema.")),
        *((r.matches, r.reason, literal(r.detail)) for r in of.part.refused),
        *_corrupt(of, undecodable),
        (_is_unknown(of), UNKNOWN_SCHEMA, of.part.written_with),
        *_wrong_columns(of, shape, undecodable),
    ]
    branches = (
        f"WHEN {condition} THEN {_finding(code, detail)}" for condition, code, detail in cases if condition != "false"
    )
    return f"CASE {' '.join(branches)} END"


def _finding(code: str | None, detail: str) -> str:
    return f"named_struct('code', '{code}', 'detail', {detail})" if code else "NULL"


def _corrupt(of: _Decoding, code: str) -> Iterator[tuple[str, str, str]]:
    sentence = f"The {of.part.name} cannot be read with its schema"
    for i, version in enumerate(of.part.versions):
        parsed = parsed_column(of.part, i)
        detail = literal(f"{sentence}.")
        condition = f"{parsed} IS NOT NULL AND {version.corrupt(parsed)}"
        if version.wrong is not None:
            field = f"""concat(': the value of field "', nullif({version.wrong}, ''), '" is of another type')"""
            detail = f"concat({literal(sentence)}, coalesce({field}, ''), '.')"
        if version.taken is not None:
            condition = f"{parsed} IS NOT NULL AND ({version.corrupt(parsed)} OR {version.taken} <> '')"
        yield condition, code, detail


def _is_unknown(of: _Decoding) -> str:
    """No version took the record."""
    if not of.part.written_with:
        return "false"
    return " AND ".join([f"{parsed_column(of.part, i)} IS NULL" for i in range(len(of.part.versions))] or ["true"])


def _wrong_columns(of: _Decoding, shape: Shape, undecodable: str) -> Iterator[tuple[str, str, str]]:
    if shape is Shape.DEBEZIUM and of.part.name == "value":
        yield from ((condition, undecodable, literal(detail)) for condition, detail in debezium.problems(of.part))
    for s in of.structures:
        for condition, column in s.undecodable():
            yield condition, undecodable, literal(f'Column "{column}" holds a value that its type cannot hold.')
        # What Debezium knows of the old row may be its key alone, whatever the schema says.
        for condition, column in s.missing() if s.name != "before" else ():
            yield (
                condition,
                "not-null-violated",
                literal(f'Column "{column}" is null, which its schema does not allow.'),
            )
