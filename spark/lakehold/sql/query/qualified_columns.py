"""Columns that a query names with their table's namespace, as in `shop.orders.id`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sqlglot import exp

from lakehold.sql.query.query_tree import QueryTree, read_tree
from lakehold.sql.text.dialect import StatementText

_FULL = 3
"""Parts of a table's name with namespace and catalog."""


def without_namespaces(query: QueryTree) -> QueryTree:
    """Return the query with `orders.id` for `shop.orders.id`, if it reads `shop.orders` without an alias.

    Readers of the query put other relations in the places of its tables, under the tables' names without namespaces. Blanks stand
    for what is left out, so that all offsets stay. Tables of one name in several namespaces keep theirs.
    """
    written, text = query.written, query.written.text
    for start, end_exclusive in _namespaces(query.tree, tuple(_qualifiers(query))):
        text = text[:start] + " " * (end_exclusive - start) + text[end_exclusive:]
    if text == written.text:
        return query
    sql = written.sql[: written.start] + text + written.sql[written.end_exclusive :]
    return read_tree(replace(written, sql=sql))


def catalog_places(written: StatementText) -> Iterator[tuple[int, int]]:
    """Yield where names of a query's tables and columns begin with the session's own catalog, which can be left out.

    Each place is a start and an exclusive end in `written.sql`, in the order of the text.
    """
    query, catalog = read_tree(written), written.catalog
    tables = list(query.tree.find_all(exp.Table))
    read = [names_of(table) for table in tables if not table.alias]
    full_names = [names for names in (*read, *([catalog, *names] for names in read)) if _has_catalog(names, catalog)]
    named = [table.parts for table in tables if _has_catalog(names_of(table), catalog)]
    named += [c.parts for c in query.tree.find_all(exp.Column) if names_of(c)[:_FULL] in full_names]
    for parts in sorted(named, key=lambda parts: int(parts[0].meta["start"])):
        yield written.start + int(parts[0].meta["start"]), written.start + int(parts[1].meta["start"])


def _has_catalog(names: Sequence[str], catalog: str) -> bool:
    return len(names) == _FULL and names[0] == catalog


def names_of(node: exp.Table | exp.Column) -> list[str]:
    """Return the parts of a name, up to the first that is no identifier; letters without quotes are small."""
    names = []
    for part in node.parts:
        if not isinstance(part, exp.Identifier):
            break
        names.append(part.this if part.quoted else part.this.lower())
    return names


def _qualifiers(query: QueryTree) -> Iterator[list[str]]:
    """Yield the names with a namespace, and maybe a catalog, that columns of the query's tables may have before them."""
    catalog = query.written.catalog
    tables = [names_of(table) for table in query.tree.find_all(exp.Table) if not table.alias and len(table.parts) > 1]
    full_names = {tuple(names if names[0] == catalog else [catalog, *names]) for names in tables if names}
    for full_name in full_names:
        if not any(other[-1] == full_name[-1] for other in full_names - {full_name}):
            yield from (list(full_name[first:]) for first in range(len(full_name) - 1))


def _namespaces(tree: exp.Expr, qualifiers: Sequence[list[str]]) -> Iterator[tuple[int, int]]:
    """Yield where the names of columns have namespaces: from `start` to `end_exclusive` in the text."""
    for column in tree.find_all(exp.Column):
        names = names_of(column)
        for qualifier in qualifiers:
            length = len(qualifier)
            if len(column.parts) > length and names[:length] == qualifier:
                yield column.parts[0].meta["start"], column.parts[length - 1].meta["start"]
                break
