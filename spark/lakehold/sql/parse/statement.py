"""Parsing: text -> statements. Short statements are parsed here, others in `parse_*`; all that are unknown are Spark's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lakehold.definitions import ObjectKind
from lakehold.errors import StatementError
from lakehold.settings import DEFAULT_CATALOG
from lakehold.sql.parse.alter import (
    parse_alter_connection,
    parse_alter_source,
    parse_alter_subscription,
    parse_alter_table,
    parse_alter_view,
)
from lakehold.sql.parse.create import parse_connection, parse_table
from lakehold.sql.parse.foreign import SPARK_WORDS, changes_for_spark, parse_foreign
from lakehold.sql.parse.holds import (
    parse_alter_hold,
    parse_create_hold,
    parse_drop_hold,
    parse_show_create_hold,
    parse_show_holds,
)
from lakehold.sql.parse.roles import (
    parse_create_role,
    parse_drop_role,
    parse_grant,
    parse_revoke,
    parse_show_grants,
    parse_show_roles,
)
from lakehold.sql.parse.select import parse_select_as_of
from lakehold.sql.parse.source import parse_source
from lakehold.sql.parse.subscribe import parse_subscribe
from lakehold.sql.parse.subscription import check_endless, parse_create_subscription
from lakehold.sql.parse.view import parse_create_view
from lakehold.sql.statements import (
    AlterOptions,
    AlterSource,
    Begin,
    Commit,
    CreateConnection,
    CreateMaterializedView,
    CreateSource,
    CreateTable,
    Drop,
    ExplainDefinition,
    ExplainSubscribe,
    ParsedStatement,
    Show,
    ShowCreate,
    Statement,
    SubscribeTo,
)
from lakehold.sql.text.cursor import Cursor, close_phrase, did_you_mean
from lakehold.sql.text.dialect import StatementText, split
from lakehold.sql.text.names import names_lake, object_reference
from lakehold.sql.transactions import units
from lakehold.subscribe.statement import Subscribe


def parse_script(sql: str, catalog: str = DEFAULT_CATALOG) -> tuple[ParsedStatement, ...]:
    """Parse all statements of `sql`, so that nothing runs if one of them is not well formed.

    Args:
        sql: The text.
        catalog: The session's own catalog, with which names of tables may begin.

    Raises:
        StatementError: A statement is not well formed; the error has the place in `sql`.
    """
    script = tuple(ParsedStatement(written, parse_statement(written)) for written in split(sql, catalog))
    units(script)
    return script


def parse_statement(written: StatementText) -> Statement:
    """Parse one statement.

    Raises:
        StatementError: The statement is one of lakehold's, and not well formed.
    """
    cursor = Cursor(written)
    for words, production in _PRODUCTIONS.items():
        if cursor.accept(*words):
            statement = production(cursor)
            if statement is not None:
                return statement
            cursor.rewind(0)
    _refuse_near_miss(cursor)
    return replace(parse_foreign(cursor), changes=changes_for_spark(written))


def parse_subscription(sql: str, catalog: str) -> Subscribe:
    """Parse a text that is one SUBSCRIBE; the names of tables may begin with `catalog`.

    Raises:
        StatementError: The text is another statement, or more than one.
    """
    script = parse_script(sql, catalog)
    if len(script) == 1 and isinstance(script[0].statement, SubscribeTo):
        return script[0].statement.subscribe
    start = script[1].written.start if len(script) > 1 and isinstance(script[0].statement, SubscribeTo) else 0
    raise StatementError("expected one SUBSCRIBE", sql=sql, start=start, end_exclusive=len(sql))


def parse_endless(sql: str, catalog: str) -> Subscribe:
    """Parse a text that is one SUBSCRIBE which can be followed over restarts; the names of tables may begin with `catalog`.

    Raises:
        StatementError: The text is another statement, or has UP TO, PROGRESS or RESUME.
    """
    subscribe = parse_subscription(sql, catalog)
    unfit = check_endless(subscribe)
    if unfit:
        raise StatementError(f"expected a SUBSCRIBE without {unfit}", sql=sql, start=0, end_exclusive=len(sql))
    return subscribe


def _drop(cursor: Cursor, kind: ObjectKind) -> Statement | None:
    if_exists = cursor.accept("IF", "EXISTS")
    in_lake, name = names_lake(cursor, kind), object_reference(cursor, kind)
    cascade = cursor.accept("CASCADE")
    restrict = not cascade and cursor.accept("RESTRICT")
    keep_upstream = kind in (ObjectKind.CONNECTION, ObjectKind.SOURCE) and cursor.accept("KEEP", "UPSTREAM")
    if kind is ObjectKind.TABLE and not cursor.at_end:
        return None
    cursor.expect_end()
    return Drop(kind, name, if_exists, cascade, keep_upstream, in_lake, restrict)


def _explain(cursor: Cursor) -> Statement | None:
    """Parse EXPLAIN of lakehold's statements on definitions; None for every other EXPLAIN, which is Spark's."""
    for words in _EXPLAINED:
        if cursor.accept(*words):
            statement = _PRODUCTIONS[words](cursor)
            if isinstance(statement, _EXPLAINED_STATEMENTS):
                return ExplainDefinition(statement)
            return None
    return None


def _show(cursor: Cursor, kind: ObjectKind) -> Statement | None:
    """Parse the rest of SHOW; None for `SHOW TABLES IN …` and similar statements, which are Spark's."""
    if kind is ObjectKind.TABLE and not cursor.at_end:
        return None
    cursor.expect_end()
    return Show(kind)


def _show_create(cursor: Cursor, kind: ObjectKind) -> Statement | None:
    in_lake, name = names_lake(cursor, kind), object_reference(cursor, kind)
    if kind is ObjectKind.TABLE and not cursor.at_end:
        return None
    cursor.expect_end()
    return ShowCreate(kind, name, in_lake)


def _of_transaction(cursor: Cursor, statement: Begin | Commit) -> Statement | None:
    """Parse the rest of BEGIN and COMMIT; None if more follows: `BEGIN SELECT …` is a script of Spark's."""
    cursor.accept("TRANSACTION")
    return statement if cursor.at_end else None


_PRODUCTIONS: dict[tuple[str, ...], Callable[[Cursor], Statement | None]] = {
    ("CREATE", "CONNECTION"): parse_connection,
    ("CREATE", "SOURCE"): parse_source,
    ("CREATE", "TABLE"): parse_table,
    ("CREATE", "SUBSCRIPTION"): parse_create_subscription,
    ("CREATE", "MATERIALIZED", "VIEW"): parse_create_view,
    ("ALTER", "CONNECTION"): parse_alter_connection,
    ("ALTER", "TABLE"): parse_alter_table,
    ("ALTER", "MATERIALIZED", "VIEW"): parse_alter_view,
    ("ALTER", "SUBSCRIPTION"): parse_alter_subscription,
    ("ALTER", "SOURCE"): parse_alter_source,
    ("DROP", "CONNECTION"): lambda cursor: _drop(cursor, ObjectKind.CONNECTION),
    ("DROP", "SOURCE"): lambda cursor: _drop(cursor, ObjectKind.SOURCE),
    ("DROP", "TABLE"): lambda cursor: _drop(cursor, ObjectKind.TABLE),
    ("DROP", "SUBSCRIPTION"): lambda cursor: _drop(cursor, ObjectKind.SUBSCRIPTION),
    ("DROP", "MATERIALIZED", "VIEW"): lambda cursor: _drop(cursor, ObjectKind.MATERIALIZED_VIEW),
    ("SHOW", "CONNECTIONS"): lambda cursor: _show(cursor, ObjectKind.CONNECTION),
    ("SHOW", "SOURCES"): lambda cursor: _show(cursor, ObjectKind.SOURCE),
    ("SHOW", "TABLES"): lambda cursor: _show(cursor, ObjectKind.TABLE),
    ("SHOW", "SUBSCRIPTIONS"): lambda cursor: _show(cursor, ObjectKind.SUBSCRIPTION),
    ("SHOW", "MATERIALIZED", "VIEWS"): lambda cursor: _show(cursor, ObjectKind.MATERIALIZED_VIEW),
    ("SHOW", "CREATE", "CONNECTION"): lambda cursor: _show_create(cursor, ObjectKind.CONNECTION),
    ("SHOW", "CREATE", "SOURCE"): lambda cursor: _show_create(cursor, ObjectKind.SOURCE),
    ("SHOW", "CREATE", "TABLE"): lambda cursor: _show_create(cursor, ObjectKind.TABLE),
    ("SHOW", "CREATE", "SUBSCRIPTION"): lambda cursor: _show_create(cursor, ObjectKind.SUBSCRIPTION),
    ("SHOW", "CREATE", "MATERIALIZED", "VIEW"): lambda cursor: _show_create(cursor, ObjectKind.MATERIALIZED_VIEW),
    ("CREATE", "HOLD"): parse_create_hold,
    ("ALTER", "HOLD"): parse_alter_hold,
    ("DROP", "HOLD"): parse_drop_hold,
    ("SHOW", "HOLDS"): parse_show_holds,
    ("SHOW", "CREATE", "HOLD"): parse_show_create_hold,
    ("CREATE", "ROLE"): parse_create_role,
    ("DROP", "ROLE"): parse_drop_role,
    ("GRANT",): parse_grant,
    ("REVOKE",): parse_revoke,
    ("SHOW", "ROLES"): parse_show_roles,
    ("SHOW", "GRANTS"): parse_show_grants,
    ("BEGIN",): lambda cursor: _of_transaction(cursor, Begin()),
    ("COMMIT",): lambda cursor: _of_transaction(cursor, Commit()),
    ("SUBSCRIBE",): lambda cursor: SubscribeTo(parse_subscribe(cursor)),
    ("EXPLAIN", "SUBSCRIBE"): lambda cursor: ExplainSubscribe(parse_subscribe(cursor)),
    ("EXPLAIN", "BEGIN"): lambda cursor: _of_transaction(cursor, Begin(is_explained=True)),
    ("EXPLAIN",): _explain,
    ("SELECT",): parse_select_as_of,
    ("WITH",): parse_select_as_of,
}
"""The productions of statements by their first words; one that returns None leaves the statement to Spark."""

_EXPLAINED = (
    ("CREATE", "CONNECTION"),
    ("CREATE", "SOURCE"),
    ("CREATE", "TABLE"),
    ("CREATE", "MATERIALIZED", "VIEW"),
    ("ALTER", "CONNECTION"),
    ("ALTER", "SOURCE"),
    ("DROP", "CONNECTION"),
    ("DROP", "SOURCE"),
    ("DROP", "TABLE"),
    ("DROP", "MATERIALIZED", "VIEW"),
)
_EXPLAINED_STATEMENTS = (
    CreateConnection,
    CreateSource,
    CreateTable,
    CreateMaterializedView,
    Drop,
    AlterSource,
    AlterOptions,
)

_SPARK_NOUNS = frozenset({"TABLE", "TABLES", "CREATE"})


def _refuse_near_miss(cursor: Cursor) -> None:
    """Refuse misspelt statements of lakehold's, such as `CREATE SORCE`: Spark would start first, and report less."""
    first, second = cursor.word(), cursor.word(1)
    meant = close_phrase(first, dict.fromkeys((*(words[0] for words in _PRODUCTIONS), *SPARK_WORDS)))
    if meant:
        raise cursor.error(meant)
    nouns = [
        words[1] if words[1] != "MATERIALIZED" else " ".join(words[1:])
        for words in _PRODUCTIONS
        if words[0] == first and words[1:] and words[1] not in _SPARK_NOUNS
    ]
    if second not in _SPARK_NOUNS and did_you_mean(second, nouns):
        cursor.advance()
        raise cursor.error(*dict.fromkeys(nouns))
