"""Problems of records: a code and a sentence for each record that cannot be decoded, in SQL over parser results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lakehold.ingest.decode import debezium
from lakehold.ingest.decode.message_parts import Part
from lakehold.ingest.decode.structures import Structure
from lakehold.spark_sql import literal, struct_of

UNKNOWN_SCHEMA = "unknown-schema"
"""The error of a message whose schema is not known: the registry may know it, if it was not asked yet."""


def problem(part: Part, structures: Sequence[Structure], *, is_debezium: bool) -> str:
    """Write the problem of a part, which becomes `structures`, as `struct<code, detail>`; null if there is none."""
    if not part.versions and not part.written_with:
        return "CAST(NULL AS struct<code:string,detail:string>)"
    name, undecodable = part.name, f"undecodable-{part.name}"
    unread = [
        (f"{name} IS NULL", None, ""),
        (f"NOT ({part.is_small})", "oversized", literal("The record is longer than the limit.")),
        (part.is_blank, undecodable if name == "key" else "empty-value", literal(f"The {name} is empty, not null.")),
        (part.is_broken, undecodable, literal(f"The {name} does not begin with a byte 0 and the id of a schema.")),
        *((r.matches, r.reason, literal(r.detail)) for r in part.refused),
        (part.is_null, None, ""),
        ("true" if part.written_with else "false", UNKNOWN_SCHEMA, part.written_with),
    ]
    envelope = debezium.problems(part) if is_debezium and name == "value" else ()
    read = [
        *_corrupt(part, undecodable),
        *((condition, undecodable, literal(detail)) for condition, detail in envelope),
        *(case for structure in structures for case in _wrong_columns(structure, undecodable)),
    ]
    # Most records are read without problems: they pass the fewest conditions.
    is_unread = " AND ".join(f"{version.parsed} IS NULL" for version in part.versions) or "true"
    return f"CASE WHEN {is_unread} THEN CASE {_branches(unread)} END {_branches(read)} END"


def _branches(cases: Iterable[tuple[str, str | None, str]]) -> str:
    return " ".join(
        f"WHEN {condition} THEN {_finding(code, detail)}" for condition, code, detail in cases if condition != "false"
    )


def _finding(code: str | None, detail: str) -> str:
    return struct_of({"code": literal(code), "detail": detail}) if code else "NULL"


def _corrupt(part: Part, code: str) -> Iterator[tuple[str, str, str]]:
    sentence = (
        f"The {part.name} cannot be read {'with its schema' if part.written_with else 'as JSON with its columns'}"
    )
    for version in part.versions:
        detail, corrupt = literal(f"{sentence}."), version.corrupt
        if version.wrong is not None:
            field = f"""concat(': the value of field "', nullif({version.wrong}, ''), '" is of another type')"""
            detail = f"concat({literal(sentence)}, coalesce({field}, ''), '.')"
        if version.taken is not None:
            corrupt = f"({corrupt} OR {version.taken} <> '')"
        yield f"{version.parsed} IS NOT NULL AND {corrupt}", code, detail


def _wrong_columns(structure: Structure, undecodable: str) -> Iterator[tuple[str, str, str]]:
    for condition, column in structure.undecodable():
        yield condition, undecodable, literal(f'Column "{column}" holds a value that its type cannot hold.')
    # Debezium may know only the key of the old row, whatever the schema requires.
    for condition, column in structure.missing() if structure.name != "before" else ():
        detail = literal(f'Column "{column}" is null, which its schema does not allow.')
        yield condition, "not-null-violated", detail
