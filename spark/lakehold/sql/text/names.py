"""Names of objects: unquoted ones are lowercase, quoted ones (backquotes, or double quotes) stay as written.

Spark matches names in any case, but Iceberg's catalogs do not. With one spelling both always find the same table.
In statements that Spark runs, names stay as written, and what is no name for lakehold (`shop.2024`, `shop.to`) may be one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import Token

from lakehold.definitions import ObjectKind
from lakehold.sql.text.cursor import Cursor

_LONGEST_NAME = 255
"""In bytes, of a folder."""

_SPARK_PART = r"`(?:[^`]|``)+`|\w+"
_SPARK_PARTS = re.compile(_SPARK_PART)
_SPARK_NAME = re.compile(rf"(?:{_SPARK_PART})(?:\.(?:{_SPARK_PART}))*")

_UNFIT = "./\\?#`\x7f"
_TWO_PARTS = 2
_THREE_PARTS = 3


def object_reference(cursor: Cursor, kind: ObjectKind) -> str:
    """Read the name of an object of `kind`: the full name for a table or a materialized view."""
    has_full_name = kind in (ObjectKind.TABLE, ObjectKind.MATERIALIZED_VIEW)
    return table_reference(cursor) if has_full_name else cursor.object_name(f"a {kind} name")


def names_lake(cursor: Cursor, kind: ObjectKind) -> bool:
    """Return whether the name of an object of `kind` that comes next is a table's with the lake's catalog; stay before it."""
    return kind is ObjectKind.TABLE and begins_with_catalog(cursor)


def table_reference(cursor: Cursor) -> str:
    """Read the name of a table, with as many parts as are written, but without the session's own catalog."""
    return ".".join(_table_parts(cursor))


def spark_table_reference(cursor: Cursor) -> str:
    """Read the name of a table as Spark reads it, without the session's own catalog; empty if no name comes next."""
    written = ""
    while not cursor.at_end and (not written or "." in (written[-1], cursor.source_text(cursor.peek())[0])):
        token = cursor.advance()
        # sqlglot has several tokens for one text such as `1d`.
        while cursor.peek().start == token.start:
            cursor.advance()
        written += cursor.source_text(token)
    if not _SPARK_NAME.fullmatch(written):
        return ""
    parts = [_unquoted(part) for part in _SPARK_PARTS.findall(written)]
    if len(parts) >= _THREE_PARTS and parts[0].lower() == cursor.catalog.lower():
        del parts[0]
    return ".".join(parts)


def _unquoted(part: str) -> str:
    return part[1:-1].replace("``", "`") if part[0] == "`" else part


def new_table_name(cursor: Cursor) -> tuple[str, str]:
    """Read the name `namespace.table` of a new table.

    Raises:
        StatementError: The name has fewer or more parts, or cannot be stored.
    """
    first = cursor.peek()
    parts = _table_parts(cursor)
    if len(parts) != _TWO_PARTS:
        written = ".".join(parts)
        hint = f"write shop.{written}, for example" if len(parts) == 1 else ""
        raise cursor.error_at(first, f"expected namespace.table, found {written}", last=cursor.last, hint=hint)
    for part in parts:
        check_stored_name(cursor, part, first, cursor.last)
    return parts[0], parts[1]


def check_stored_name(cursor: Cursor, name: str, first: Token, last: Token) -> None:
    """Refuse a name that no namespace or table of lakehold's can have; it was read from the tokens `first` to `last`.

    A name with a dot would look like two names. Catalogs make paths of names: `a/b`.`c` and `a`.`b/c` would share a folder,
    and readers do not take the text after a `?` or `#` as part of the path. Spark cannot read a table whose namespace has
    a backquote in its name.
    """
    is_long = len(name.encode()) > _LONGEST_NAME
    if is_long or name != name.strip() or any(c < " " or c in _UNFIT for c in name):
        hint = rf"a name cannot contain . / \ ? # ` or line breaks, begin or end with a space, or exceed {_LONGEST_NAME} bytes"
        raise cursor.error_at(first, f'"{name}" cannot be a name of a table', last=last, hint=hint)


def namespace_reference(cursor: Cursor) -> str:
    """Read the name of a namespace, with as many parts as are written, but without the session's own catalog."""
    parts = _parts(cursor, "a namespace")
    return ".".join(parts[1:] if len(parts) == _TWO_PARTS and parts[0] == cursor.catalog else parts)


def _parts(cursor: Cursor, what: str = "a table name") -> list[str]:
    parts = [cursor.object_name(what)]
    while cursor.accept_symbol("."):
        parts.append(cursor.object_name(what))
    return parts


def begins_with_catalog(cursor: Cursor) -> bool:
    """Return whether the name of a table that comes next begins with the session's own catalog; stay before it."""
    at = cursor.position
    parts = _parts(cursor)
    cursor.rewind(at)
    return _has_catalog(cursor, parts)


def _table_parts(cursor: Cursor) -> list[str]:
    parts = _parts(cursor)
    return parts[1:] if _has_catalog(cursor, parts) else parts


def _has_catalog(cursor: Cursor, parts: Sequence[str]) -> bool:
    return len(parts) == _THREE_PARTS and parts[0] == cursor.catalog
