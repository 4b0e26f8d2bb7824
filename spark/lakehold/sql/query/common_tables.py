"""Writes the subqueries of WITH where their names stand, so that a query with WITH can be planned as one with subqueries.

Both mean the same: a query that is computed at two times must be repeatable, so a subquery has the same rows at each place.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import Token, exp

from lakehold.sql.query.query_tree import QueryTree
from lakehold.sql.query.subqueries import NotIncremental
from lakehold.sql.text.cursor import Cursor

_LONGEST = 50_000
"""Characters up to which a query is written: each name of WITH that stands twice in the next one doubles it."""


def without_with(query: QueryTree) -> str:
    """Write a query that begins with WITH as one without.

    Raises:
        NotIncremental: It has a WITH that is not known to be the same as a subquery.
    """
    if sum(1 for _ in query.tree.find_all(exp.With)) > 1:
        raise NotIncremental("it has WITH inside a subquery")
    cursor = Cursor(query.written)
    bodies = dict(_bodies(cursor))
    if len(bodies) != len(query.tree.args["with_"].expressions):
        raise NotIncremental("lakehold cannot tell the subqueries of its WITH apart")
    names = sorted(_names(query, bodies), key=lambda table: int(table.this.meta["start"]))
    written: dict[str, str] = {}
    for name, body in bodies.items():
        written[name] = _text(query, body, names, written)
    return _text(query, query.written.tokens[cursor.position :], names, written)


def _bodies(cursor: Cursor) -> Iterator[tuple[str, tuple[Token, ...]]]:
    """Yield the name and the tokens of each subquery of WITH; the cursor ends before the query itself."""
    cursor.expect("WITH")
    while True:
        name = cursor.advance().text.lower()
        if not cursor.accept("AS") or not cursor.accept_symbol("("):
            raise NotIncremental("its WITH names columns")
        yield name, cursor.take_until(lambda: False)
        cursor.expect_symbol(")")
        if not cursor.accept_symbol(","):
            return


def _names(query: QueryTree, bodies: dict[str, tuple[Token, ...]]) -> Iterator[exp.Table]:
    """Yield each place that names a subquery of WITH."""
    for table in query.tree.find_all(exp.Table):
        if len(table.parts) == 1 and isinstance(table.this, exp.Identifier):
            if table.name.lower() not in bodies or "start" not in table.this.meta:
                raise NotIncremental("lakehold cannot tell the subqueries of its WITH apart")
            yield table


def _text(query: QueryTree, tokens: tuple[Token, ...], names: list[exp.Table], written: dict[str, str]) -> str:
    """Write tokens with subqueries instead of their names."""
    sql, at, end = query.written.sql, tokens[0].start, tokens[-1].end + 1
    text = ""
    for table in names:
        start = query.written.start + table.this.meta["start"]
        if not at <= start < end:
            continue
        name_end = query.written.start + table.this.meta["end"] + 1
        alias = "" if table.alias else f" AS {sql[start:name_end]}"
        text += f"{sql[at:start]}({written[table.name.lower()]}){alias}"
        at = name_end
        if len(text) > _LONGEST:
            raise NotIncremental("it is too long if the subqueries of its WITH stand at their places")
    return text + sql[at:end]
