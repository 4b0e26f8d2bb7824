"""What is wrong with records: a code and a sentence for each that cannot be decoded, in SQL over what parsers made of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lakehold.ingest.changes import UNKNOWN_SCHEMA
from lakehold.ingest.decode import debezium
from lakehold.ingest.decode.parts import Part
from lakehold.ingest.decode.structures import Structure, parsed_column
from lakehold.spark_sql import literal, struct_of


@dataclass(frozen=True)
class Decoding:
    """A part and the structures it becomes; `is_small` tells the records that may be parsed."""

    part: Part
    structures: tuple[Structure, ...]
    is_small: str

    @property
    def problem(self) -> str:
        """The column that says what is wrong with a record."""
        return f"_{self.part.name}_problem_{self.part.reader}"


def problem(of: Decoding, *, is_debezium: bool) -> str:
    """What is wrong with a part, as `struct<code, detail>`; null if nothing is."""
    if not of.part.versions and not of.part.written_with:
        return "CAST(NULL AS struct<code:string,detail:string>)"
    name, undecodable = of.part.name, f"undecodable-{of.part.name}"
    unread = [
        (f"{name} IS NULL", None, ""),
        (f"NOT ({of.is_small})", "oversized", literal("The record is longer than the limit.")),
        (of.part.is_blank, undecodable if name == "key" else "empty-value", literal(f"The {name} is empty, not null.")),
        (of.part.is_broken, undecodable, literal(f"The {name} does not begin with a byte 0 and the id of a schema.")),
        *((r.matches, r.reason, literal(r.detail)) for r in of.part.refused),
        (of.part.is_null, None, ""),
        ("true" if of.part.written_with else "false", UNKNOWN_SCHEMA, of.part.written_with),
    ]
    read = [*_corrupt(of, undecodable), *_wrong_columns(of, undecodable, is_debezium=is_debezium)]
    # Most records are read and right: they pass the fewest conditions.
    is_unread = " AND ".join(f"{parsed_column(of.part, i)} IS NULL" for i in range(len(of.part.versions))) or "true"
    return f"CASE WHEN {is_unread} THEN {_first_of(unread)} {_branches(read)} END"


def _first_of(cases: Iterable[tuple[str, str | None, str]]) -> str:
    return f"CASE {_branches(cases)} END"


def _branches(cases: Iterable[tuple[str, str | None, str]]) -> str:
    return " ".join(
        f"WHEN {condition} THEN {_finding(code, detail)}" for condition, code, detail in cases if condition != "false"
    )


def _finding(code: str | None, detail: str) -> str:
    return struct_of({"code": literal(code), "detail": detail}) if code else "NULL"


def _corrupt(of: Decoding, code: str) -> Iterator[tuple[str, str, str]]:
    schema = "with its schema" if of.part.written_with else "as JSON with its columns"
    sentence = f"The {of.part.name} cannot be read {schema}"
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


def _wrong_columns(of: Decoding, undecodable: str, *, is_debezium: bool) -> Iterator[tuple[str, str, str]]:
    if is_debezium and of.part.name == "value":
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
