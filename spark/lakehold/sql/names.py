"""Names of objects: unquoted ones are lowercase, quoted ones (backquotes, or double quotes) stay as written.

Spark matches names whatever their case, Iceberg's catalogs do not: one spelling keeps the two from drifting apart.
"""

from __future__ import annotations

from sqlglot import Token

from lakehold.sql.cursor import Cursor
from lakehold.sql.statements import ObjectKind

CATALOG = "lake"
"""The catalog a table's name may begin with; it is the session's own and is left out of full names."""

_LONGEST_NAME = 255
"""In bytes, of a folder."""

_UNFIT = "./\\?#`\x7f"
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
    for part in parts:
        check_stored_name(cursor, part, first, cursor.last)
    return parts[0], parts[1]


def check_stored_name(cursor: Cursor, name: str, first: Token, last: Token) -> None:
    """Refuse a name that no namespace or table of lakehold's can have; the tokens from `first` to `last` say it.

    A name with a dot would look like two names. Catalogs make a path of a table's names: `a/b`.`c` and `a`.`b/c` would
    share a folder, and readers take what follows a `?` or `#` in a path for something else. Spark cannot read a table whose
    namespace has a backquote in its name.
    """
    is_long = len(name.encode()) > _LONGEST_NAME
    if is_long or name != name.strip() or any(c < " " or c in _UNFIT for c in name):
        hint = rf"a name has none of . / \ ? # ` and no line break in it, no space around it, and at most {_LONGEST_NAME} bytes"
        raise cursor.error_at(first, f'"{name}" cannot be a name of a table', last=last, hint=hint)


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
