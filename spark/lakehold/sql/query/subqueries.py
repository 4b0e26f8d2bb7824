"""Takes a query apart into its SELECTs and the subqueries in their FROM, each with its own part of the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sqlglot import Token, exp

from lakehold.sql.query.query_tree import QueryTree
from lakehold.sql.text.cursor import Cursor

_CLAUSES = frozenset({"expressions", "from_", "joins", "where", "group", "having", "distinct"})
_NAMES = {"with_": "WITH", "laterals": "LATERAL VIEW", "order": "ORDER BY", "sample": "TABLESAMPLE"}


class NotIncremental(Exception):
    """A signal that the query has to be computed whole; its text is the reason."""


def own_nodes(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the nodes of a query without those inside its subqueries."""
    return tree.walk(prune=lambda node: isinstance(node, exp.Subquery))


def own_selects(tree: exp.Expr) -> Iterator[exp.Select]:
    """Yield the SELECTs of a UNION ALL, or the only one, in the order of the text.

    Raises:
        NotIncremental: The query is something else, or has a clause whose changes are not known.
    """
    if isinstance(tree, exp.Union):
        clauses = {name for name, value in tree.args.items() if value}
        if clauses != {"this", "expression"}:
            raise NotIncremental("it is a UNION that removes duplicates, sorts or matches names")
        yield from own_selects(tree.this)
        yield from own_selects(tree.expression)
        return
    if not isinstance(tree, exp.Select):
        raise NotIncremental("it is neither a SELECT nor a UNION ALL of SELECTs")
    clauses = {name for name, value in tree.args.items() if value}
    if more := sorted(clauses - _CLAUSES):
        raise NotIncremental(f"it has {', '.join(_NAMES.get(name, name.strip('_').upper()) for name in more)}")
    if not {"expressions", "from_"} <= clauses:
        raise NotIncremental("it has a SELECT without FROM")
    read = {id(subquery) for subquery in _in_from(tree)}
    for node in own_nodes(tree):
        if node is not tree and isinstance(node, exp.Query | exp.QueryTransform) and id(node) not in read:
            raise NotIncremental("it has a subquery outside FROM")
    if isinstance(distinct := tree.args.get("distinct"), exp.Distinct) and distinct.args.get("on"):
        raise NotIncremental("it has DISTINCT ON")
    yield tree


def apart(query: QueryTree, selects: Sequence[exp.Select]) -> tuple[QueryTree, list[QueryTree]]:
    """Return a query without the text of its subqueries, and these subqueries in the order of the text.

    Args:
        query: The query.
        selects: Its SELECTs.

    Raises:
        NotIncremental: The text and the syntax tree do not have the same subqueries.
    """
    trees = [subquery.this for select in selects for subquery in _in_from(select)]
    own: list[Token] = []
    inside: list[tuple[Token, ...]] = []
    cursor = Cursor(query.written)
    while not cursor.at_end:
        is_subquery = cursor.source_text(cursor.peek()) == "(" and cursor.word(1) == "SELECT"
        own.append(cursor.advance())
        if is_subquery and cursor.peek().start not in query.named:
            own.pop()
            inside.append(cursor.take_until(lambda: False))
            cursor.expect_symbol(")")
    if len(inside) != len(trees):
        raise NotIncremental("lakehold cannot tell its subqueries apart")
    found = [
        QueryTree(replace(query.written, tokens=tokens), tree, query.named)
        for tokens, tree in zip(inside, trees, strict=True)
    ]
    return replace(query, written=replace(query.written, tokens=tuple(own))), found


def _in_from(select: exp.Select) -> Iterator[exp.Subquery]:
    """Yield the subqueries in FROM and JOIN of a SELECT."""
    for clause in (select.args["from_"], *(select.args.get("joins") or ())):
        if isinstance(clause.this, exp.Subquery):
            yield clause.this
