"""Finding the field of a JSON text whose value has the wrong type.

`from_json` takes any token for a string, and says only that a record is corrupt, not where. A field's name between
unescaped quotes, a colon and the first character of a value cannot stand inside a JSON string (its quotes would be
escaped), so a pattern over the text finds both.
"""

from __future__ import annotations

import re

from lakehold.ingest.decode.connect_schema import ConnectSchema, SchemaType
from lakehold.ingest.decode.logical import DECLARED
from lakehold.ingest.decode.sql_text import literal

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
"""For each type what its values cannot begin with. A float may be quoted: `"NaN"`."""


def wrongly_typed(text: str, schema: ConnectSchema) -> str | None:
    """SQL that gives the first field of `text` whose value cannot be of its type, with the value's begin; '' if none.

    Names that stand for fields of several types are left out. None if no name is left, or if the schema has a map, whose
    keys are data and may be called as a field is.
    """
    kinds: dict[str, set[str | None]] = {}
    for name, field in schema.walk():
        if field.type is SchemaType.MAP:
            return None
        kinds.setdefault(name, set()).add(None if (field.name or "").startswith(DECLARED) else _NOT.get(field.type))
    names: dict[str, list[str]] = {}
    for name, patterns in kinds.items():
        (pattern, *others) = patterns
        if pattern is not None and not others and name and re.fullmatch(r"[\w .$#@-]+", name):
            names.setdefault(pattern, []).append(re.escape(name))
    if not names:
        return None
    alternatives = "|".join(rf'(?:{"|".join(n)})"\s*:\s*(?:{p})' for p, n in names.items())
    pattern = f'"(?:{alternatives})'
    return f"regexp_extract({text}, {literal(pattern)}, 0)"

