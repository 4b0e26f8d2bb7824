"""Parsing `CREATE MATERIALIZED VIEW`: a query whose result lakehold keeps in a table."""

from __future__ import annotations

from lakehold.definitions import MaterializedView, OnKeyViolation, OptionValue
from lakehold.object_names import full_name_text
from lakehold.sql.derived_options import with_options
from lakehold.sql.query.queries import parse_query
from lakehold.sql.statements import CreateMaterializedView
from lakehold.sql.text.cursor import Cursor
from lakehold.sql.text.dialect import StatementText
from lakehold.sql.text.envelope import parse_key
from lakehold.sql.text.layout import refused_format
from lakehold.sql.text.names import new_table_name
from lakehold.sql.text.options import VIEW, parse_options
from lakehold.subscribe.statement import Query
from lakehold.table_layout import FORMAT_VERSION, NEWEST_FORMAT


def parse_create_view(cursor: Cursor) -> CreateMaterializedView:
    """Parse `[IF NOT EXISTS] namespace.name`, then KEY and WITH in any order, then `AS SELECT …`."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    namespace, name = new_table_name(cursor)
    key: tuple[str, ...] = ()
    options: dict[str, OptionValue] = {}
    with_token = cursor.peek()
    query: Query | None = None
    for clause in cursor.clauses("KEY", "WITH", "AS"):
        match clause:
            case "KEY":
                key = parse_key(cursor)
            case "WITH":
                with_token = cursor.peek()
                options = parse_options(cursor, VIEW)
            case _:
                query = _query(cursor)
    if query is None:
        raise cursor.error("AS SELECT")
    key = key or query.key
    if options.get("on_key_violation") == OnKeyViolation.KEEP and not key:
        raise cursor.error_at(with_token, "ON KEY VIOLATION 'keep' needs a key", hint="add KEY (column, …)")
    if options.get(FORMAT_VERSION, NEWEST_FORMAT) != NEWEST_FORMAT and (
        not key or options.get("on_key_violation") == OnKeyViolation.KEEP
    ):
        raise refused_format(
            cursor,
            with_token,
            "a view without a unique key",
            detail="Of equal rows one is removed by its row id, which format version 3 has and format version 2 has not.",
            hint="add KEY (column, …), or leave FORMAT VERSION out",
        )
    view = MaterializedView(
        namespace=namespace,
        name=name,
        # Without the catalog's name, which is a setting and may differ at the next refresh.
        query=query.over({table.full_name: full_name_text(table.full_name) for table in query.tables}),
        tables=tuple(dict.fromkeys(table.full_name for table in query.tables)),
        key=key,
    )
    return CreateMaterializedView(with_options(view, options), if_not_exists)


def _query(cursor: Cursor) -> Query:
    """Parse the query after `AS`, up to the end of the statement."""
    tokens = cursor.take_until(lambda: False)
    if not tokens:
        raise cursor.error("a query")
    cursor.expect_end()
    return parse_query(StatementText(cursor.sql, tokens, cursor.catalog), repeatable=True)
