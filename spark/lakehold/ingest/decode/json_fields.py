"""Finds fields in a JSON text by their names, where Spark's `from_json` does not say enough. SQL expressions.

`from_json` accepts any token for a string, makes infinity of a number that is too great, and reports only that a record is
corrupt, not where. It makes doubles of numbers that only a decimal holds exactly. A field's name between
unescaped quotes, a colon and the first character of a value cannot occur inside a JSON string (its quotes would be
escaped), so a pattern over the text finds both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from lakehold.ingest.decode.connect_schema import ConnectSchema, SchemaType
from lakehold.spark_sql import literal, quoted

_WHOLE = r'["\[{tf]|-?[0-9]+[.eE]'
_NOT: dict[SchemaType, str] = {
    SchemaType.STRING: r'[^"n\s]',
    SchemaType.BYTES: r'[^"n\s]',
    SchemaType.BOOLEAN: r"[^tfn\s]",
    SchemaType.ARRAY: r"[^\[n\s]",
    SchemaType.STRUCT: r"[^{n\s]",
    SchemaType.INT8: _WHOLE,
    SchemaType.INT16: _WHOLE,
    SchemaType.INT32: _WHOLE,
    SchemaType.INT64: _WHOLE,
    SchemaType.FLOAT32: r"[\[{tf]",
    SchemaType.FLOAT64: r"[\[{tf]",
}
"""The beginnings that values of each type cannot have. A float may be quoted: `"NaN"`."""

_FLOATS = (SchemaType.FLOAT32, SchemaType.FLOAT64)
_INFINITE = "CAST('Infinity' AS DOUBLE)"

_UNESCAPED = re.compile(r"[\w .$#@-]+")
"""Names that JSON writes without escapes."""


def wrongly_typed(text: str, schema: ConnectSchema) -> str | None:
    """Write the name of the first field of the JSON `text` whose value cannot be of its type in `schema`; '' if there is none.

    None if no field can be identified by its name alone.
    """
    return _search(text, _patterns(schema))


def not_text_in_text_column(text: str, schema: ConnectSchema) -> str | None:
    """Write the name of the first text column of a row whose value is not a text; `from_json` fills it with any token.

    The row is `after` if the schema is one of Debezium's envelopes. The result is as that of `wrongly_typed`.
    """
    is_envelope = {"after", "op"} <= {f.name for f in schema.fields}
    row = schema.field_named("after") if is_envelope else schema
    columns = {name for name, _ in row.walk()} if row else set()
    pattern = _NOT[SchemaType.STRING]
    return _search(text, {n: p for n, p in _patterns(schema).items() if p == pattern and n in columns})


def numbers_in_quotes(text: str, names: Iterable[str]) -> str | None:
    """Write a text with quotes around numbers of fields of these names, and of the arrays in them.

    None if no field can be found by its name. An array's numbers follow each other, with nulls and texts between them.
    """
    listed = "|".join(re.escape(name) for name in sorted(names) if _UNESCAPED.fullmatch(name))
    number = r"-?(?:0|[1-9][0-9]*)(?:[.][0-9]+)?(?:[eE][+-]?[0-9]+)?"
    others = r'(?:(?:null|"[^"\\]*")\s*,\s*)*'
    pattern = rf'(?:("(?:{listed})"\s*:\s*(?:\[\s*{others})?)|\G(\s*,\s*{others}))({number})(?=\s*[,}}\]])'
    return f"""regexp_replace({text}, {literal(pattern)}, '$1$2"$3"')""" if listed else None


def overflowed(row: str, text: str, schema: ConnectSchema) -> Iterator[str]:
    """Yield the condition, for each field of floating-point numbers, that a number too great for it became infinite.

    Args:
        row: SQL of the parsed structure.
        text: SQL of the JSON it was parsed from; if the text itself says `Infinity`, infinity is correct.
        schema: The schema of the structure.
    """
    for f in schema.fields:
        place = f"{row}.{quoted(f.name)}"
        if f.schema.type is SchemaType.STRUCT:
            yield from overflowed(place, text, f.schema)
        elif f.schema.type in _FLOATS:
            field = rf'"{re.escape(f.name)}"\s*:\s*"?' if _UNESCAPED.fullmatch(f.name) else ""
            yield f"(abs({place}) = {_INFINITE} AND NOT {text} RLIKE {literal(rf'{field}[+-]?(?:Infinity|INF)')})"
        elif f.schema.items is not None and f.schema.items.type in _FLOATS:
            some = f"(array_contains({place}, {_INFINITE}) OR array_contains({place}, -{_INFINITE}))"
            yield f"({some} AND NOT {text} RLIKE 'Infinity|INF')"


def _patterns(schema: ConnectSchema) -> dict[str, str]:
    """Return for each field's name the beginnings that its value cannot have.

    Names of several fields with different types are left out. None is left if the schema has a map, whose keys are data
    and may be equal to a field's name.
    """
    kinds: dict[str, set[str | None]] = {}
    for name, field in schema.walk():
        if field.type is SchemaType.MAP:
            return {}
        kinds.setdefault(name, set()).add(None if field.is_declared else _NOT.get(field.type))
    single = {name: next(iter(patterns)) for name, patterns in kinds.items() if len(patterns) == 1}
    return {name: p for name, p in single.items() if p is not None and _UNESCAPED.fullmatch(name)}


def _search(text: str, patterns: dict[str, str]) -> str | None:
    if not patterns:
        return None
    names: dict[str, list[str]] = {}
    for name, pattern in patterns.items():
        names.setdefault(pattern, []).append(re.escape(name))
    alternatives = "|".join(rf'(?:{"|".join(n)})"\s*:\s*(?:{p})' for p, n in names.items())
    found = f'"(?={alternatives})([^"]+)'
    return f"regexp_extract({text}, {literal(found)}, 1)"
