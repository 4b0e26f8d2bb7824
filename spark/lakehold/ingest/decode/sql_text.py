"""Texts and structs inside generated SQL."""

from __future__ import annotations


def literal(text: str) -> str:
    """A text as a string literal of Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def struct_of(fields: dict[str, str]) -> str:
    """A `named_struct` of expressions."""
    return f"named_struct({', '.join(f'{literal(n)}, {e}' for n, e in fields.items())})"
