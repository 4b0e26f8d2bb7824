"""Names of objects: unquoted ones are lowercase, quoted ones (backquotes, or double quotes) stay as written.

Spark matches names whatever their case, Iceberg's catalogs do not: one spelling keeps the two from drifting apart.
"""

from __future__ import annotations

from lakehold.sql.cursor import Cursor
from lakehold.sql.statements import ObjectKind

CATALOG = "lake"
"""The catalog a table's name may begin with; it is the session's own and is left out of full names."""

_LONGEST_NAME = 255
"""In bytes, of a folder."""
_TWO_PARTS = 2
_THREE_PARTS = 3


def object_reference(cursor: Cursor, kind: ObjectKind) -> str:
    """The name of an object of `kind`, in full for a table."""
    return table_reference(cursor) if kind is ObjectKind.TABLE else cursor.object_name(f"a {kind} name")


def table_reference(cursor: Cursor) -> str:
    """A table's name with as many parts as are written, without the session's own catalog."""
    return ".".join(_without_catalog(_parts(cursor)))


def new_table_name(cursor: Cursor) -> tuple[str, str]:
    """`namespace.table` of a table to be made.

    Raises:
        StatementError: There are fewer or more parts.
    """
    first = cursor.peek()
    parts = _without_catalog(_parts(cursor))
    if len(parts) != _TWO_PARTS:
        written = ".".join(parts)
        hint = f"write shop.{written}, for example" if len(parts) == 1 else ""
        raise cursor.error_at(first, f"expected namespace.table, found {written}", last=cursor.last, hint=hint)
    unfit = next((part for part in parts if _is_unfit(part)), None)
    if unfit is not None:
        hint = f"a name has no dot, slash or line break, no space around it, and at most {_LONGEST_NAME} bytes"
        raise cursor.error_at(first, f'"{unfit}" cannot be a name of a table', last=cursor.last, hint=hint)
    return parts[0], parts[1]


def _is_unfit(part: str) -> bool:
    """Return whether a part would not be told from two parts, or is no name of a folder, in which a table's files are."""
    is_long = len(part.encode()) > _LONGEST_NAME
    return is_long or part != part.strip() or any(c < " " or c in "./\\\x7f" for c in part)


def namespace_reference(cursor: Cursor) -> str:
    """A namespace with as many parts as are written, without the session's own catalog."""
    parts = _parts(cursor, "a namespace")
    return ".".join(parts[1:] if len(parts) == _TWO_PARTS and parts[0] == CATALOG else parts)


def _parts(cursor: Cursor, what: str = "a table name") -> list[str]:
    parts = [cursor.object_name(what)]
    while cursor.accept_symbol("."):
        parts.append(cursor.object_name(what))
    return parts


def _without_catalog(parts: list[str]) -> list[str]:
    return parts[1:] if len(parts) == _THREE_PARTS and parts[0] == CATALOG else parts
