"""Syntax tree of plain queries, which only select columns of one table and compare them with constants.

The SQL parser builds it (`sql/plain_query.py`), and `arrow_query` runs it without Spark.
"""

from __future__ import annotations

from dataclasses import dataclass

Constant = bool | int | str


@dataclass(frozen=True)
class Comparison:
    """`column operator constant`.

    Attributes:
        column: The column's name.
        operator: `=`, `!=`, `<`, `<=`, `>` or `>=`.
        constant: The value that the column is compared with.
    """

    column: str
    operator: str
    constant: Constant


@dataclass(frozen=True)
class OneOf:
    """`column IN (constants)`."""

    column: str
    constants: tuple[Constant, ...]


@dataclass(frozen=True)
class IsNull:
    """`column IS NULL`."""

    column: str


@dataclass(frozen=True)
class Negated:
    """`NOT condition`."""

    condition: Condition


@dataclass(frozen=True)
class AllOf:
    """`condition AND condition AND …`."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True)
class AnyOf:
    """`condition OR condition OR …`."""

    conditions: tuple[Condition, ...]


Condition = Comparison | OneOf | IsNull | Negated | AllOf | AnyOf


@dataclass(frozen=True)
class PlainSelect:
    """`SELECT columns FROM table WHERE condition`.

    Attributes:
        columns: Name in the table and name in the result of each column; `*` means all columns under their own names.
        condition: Selects the rows; None selects all.
    """

    columns: tuple[tuple[str, str], ...]
    condition: Condition | None = None


ALL_COLUMNS = ("*", "*")
