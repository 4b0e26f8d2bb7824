"""Finds the columns that tell the rows of a query with groups apart: those of GROUP BY, if the query selects all of them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp


def group_key(tree: exp.Expr) -> tuple[str, ...]:
    """Return columns of which each row of a query's result has other values; empty if the text shows none.

    Args:
        tree: The query. It must not have a function that makes several rows of one.
    """
    group = tree.args.get("group") if isinstance(tree, exp.Select) else None
    if group is None or {name for name, value in group.args.items() if value} != {"expressions"}:
        return ()
    # A collation takes different texts for one group, and shows any of them.
    if tree.is_star or "COLLAT" in tree.sql().upper():
        return ()
    names = [item.alias_or_name if isinstance(item, exp.Alias | exp.Column) else "" for item in tree.expressions]
    places = [_place(key, tree.expressions, group.expressions) for key in group.expressions]
    found = tuple(dict.fromkeys("" if place is None else names[place] for place in places))
    return () if "" in found else found


def numbered_place(key: exp.Expr, items: Sequence[object]) -> int | None:
    """Return the place in the select list that a key of GROUP BY names by its number; None if it names none.

    Spark takes only a whole number for one: `1.5`, `1e0` and text are constants.
    """
    is_number = isinstance(key, exp.Literal) and not key.is_string and key.name.isdecimal()
    place = int(key.name) - 1 if is_number else -1
    return place if 0 <= place < len(items) else None


def _place(key: exp.Expr, items: Sequence[exp.Expr], keys: Sequence[exp.Expr]) -> int | None:
    """Return the place in the select list of a key of GROUP BY; None if the text does not show it."""
    if isinstance(key, exp.Literal):
        return numbered_place(key, items)
    for place, item in enumerate(items):
        if _is_same(item.unalias(), key):
            return place
    for place, item in enumerate(items):
        # A column of a table hides an alias. Then Spark accepts an item only if the keys have all of its columns.
        is_alias = isinstance(item, exp.Alias) and _is_same(exp.column(item.args["alias"]), key)
        if is_alias and not _columns([item.unalias()]) <= _columns(keys):
            return place
    return None


def _is_same(one: exp.Expr, other: exp.Expr) -> bool:
    are_columns = isinstance(one, exp.Column) and isinstance(other, exp.Column)
    return one == other or (are_columns and one.sql().lower() == other.sql().lower())


def _columns(nodes: Sequence[exp.Expr]) -> set[str]:
    return {column.name.lower() for node in nodes for column in node.find_all(exp.Column)}
