"""ALTER: options of connections, sources, tables, views and subscriptions that may change, each with SET and RESET.

Every other ALTER TABLE is Spark's.
"""

from __future__ import annotations

from lakehold.definitions import ObjectKind, OptionValue
from lakehold.holds.retention import RETAIN_HISTORY
from lakehold.sql.statements import AlterOptions, AlterSource, RetainHistory
from lakehold.sql.text.cursor import Cursor
from lakehold.sql.text.names import begins_with_catalog, table_reference
from lakehold.sql.text.options import (
    ALTERED_VIEW,
    CONNECTIONS,
    RETENTION,
    SOURCE,
    SUBSCRIPTION,
    OptionSet,
    parse_option_names,
    parse_options,
)

ALTERED_CONNECTION = OptionSet(
    {name: option for each in reversed(CONNECTIONS.values()) for name, option in each.known.items()}
)
"""The options of connections of all kinds, since only the definition has the kind; the plan checks that they fit it.

Where kinds differ, an option is the first one's: of the addresses of a registry, which may be several.
"""


def parse_alter_table(cursor: Cursor) -> RetainHistory | None:
    """Parse `table SET (RETAIN HISTORY = duration)` or `table RESET (RETAIN HISTORY)`; None for statements of Spark's."""
    if not _is_own(cursor):
        return None
    in_lake, name = begins_with_catalog(cursor), table_reference(cursor)
    if cursor.choose("SET", "RESET") == "SET":
        retained_ms = parse_options(cursor, RETENTION)[RETAIN_HISTORY]
        statement = RetainHistory(name, int(str(retained_ms)), in_lake)
    else:
        parse_option_names(cursor, RETENTION)
        statement = RetainHistory(name, None, in_lake)
    cursor.expect_end()
    return statement


def parse_alter_connection(cursor: Cursor) -> AlterOptions:
    """Parse `name SET (option = value, …)` or `name RESET (option, …)`."""
    name = cursor.object_name("a connection name")
    hint = "its name and its kind stay: create another connection"
    return AlterOptions(ObjectKind.CONNECTION, name, _changed_options(cursor, ALTERED_CONNECTION, hint))


def parse_alter_source(cursor: Cursor) -> AlterSource | AlterOptions:
    """Parse `name REPAIR`, `name RESNAPSHOT`, `name SET (option = value, …)` or `name RESET (option, …)`."""
    name = cursor.object_name("a source name")
    if cursor.word() in ("SET", "RESET"):
        return AlterOptions(ObjectKind.SOURCE, name, _changed_options(cursor, SOURCE, ""))
    resnapshot = cursor.choose("REPAIR", "RESNAPSHOT", "SET", "RESET") == "RESNAPSHOT"
    cursor.expect_end()
    return AlterSource(name, resnapshot)


def parse_alter_subscription(cursor: Cursor) -> AlterOptions:
    """Parse `name SET (option = value, …)` or `name RESET (option, …)`."""
    name = cursor.object_name("a subscription name")
    hint = "its name, table and SUBSCRIBE stay: create another subscription, and then drop this one"
    return AlterOptions(ObjectKind.SUBSCRIPTION, name, _changed_options(cursor, SUBSCRIPTION, hint))


def parse_alter_view(cursor: Cursor) -> AlterOptions:
    """Parse `name SET (option = value, …)` or `name RESET (option, …)`."""
    name = table_reference(cursor)
    hint = "its name, key and query stay: create another view, and then drop this one"
    return AlterOptions(ObjectKind.MATERIALIZED_VIEW, name, _changed_options(cursor, ALTERED_VIEW, hint))


def _changed_options(cursor: Cursor, known: OptionSet, hint: str) -> dict[str, OptionValue | None]:
    if cursor.word() not in ("SET", "RESET"):
        raise cursor.error("SET", "RESET", hint=hint)
    options: dict[str, OptionValue | None]
    if cursor.choose("SET", "RESET") == "SET":
        options = {**parse_options(cursor, known)}
    else:
        options = dict.fromkeys(parse_option_names(cursor, known))
    cursor.expect_end()
    return options


def _is_own(cursor: Cursor) -> bool:
    """Return whether SET or RESET comes directly before a parenthesis.

    In Spark's statements a word such as TBLPROPERTIES follows SET, and there is no RESET.
    """
    offset = 0
    while (text := cursor.source_text(cursor.peek(offset))) and text != "(":
        offset += 1
    return cursor.word(offset - 1) in ("SET", "RESET") if offset > 1 else False
