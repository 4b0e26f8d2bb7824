"""The syntax tree of a query inside a statement, as sqlglot parses it, with the offsets of its names in the text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from lakehold.errors import StatementError
from lakehold.sql.text.dialect import LakeholdDialect, StatementText

_UNREADABLE = "the query cannot be read"


@dataclass(frozen=True)
class QueryTree:
    """The text and the syntax tree of a query.

    Attributes:
        written: The query alone: without parentheses around it, and without `AS OF`.
        tree: The tree, without hints. Offsets of identifiers (`meta`) count from `written.start`, quotes included.
        named: The nodes of words that are names in their place, even if they could be keywords elsewhere; by the offset of
            the word in `written.sql`.
    """

    written: StatementText
    tree: exp.Expr
    named: Mapping[int, exp.Expr]


def read_tree(written: StatementText) -> QueryTree:
    """Parse a query to its tree.

    Raises:
        StatementError: The text cannot be parsed, or is no query.
    """
    try:
        tree = LakeholdDialect().parse(written.text)[0]
    except ParseError as error:
        raise _unreadable(written, error) from None
    except RecursionError:
        hint = "use fewer brackets inside each other"
        message = "the query is nested too deeply to be read"
        raise _error(written, written.start, written.end_exclusive, message, hint) from None
    except (
        SqlglotError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        AssertionError,
    ):  # sqlglot built a node from unfit arguments
        raise _error(written, written.start, written.end_exclusive, _UNREADABLE) from None
    if not isinstance(tree, exp.Query | exp.Values):
        first = written.tokens[0]
        text = written.sql[first.start : first.end + 1]
        raise _error(written, first.start, first.end + 1, f"expected a query, found {text}")
    _refuse_unknown_relations(written, tree)
    for select in tree.find_all(exp.Select):
        select.set("hint", None)
    named = {
        written.start + identifier.meta["start"]: node
        for identifier in tree.find_all(exp.Identifier)
        if "start" in identifier.meta and (node := identifier.parent) is not None
    }
    return QueryTree(written, tree, named)


def _refuse_unknown_relations(written: StatementText, tree: exp.Expr) -> None:
    """Refuse what a query reads other than by a table's own name, a subquery or a function: sqlglot knows no table there.

    `LATERAL a.b` and `VALUES (1), a.b VERSION AS OF 1` are tables for Spark, and no tables for sqlglot.
    """
    for node in tree.find_all(exp.From, exp.Join, exp.Lateral, exp.Table, exp.Values):
        read = node.this
        if isinstance(node, exp.Values):
            is_known = node.find(exp.Column) is None
        elif isinstance(node, exp.Table):
            is_known = isinstance(read, exp.Identifier | exp.Dot | exp.Func)
        elif isinstance(node, exp.Lateral):
            function = read.expression if isinstance(read, exp.Dot) else read
            is_known = isinstance(function, exp.Subquery | exp.Values | exp.Func)
        else:
            is_known = isinstance(read, exp.Table | exp.Subquery | exp.Lateral | exp.Values | exp.Unnest)
        if not is_known:
            named = next(
                (found.meta for found in node.find_all(exp.Identifier, bfs=False) if "start" in found.meta), None
            )
            start = written.start + named["start"] if named else written.start
            end_exclusive = written.start + named["end"] + 1 if named else written.end_exclusive
            message = "expected a table's own name, a subquery or a function"
            raise _error(written, start, end_exclusive, message, "write FROM namespace.table")


def _unreadable(written: StatementText, error: ParseError) -> StatementError:
    """Build an error at the place that sqlglot reports: a line, the column after a token and the token, or nothing."""
    if not error.errors:
        return _error(written, written.start, written.end_exclusive, _UNREADABLE)
    place = error.errors[0]
    token = place["highlight"] or ""
    lines = written.text.splitlines(keepends=True)
    line_start = written.start + sum(len(line) for line in lines[: place["line"] - 1])
    start = min(line_start + place["col"] - len(token), written.end_exclusive - 1)
    hint = f"write `{token}`" if place["start_context"].endswith(".") else ""
    return _error(written, start, start + len(token), f"the query cannot be read from {token or 'its end'} on", hint)


def _error(written: StatementText, start: int, end_exclusive: int, message: str, hint: str = "") -> StatementError:
    return StatementError(message, sql=written.sql, start=start, end_exclusive=end_exclusive, hint=hint)
