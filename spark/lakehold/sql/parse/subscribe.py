"""Parsing `SUBSCRIBE`: the table or query, the shape of the output, and the times from and up to which it reads."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType

from lakehold.spark_sql import quoted
from lakehold.sql.query.qualified_columns import catalog_places
from lakehold.sql.query.queries import missing_namespace, parse_query
from lakehold.sql.text.as_of import parse_as_of, parse_timestamp
from lakehold.sql.text.cursor import Cursor
from lakehold.sql.text.dialect import StatementText
from lakehold.sql.text.envelope import parse_envelope
from lakehold.sql.text.names import begins_with_catalog, table_reference
from lakehold.subscribe.statement import (
    DebeziumEnvelope,
    HistoryEnvelope,
    OrderedWithin,
    OrderItem,
    OutputShape,
    Query,
    Raw,
    Subscribe,
    UpsertEnvelope,
)
from lakehold.timeline.as_of import LATEST

_ORDER_BY = "WITHIN TIMESTAMP ORDER BY"
_ENVELOPES = {
    UpsertEnvelope: "ENVELOPE UPSERT",
    DebeziumEnvelope: "ENVELOPE DEBEZIUM",
    HistoryEnvelope: "ENVELOPE HISTORY",
}
_MODIFIERS = (_ORDER_BY, *_ENVELOPES.values())
_CLAUSES = (_ORDER_BY, "ENVELOPE", "WITH", "AS OF", "UP TO")
_DIRECTIONS = ("ASC", "DESC")
_NULLS = (["NULLS", "FIRST"], ["NULLS", "LAST"])
_QUERY_WORDS = frozenset({"SELECT", "WITH", "FROM", "VALUES"})
_SUBQUERY_WORDS = _QUERY_WORDS | {"TABLE"}


def parse_subscribe(cursor: Cursor) -> Subscribe:
    """Parse `[TO] namespace.table | (query)`, then one modifier, WITH, AS OF and UP TO in any order, each at most once.

    A modifier is WITHIN TIMESTAMP ORDER BY or an envelope. ENVELOPE HISTORY is parsed anywhere, and refused where rows go to a
    reader.
    """
    first = cursor.last
    cursor.accept("TO")
    relation = _relation(cursor)
    modifier = ""
    shape: OutputShape = Raw()
    options = _Options()
    as_of, up_to_ms = LATEST, None
    for clause in cursor.clauses(*_CLAUSES):
        match clause:
            case "AS OF":
                as_of = parse_as_of(cursor)
            case "UP TO":
                up_to_ms = parse_timestamp(cursor)
            case "WITH":
                options = _options(cursor)
            case "ENVELOPE":
                shape = parse_envelope(cursor)
                modifier = _ENVELOPES[type(shape)]
            case _:
                modifier = _ORDER_BY
                shape = OrderedWithin(_order_items(cursor))
        _refuse_second(cursor, modifier)
    return Subscribe(
        relation.read,
        shape,
        snapshot=options.snapshot,
        progress=options.progress or options.resume_at is not None,
        tokens=options.resume_at is not None,
        resume=options.resume,
        as_of=as_of,
        up_to_ms=up_to_ms,
        text=_text(cursor, first, relation, options.resume_at),
    )


@dataclass
class _Options:
    """The options after WITH, and where the resume token is in the text."""

    snapshot: bool = True
    progress: bool = False
    resume: str | None = None
    resume_at: tuple[int, int] | None = None


def _text(cursor: Cursor, first: Token, relation: _Relation, resume_at: tuple[int, int] | None) -> str:
    """Return the statement as written, but without what may differ at the next run.

    The catalog's name is left out, since it is a setting, and NULL stands for a resume token.
    """
    left_out = [(place, "") for place in relation.catalog_at]
    if resume_at is not None:
        left_out.append((resume_at, "NULL"))
    text, begin = "", first.start
    for (start, end_exclusive), instead in left_out:
        text += cursor.sql[begin:start] + instead
        begin = end_exclusive
    return text + cursor.sql[begin : cursor.last.end + 1]


@dataclass(frozen=True)
class _Relation:
    """The table or query of a SUBSCRIBE.

    Attributes:
        read: The full name of a table, or a query.
        catalog_at: Where names of its tables and columns begin with the session's own catalog.
    """

    read: str | Query
    catalog_at: tuple[tuple[int, int], ...]


def _relation(cursor: Cursor) -> _Relation:
    first = cursor.peek()
    if cursor.accept_symbol("("):
        tokens = cursor.take_until(lambda: False)
        if not tokens:
            raise cursor.error("a query")
        cursor.expect_symbol(")")
        written = StatementText(cursor.sql, tokens, cursor.catalog)
        return _Relation(parse_query(written, repeatable=True), tuple(catalog_places(written)))
    if cursor.word() in _QUERY_WORDS:
        message = f"expected a table or a query in parentheses, found {cursor.word()}"
        raise cursor.error_at(first, message, hint="write SUBSCRIBE (SELECT …)")
    at = cursor.position
    catalog_at = ((first.start, cursor.peek(2).start),) if begins_with_catalog(cursor) else ()
    name = table_reference(cursor)
    if cursor.position == at + 1:
        raise missing_namespace(cursor, first)
    return _Relation(name, catalog_at)


def _refuse_second(cursor: Cursor, modifier: str) -> None:
    """Refuse a second modifier: a SUBSCRIBE has at most one."""
    second = next((m for m in _MODIFIERS if cursor.at_words(*m.split())), None)
    if not modifier or second is None:
        return
    message = f"{modifier} is given twice" if second == modifier else f"{modifier} and {second} exclude each other"
    last = cursor.peek(len(second.split()) - 1)
    raise cursor.error_at(cursor.peek(), message, last=last, hint="keep one of them")


def _options(cursor: Cursor) -> _Options:
    """Parse `(SNAPSHOT [[=] true|false], PROGRESS [[=] true|false], RESUME [=] {'token' | NULL})`."""
    cursor.expect_symbol("(")
    found = _Options()
    given: set[str] = set()
    more = True
    while more:
        token = cursor.peek()
        name = cursor.choose("SNAPSHOT", "PROGRESS", "RESUME")
        if name in given:
            raise cursor.error_at(token, f"{name} is given twice")
        given.add(name)
        has_value = cursor.accept_symbol("=") or bool(cursor.word())
        if name == "RESUME":
            start = cursor.peek().start
            found.resume = None if cursor.accept("NULL") else cursor.text("NULL or a resume token")
            found.resume_at = start, cursor.last.end + 1
        else:
            setattr(found, name.lower(), not has_value or cursor.choose("TRUE", "FALSE") == "TRUE")
        more = cursor.more()
    return found


def _order_items(cursor: Cursor) -> tuple[OrderItem, ...]:
    items = [_order_item(cursor)]
    while cursor.accept_symbol(","):
        items.append(_order_item(cursor))
    return tuple(items)


def _order_item(cursor: Cursor) -> OrderItem:
    """Parse an expression or an ordinal, then `[ASC|DESC] [NULLS FIRST|LAST]`."""
    tokens = cursor.take_until(lambda: _at_next_item(cursor))
    if not tokens:
        raise cursor.error("a column, an expression or an ordinal")
    words = [cursor.source_text(token).upper() for token in tokens]
    if words.count("(") > words.count(")"):
        raise cursor.error('")"')
    for (before, word), token in zip(itertools.pairwise(words), tokens[1:], strict=True):
        if before == "(" and word in _SUBQUERY_WORDS:
            hint = "order by mz_diff and the columns; a SELECT in place of the table can compute more"
            raise cursor.error_at(token, "WITHIN TIMESTAMP ORDER BY takes no subquery", hint=hint)
    nulls = words[-2:] if words[:-2] and words[-2:] in _NULLS else []
    words = words[: len(words) - len(nulls)]
    direction = words[-1:] if words[:-1] and words[-1] in _DIRECTIONS else []
    default = ["ASC"] if nulls else []
    expression = tokens[: len(words) - len(direction)]
    return _ordered(cursor, expression, " ".join([*(direction or default), *nulls]))


def _ordered(cursor: Cursor, expression: Sequence[Token], direction: str) -> OrderItem:
    first, last = expression[0], expression[-1]
    text = cursor.sql[first.start : last.end + 1]
    words, depth = [cursor.source_text(token) for token in expression], len(expression) // 2
    if words[depth].startswith('"') and words == ["("] * depth + [words[depth]] + [")"] * depth:
        # Spark would read the name as text, and so sort by nothing.
        return OrderItem(quoted(expression[depth].text), direction=direction)
    if len(expression) > 1 or first.token_type is not TokenType.NUMBER or not text.isdecimal():
        texts = tuple(token.text for token in expression if cursor.source_text(token).startswith('"'))
        return OrderItem(text, direction=direction, texts=texts)
    if int(text) == 0:
        raise cursor.error_at(first, "ordinals begin at 1", hint="1 is mz_diff, 2 the first column")
    return OrderItem("", int(text), direction)


def _at_next_item(cursor: Cursor) -> bool:
    """Return whether a comma or the next clause follows; the words of clauses are column names only if quoted."""
    at_comma = cursor.source_text(cursor.peek()) == ","
    return at_comma or any(cursor.at_words(*clause.split()) for clause in _CLAUSES)
