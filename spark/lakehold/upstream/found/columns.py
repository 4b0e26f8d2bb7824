"""Columns of a table, as its database describes them. Data classes only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_QUOTED = re.compile(r"'.*'")
_ARGUMENTS = re.compile(r"[\w ]+?\((-?\d+)(?:,(-?\d+))?\)")


class TypeKind(StrEnum):
    """A kind of types, by its letter in PostgreSQL's `pg_type.typtype`; MySQL and MariaDB have plain ones only."""

    PLAIN = "b"
    COMPOSITE = "c"
    DOMAIN = "d"
    ENUM = "e"
    MULTIRANGE = "m"
    PSEUDO = "p"
    RANGE = "r"


@dataclass(frozen=True)
class FoundType:
    """The type of a column, or of an array's elements, as the database names it.

    Attributes:
        name: The bare name in the catalogue of the database: `numeric`, `int4`, `bigint`.
        text: The type as the database writes it: `numeric(12,2)`, `integer`, `bigint(20) unsigned`.
        kind: The kind of the type.
    """

    name: str
    text: str
    kind: TypeKind = TypeKind.PLAIN

    @property
    def arguments(self) -> tuple[int, ...]:
        """Return the numbers in parentheses: precision and scale of a decimal, a length, a display width."""
        found = _ARGUMENTS.match(self.text) if self.kind is TypeKind.PLAIN else None
        return tuple(int(number) for number in found.groups() if number is not None) if found is not None else ()

    @property
    def is_unsigned(self) -> bool:
        """Return whether a type of MySQL or MariaDB excludes negative numbers."""
        return "unsigned" in _QUOTED.sub("", self.text).split()


@dataclass(frozen=True)
class FoundColumn:
    """A column of a table, as its database describes it.

    Attributes:
        name: Name of the column.
        text: The declared type as the database writes it: a domain by its name, `numeric(12,2)[]`.
        type: The type below all domains. For an array: the type of its elements, which may be a domain.
        is_array: The column, below all domains, is an array.
        dimensions: The declared number of dimensions of an array, which PostgreSQL does not enforce.
        is_nullable: The column takes nulls.
        is_key: The column is part of the primary key, or of the unique index that replaces one.
        is_generated: The database computes the column's values.
        domain: The bare name of the declared type, if that is a domain.
        has_default: The column has a default that is not null; identity and AUTO_INCREMENT are none.
        is_invisible: `SELECT *` does not return the column, as MySQL and MariaDB may have it.
        storage: How PostgreSQL stores large values, by its letter in `pg_attribute.attstorage`: `p` in the row, always.
        number: The number that the column keeps when it is renamed; 0 where the database has none, as MySQL and MariaDB.
    """

    name: str
    text: str
    type: FoundType
    is_array: bool = False
    dimensions: int = 0
    is_nullable: bool = True
    is_key: bool = False
    is_generated: bool = False
    domain: str = ""
    has_default: bool = False
    is_invisible: bool = False
    storage: str = "p"
    number: int = 0
