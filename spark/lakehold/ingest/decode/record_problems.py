"""Writes the SQL that finds why a message cannot be decoded: an error code and a sentence for its key, and for its value.

A message with a problem becomes a row of the error table instead of a row of its table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lakehold.ingest.decode.convert import Encoding
from lakehold.ingest.decode.message_parts import Part
from lakehold.ingest.decode.structures import Structure
from lakehold.spark_sql import literal, struct_of

UNKNOWN_SCHEMA = "unknown-schema"
"""The error of a message whose schema is unknown here: the caller fetches the schema from the registry and decodes again."""


def problem(
    part: Part,
    structures: Sequence[Structure],
    of_shape: Iterable[tuple[str, str]] = (),
    unread: Iterable[tuple[str, str, str]] = (),
) -> str:
    """Write the SQL of a message's first problem as `struct<code, detail>`; null if there is none.

    Args:
        part: The key or the value, with a parser for each schema that its messages use.
        structures: The structures of columns made from it: `key`, or `value`, or Debezium's `before` and `after`.
        of_shape: Conditions that a value that can be read is not of the shape that the reader wants, each with a sentence.
        unread: Conditions with a better reason why a value cannot be read than that it cannot, each with a code and a sentence.
    """
    if not part.versions and not part.written_with:
        return "CAST(NULL AS struct<code:string,detail:string>)"
    name, undecodable = part.name, f"undecodable-{part.name}"
    # In the order of importance; a condition with None as its code ends the search: nothing is wrong.
    without_row = [
        (f"{name} IS NULL", None, ""),
        (f"NOT ({part.is_small})", "oversized", literal("The record is longer than LAKEHOLD_MAX_RECORD_BYTES allows.")),
        (part.is_blank, undecodable if name == "key" else "empty-value", literal(f"The {name} is empty, not null.")),
        (part.is_broken, undecodable, literal(f"The {name} does not begin with a byte 0 and the id of a schema.")),
        *((r.matches, r.reason, literal(r.detail)) for r in part.refused),
        (part.is_null, None, ""),
        ("true" if part.written_with else "false", UNKNOWN_SCHEMA, part.written_with),
    ]
    read = [
        *_not_utf8(part, undecodable),
        *((condition, code, literal(detail)) for condition, code, detail in unread),
        *_corrupt(part, undecodable),
        *((condition, undecodable, literal(detail)) for condition, detail in of_shape),
        *(case for structure in structures for case in _wrong_columns(structure, undecodable)),
    ]
    # Most records are read without problems: they pass the fewest conditions.
    return f"CASE WHEN {part.is_unread} THEN CASE {_branches(without_row)} END {_branches(read)} END"


def _branches(cases: Iterable[tuple[str, str | None, str]]) -> str:
    return " ".join(
        f"WHEN {condition} THEN {_finding(code, detail)}" for condition, code, detail in cases if condition != "false"
    )


def _finding(code: str | None, detail: str) -> str:
    return struct_of({"code": literal(code), "detail": detail}) if code else "NULL"


def _not_utf8(part: Part, code: str) -> Iterator[tuple[str, str, str]]:
    """Yield the condition that JSON is not UTF-8: its parser puts U+FFFD for what it cannot read, so that two keys may be one."""
    if any(version.encoding is Encoding.JSON for version in part.versions):
        yield f"NOT is_valid_utf8(CAST({part.name} AS STRING))", code, literal(f"The {part.name} is not UTF-8.")


def _corrupt(part: Part, code: str) -> Iterator[tuple[str, str, str]]:
    """Yield for each schema the condition that its parser could not read the message, with code and sentence."""
    sentence = (
        f"The {part.name} cannot be read {'with its schema' if part.written_with else 'as JSON with its columns'}"
    )
    for version in part.versions:
        detail, corrupt = literal(f"{sentence}."), version.corrupt
        if version.wrong is not None:
            field = f"""concat(': the value of field "', nullif({version.wrong}, ''), '" is of another type')"""
            detail = f"concat({literal(sentence)}, coalesce({field}, ''), '.')"
        if version.not_text is not None:
            corrupt = f"({corrupt} OR {version.not_text} <> '')"
        yield f"{version.parsed} IS NOT NULL AND {corrupt}", code, detail


def _wrong_columns(structure: Structure, undecodable: str) -> Iterator[tuple[str, str, str]]:
    """Yield the conditions that a column's value does not fit its type, or is null against the schema."""
    for condition, sentence in structure.undecodable():
        yield condition, undecodable, literal(sentence)
    # Debezium may know only the key of the old row, whatever the schema requires.
    for condition, column in structure.missing() if structure.name != "before" else ():
        detail = literal(f'Column "{column}" is null, which its schema does not allow.')
        yield condition, "not-null-violated", detail
