"""Parsing a SELECT inside a statement: query text -> `Query`, with the tables it reads and their places in the text."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import Token, exp

from lakehold.errors import StatementError
from lakehold.spark_sql import quoted
from lakehold.sql.query.changes import at_changes
from lakehold.sql.query.column_reading import column_uses
from lakehold.sql.query.group_key import group_key
from lakehold.sql.query.incremental_query import incremental_plan
from lakehold.sql.query.plain_query import plain_select
from lakehold.sql.query.qualified_columns import names_of, without_namespaces
from lakehold.sql.query.query_tree import QueryTree, read_tree
from lakehold.sql.query.repeatable import refuse_unrepeatable
from lakehold.sql.query.row_by_row import select_list_offset
from lakehold.sql.text.cursor import Cursor
from lakehold.sql.text.dialect import StatementText
from lakehold.subscribe.incremental_plan import Whole
from lakehold.subscribe.statement import Query, TableReference

COMPUTED_TABLES = frozenset({"IDENTIFIER", "STREAM", "TABLE"})
"""Words before a bracket that read the table which the bracket names or computes; sqlglot takes them for functions."""
TIMES_OF_ONE_TABLE = frozenset({"TIMESTAMP", "VERSION", "SYSTEM_TIME", "SYSTEM_VERSION"})
"""Words before `AS OF` that make it Spark's clause about the time of one table."""
_AFTER_AN_ALIAS = frozenset({"", ",", ")", "FROM"})
_THREE_PARTS = 3


def parse_query(written: StatementText, *, repeatable: bool) -> Query:
    """Parse a query.

    Args:
        written: The query alone.
        repeatable: Whether the query must give the same rows each time it is read, so that two results can be compared.

    Raises:
        StatementError: The query cannot be parsed, reads no table, names one without its namespace or with its own time,
            or must be repeatable and is not.
    """
    _refuse_changes(written)
    tree = read_tree(written)
    _refuse_double_quotes(tree)
    query = without_namespaces(tree)
    cursor = Cursor(written)
    while not cursor.at_end:
        if cursor.peek().start not in query.named:
            _refuse_computed_table(cursor)
            _refuse_recursion(cursor)
        _refuse_time_of_one_table(cursor)
        cursor.advance()
    if repeatable:
        refuse_unrepeatable(query)
    tables = tuple(sorted(_tables(query), key=lambda table: table.start))
    if not tables:
        cursor.rewind(0)
        message = "expected a query that reads a table"
        raise cursor.error_at(cursor.peek(), message, last=written.tokens[-1], hint="write FROM namespace.table")
    offset = select_list_offset(query)
    plain = plain_select(query) if offset is not None else None
    plan = incremental_plan(query, tables, lambda written: parse_query(written, repeatable=False))
    key = () if isinstance(plan, Whole) else group_key(query.tree)
    uses = column_uses(query.tree, {table.start: table.full_name for table in tables})
    return Query(query.written.text, tables, offset, plain, plan, key, uses)


def missing_namespace(cursor: Cursor, token: Token) -> StatementError:
    """Build the error about a table's name without a namespace: no namespace is current here."""
    name = cursor.source_text(token)
    hint = f"write shop.{name}, for example"
    return cursor.error_at(token, f"expected namespace.table, found {name}", hint=hint)


def _refuse_changes(written: StatementText) -> None:
    """Refuse `CHANGES(…)`, which has times of its own."""
    cursor = Cursor(written)
    while not cursor.at_end:
        if at_changes(cursor):
            message = "CHANGES is for one table, but the statement reads all tables at one time"
            hint = "CHANGES can be read in a query without AS OF at its end: SELECT … FROM CHANGES(…)"
            raise cursor.error_at(cursor.peek(), message, hint=hint)
        cursor.advance()


def _refuse_double_quotes(query: QueryTree) -> None:
    """Refuse names in double quotes: sqlglot takes them, but what Spark reads in double quotes is text."""
    for token in query.written.tokens:
        if token.start in query.named and query.written.sql[token.start] == '"':
            cursor = Cursor(query.written)
            hint = f"write {quoted(token.text)}: in a query double quotes are text, also in place of a column"
            raise cursor.error_at(token, f"expected a name, found {cursor.source_text(token)}", hint=hint)


def _refuse_computed_table(cursor: Cursor) -> None:
    """Refuse `IDENTIFIER('a.b')` and `f(TABLE(a.b))`: sqlglot does not see that they read tables."""
    if cursor.word() in COMPUTED_TABLES and cursor.source_text(cursor.peek(1)) == "(":
        message = f"expected a table's own name, found {cursor.word()} (…)"
        raise cursor.error_at(cursor.peek(), message, hint="write FROM namespace.table")


def _refuse_recursion(cursor: Cursor) -> None:
    if cursor.at_words("WITH", "RECURSIVE"):
        cursor.advance()
        hint = "write the steps as common table expressions of their own"
        raise cursor.error_at(cursor.peek(), "recursive queries cannot be read at a time", hint=hint)


def _refuse_time_of_one_table(cursor: Cursor) -> None:
    """Refuse `FROM a.b VERSION AS OF 1`, but not the alias in `SELECT version AS of FROM …`."""
    after = cursor.source_text(cursor.peek(3)).upper()
    if (
        cursor.word() in TIMES_OF_ONE_TABLE
        and cursor.at_words(cursor.word(), "AS", "OF")
        and after not in _AFTER_AN_ALIAS
    ):
        message = f"{cursor.word()} AS OF is for one table, but the statement reads all tables at one time"
        hint = "write AS OF after the whole query"
        raise cursor.error_at(cursor.peek(), message, last=cursor.peek(2), hint=hint)


def _tables(query: QueryTree) -> Iterator[TableReference]:
    """Find every place that names a table; names of common table expressions and table functions are none."""
    for table in query.tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier | exp.Dot) or is_common_table(table):
            continue
        parts = [part for part in table.parts if isinstance(part, exp.Identifier)]
        names = names_of(table)
        if len(names) == 1:
            start = query.written.start + parts[0].meta["start"]
            token = next(t for t in query.written.tokens if t.start == start)
            raise missing_namespace(Cursor(query.written), token)
        if len(names) == _THREE_PARTS and names[0] == query.written.catalog:
            del names[0]
        implied_alias = "" if table.alias else parts[-1].this
        yield TableReference(".".join(names), parts[0].meta["start"], parts[-1].meta["end"] + 1, implied_alias)


def is_common_table(table: exp.Table) -> bool:
    """Return whether a WITH around `table` defines its name; inside a WITH only its earlier definitions count."""
    node: exp.Expr = table
    while len(table.parts) == 1 and (parent := node.parent) is not None:
        definitions: list[exp.Expr] = []
        if isinstance(parent, exp.With):
            definitions = parent.expressions[: parent.expressions.index(node)]
        elif (common := parent.args.get("with_")) is not None and common is not node:
            definitions = common.expressions
        if table.name.lower() in {definition.alias.lower() for definition in definitions}:
            return True
        node = parent
    return False
