"""Splits the text of a query with groups into the query of its rows and what is computed from each group.

The texts are cut from the query, never written again, so that Spark reads every expression as it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import Token, exp

from lakehold.sql.query.group_key import numbered_place
from lakehold.sql.query.query_tree import QueryTree
from lakehold.sql.query.row_by_row import is_quantified_like
from lakehold.sql.query.subqueries import own_nodes
from lakehold.sql.text.dialect import StatementText, split
from lakehold.subscribe.incremental_plan import AggregateCall, Aggregation
from lakehold.subscribe.statement import Query

AGGREGATES = frozenset(
    {"count", "sum", "avg", "mean", "min", "max", "bool_and", "every", "bool_or", "any", "some", "count_if"}
)
"""The aggregates of which `group_state` keeps a state."""

RECOMPUTED = frozenset({"any_value", "first", "first_value", "last", "last_value"})
"""Aggregates of which no state is kept: lakehold computes them from all rows of their group."""

_QUALIFIED = 2
"""The parts of a column's name with the name of its table."""

_CLAUSES = ("SELECT", "FROM", "WHERE", "GROUP", "HAVING")
_DISTINCT_FROM = (("IS", "DISTINCT"), ("NOT", "DISTINCT"))
_AFTER_A_CALL = frozenset({"OVER", "FILTER", "WITHIN", "IGNORE", "RESPECT"})
_NESTING = {"(": 1, "[": 1, ")": -1, "]": -1}


class NotSplit(Exception):
    """A signal that the query cannot be split; its text is the reason."""


Tokens = Sequence[Token]

Word = str | tuple[str, str]
"""A word of an expression, or the table and the name of a column; without a table it is empty."""


def aggregation(
    query: QueryTree, select: exp.Select, relations: Sequence[str], parse: Callable[[StatementText], Query]
) -> Aggregation:
    """Split a query that groups rows.

    Args:
        query: The query.
        select: Its syntax tree.
        relations: The names of the relations that it reads, in lowercase.
        parse: Parses the query of its rows.

    Raises:
        NotSplit: It has something that is not known to depend on the groups only.
    """
    group = select.args.get("group")
    if group is not None and {name for name, value in group.args.items() if value} != {"expressions"}:
        raise NotSplit("it groups by ALL, ROLLUP, CUBE or GROUPING SETS")
    if any(isinstance(node, exp.Lambda) for node in own_nodes(query.tree)):
        raise NotSplit("it has a function with an arrow")
    splitting = _Splitting(query, relations)
    items = splitting.items(select)
    having = splitting.clause("HAVING")
    if select.args.get("distinct"):
        splitting.keys = list(items)
    elif group is not None:
        splitting.keys = list(splitting.group_keys(group, items))
    finished = tuple(splitting.finished(item, whole=True) for item in items)
    splitting.check_names(having)
    condition = splitting.finished(having, whole=False) if having else ""
    (statement,) = split(splitting.rows_text(), query.written.catalog)
    before = parse(statement)
    return Aggregation(
        rows=before,
        keys=tuple(splitting.text(key) for key in splitting.keys),
        calls=tuple(splitting.calls),
        items=finished,
        having=condition,
        aliases=tuple(splitting.aliases_used),
        has_one_group=not splitting.keys,
    )


@dataclass
class _Splitting:
    """The parts of a query, while it is split.

    Attributes:
        query: The query.
        tables: The names of its tables, in lowercase.
        keys: The tokens of each key.
        arguments: The texts of the arguments of aggregates, by their words.
        calls: The aggregates.
        aliases: The tokens of each item of the select list that has a name, by this name in lowercase.
        aliases_used: Names by which GROUP BY refers to the select list.
    """

    query: QueryTree
    tables: Sequence[str]
    keys: list[Tokens] = field(default_factory=list)
    arguments: dict[tuple[Word, ...], str] = field(default_factory=dict)
    calls: list[AggregateCall] = field(default_factory=list)
    aliases: dict[str, Tokens] = field(default_factory=dict)
    aliases_used: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._clauses = _split_clauses(self.query)
        self._columns = dict(self._places_of_columns())

    def clause(self, name: str) -> Tokens:
        return self._clauses.get(name, ())

    def items(self, select: exp.Select) -> list[Tokens]:
        """Return the tokens of each item of the select list, without its alias."""
        items = [self._without_alias(item, tree) for item, tree in self._listed(self.clause("SELECT"), select)]
        for item, tree in zip(items, select.expressions, strict=True):
            if isinstance(tree, exp.Alias):
                self.aliases.setdefault(tree.alias.lower(), item)
        return items

    def group_keys(self, group: exp.Group, items: Sequence[Tokens]) -> Iterator[Tokens]:
        """Yield the tokens of each key, which GROUP BY may name by its place or alias in the select list."""
        for key, tree in self._listed(self.clause("GROUP")[1:], group):
            name = tree.name.lower() if isinstance(tree, exp.Column) and len(tree.parts) == 1 else ""
            if isinstance(tree, exp.Literal):
                if (place := numbered_place(tree, items)) is None:
                    raise NotSplit("it groups by a constant")
                yield items[place]
            elif name in self.aliases and self._words(self.aliases[name]) != self._words(key):
                self.aliases_used.append(name)
                yield self.aliases[name]
            else:
                yield key

    def check_names(self, having: Tokens) -> None:
        """Refuse a name in HAVING that may stand for a key as well as for an item of the select list."""
        for token in having:
            alias = self.aliases.get(token.text.lower()) if self._columns.get(token.start) == 1 else None
            if alias is not None and self._key_of([token]) not in (None, self._key_of(alias)):
                raise NotSplit(f"{token.text} in HAVING may be a key or an item of the select list")

    def finished(self, tokens: Tokens, *, whole: bool) -> str:
        """Write an expression over groups: keys and aggregates become `k0` and `g0`.

        Args:
            tokens: The expression.
            whole: Whether the expression may be a key as a whole; a condition may not.
        """
        if whole and (place := self._key_of(tokens)) is not None:
            return f"k{place}"
        parts: list[tuple[int, int, str]] = []
        at = 0
        while at < len(tokens):
            found = self._replaced(tokens, at)
            if found is not None:
                end, text = found
                parts.append((tokens[at].start, tokens[end - 1].end + 1, text))
                at = end
                continue
            if tokens[at].start in self._columns:
                raise NotSplit(f"{self._source(tokens[at])} is neither a key of the groups nor inside an aggregate")
            at += 1
        text, start = "", tokens[0].start
        for begin, end, replacement in parts:
            text += self.query.written.sql[start:begin] + replacement
            start = end
        return text + self.query.written.sql[start : tokens[-1].end + 1]

    def rows_text(self) -> str:
        """Write the query of the rows before grouping."""
        listed = [f"{self.text(key)} AS k{place}" for place, key in enumerate(self.keys)]
        listed += [f"{text} AS a{place}" for place, text in enumerate(self.arguments.values())]
        return f"SELECT {', '.join(listed) or '1 AS a0'} {rows_read(self.query)}"

    def _replaced(self, tokens: Tokens, at: int) -> tuple[int, str] | None:
        """Return what replaces the tokens from `at` on, and where it ends; None if they stay."""
        name = self._source(tokens[at])
        if name[0] == "`" and self._source(tokens[min(at + 1, len(tokens) - 1)]) == "(":
            raise NotSplit(f"it calls {name} by a quoted name")
        if self._is_call(tokens, at) and name.lower() in RECOMPUTED:
            raise NotSplit(f"no state of {name} is kept")
        if self._is_call(tokens, at) and name.lower() in AGGREGATES:
            end = self._closing(tokens, at + 1) + 1
            if end < len(tokens) and self._source(tokens[end]).upper() in _AFTER_A_CALL:
                raise NotSplit(f"it has {name} with {self._source(tokens[end]).upper()}")
            return end, self._call(name.lower(), tokens[at + 2 : end - 1])
        if self._is_call(tokens, at) or name == "(":
            # A key that is a call, or in brackets, is the same expression wherever it stands.
            end = self._closing(tokens, at + (name != "(")) + 1
            place = self._key_of(tokens[at:end])
            return None if place is None else (end, f"k{place}")
        if (length := self._columns.get(tokens[at].start)) is None:
            return None
        column = tokens[at : at + length]
        if (place := self._key_of(column)) is not None:
            return at + length, f"k{place}"
        alias = self.aliases.get(tokens[at].text.lower()) if length == 1 else None
        return None if alias is None else (at + 1, f"({self.finished(alias, whole=True)})")

    def _call(self, name: str, argument: Tokens) -> str:
        words = self._words(argument)
        if words in {("*",), ("1",)} and name == "count":
            place = None
        else:
            if not words or "*" in words[:1] or words[0] == "DISTINCT" or len(self._split_list(argument)) != 1:
                raise NotSplit(f"it has {name} with DISTINCT or with several arguments")
            self.arguments.setdefault(words, self.text(argument))
            place = list(self.arguments).index(words)
        call = AggregateCall(name, place)
        if call not in self.calls:
            self.calls.append(call)
        return f"g{self.calls.index(call)}"

    def _key_of(self, tokens: Tokens) -> int | None:
        """Return the number of the key that `tokens` are: one that is written the same, or with or without its table."""
        words = self._words(tokens)
        keys = [self._words(key) for key in self.keys]
        if words in keys:
            return keys.index(words)
        similar = {key: place for place, key in enumerate(keys) if _are_similar(key, words)}
        if len(similar) > 1:
            raise NotSplit(f"{self.text(tokens)} may be one of several keys of its groups")
        return next(iter(similar.values()), None)

    def _words(self, tokens: Tokens) -> tuple[Word, ...]:
        """Return words by which two expressions can be compared; a column is one word."""
        found: list[Word] = []
        at = 0
        while at < len(tokens):
            if (length := self._columns.get(tokens[at].start)) is not None:
                table = tokens[at].text.lower() if length > 1 else ""
                found.append((table, tokens[at + length - 1].text.lower()))
                at += length
                continue
            source = self._source(tokens[at])
            # Text of any kind keeps its case, also r'\d', which is not r'\D'.
            found.append(source if source[-1] in "'\"" else source.upper())
            at += 1
        return tuple(found)

    def _places_of_columns(self) -> Iterator[tuple[int, int]]:
        """Yield the offset of each column, and the number of its tokens: one, or three with the name of its table."""
        for column in own_nodes(self.query.tree):
            if not isinstance(column, exp.Column):
                continue
            parts = column.parts
            if isinstance(column.this, exp.Star):
                raise NotSplit("it has * beside groups")
            if len(parts) > _QUALIFIED or (len(parts) == _QUALIFIED and column.table.lower() not in self.tables):
                raise NotSplit(f"lakehold does not know which column {column.sql()} is")
            if isinstance(column.parent, exp.Dot) or "start" not in parts[0].meta:
                raise NotSplit(f"lakehold does not know which column {column.sql()} is")
            yield self.query.written.start + parts[0].meta["start"], 2 * len(parts) - 1

    def _listed(self, tokens: Tokens, tree: exp.Select | exp.Group) -> Iterator[tuple[Tokens, exp.Expr]]:
        parts = self._split_list(tokens)
        if len(parts) != len(tree.expressions) or not all(parts):
            raise NotSplit("lakehold cannot tell its columns apart")
        yield from zip(parts, tree.expressions, strict=True)

    def _split_list(self, tokens: Tokens) -> list[Tokens]:
        parts: list[list[Token]] = [[]]
        depth = 0
        for token in tokens:
            source = self._source(token)
            depth += _NESTING.get(source, 0)
            if source == "," and depth == 0:
                parts.append([])
            else:
                parts[-1].append(token)
        return list(parts)

    def _without_alias(self, tokens: Tokens, tree: exp.Expr) -> Tokens:
        if isinstance(tree, exp.Star | exp.Aliases):
            raise NotSplit("it has * beside groups")
        if not isinstance(tree, exp.Alias):
            return tokens
        start = tree.args["alias"].meta.get("start")
        if start is None:
            raise NotSplit("lakehold cannot tell its columns apart")
        before = [token for token in tokens if token.start < self.query.written.start + start]
        return before[:-1] if self._source(before[-1]).upper() == "AS" else before

    def _is_call(self, tokens: Tokens, at: int) -> bool:
        if at and is_quantified_like(self._source(tokens[at - 1]).upper(), self._source(tokens[at]).upper()):
            return False
        is_word = self._source(tokens[at])[0].isalpha()
        return is_word and at + 1 < len(tokens) and self._source(tokens[at + 1]) == "("

    def _closing(self, tokens: Tokens, opening: int) -> int:
        depth = 0
        for place in range(opening, len(tokens)):
            depth += _NESTING.get(self._source(tokens[place]), 0)
            if depth == 0:
                return place
        raise NotSplit("lakehold cannot tell its columns apart")

    def text(self, tokens: Tokens) -> str:
        """Return tokens as written."""
        return self.query.written.sql[tokens[0].start : tokens[-1].end + 1]

    def _source(self, token: Token) -> str:
        return self.query.written.sql[token.start : token.end + 1]


def rows_read(query: QueryTree) -> str:
    """Return FROM and WHERE of a query as written."""
    clauses = _split_clauses(query)
    tokens = [*clauses["FROM"], *clauses.get("WHERE", ())]
    return query.written.sql[tokens[0].start : tokens[-1].end + 1]


def _split_clauses(query: QueryTree) -> Mapping[str, Tokens]:
    """Return the tokens of each clause; only those of FROM include its first word."""
    found: dict[str, list[Token]] = {}
    current: list[Token] = []
    depth = 0
    previous: tuple[str, str] = ("", "")
    for token in query.written.tokens:
        source = query.written.sql[token.start : token.end + 1]
        word = source.upper()
        depth += _NESTING.get(source, 0)
        is_clause = depth == 0 and word in _CLAUSES and token.start not in query.named
        if is_clause and not (word == "FROM" and previous in _DISTINCT_FROM):
            current = found[word] = [token] if word == "FROM" else []
        elif not source.startswith("/*+") and not (previous[1] == "SELECT" and word in {"ALL", "DISTINCT"}):
            current.append(token)
        previous = (previous[1], word)
    return found


def _are_similar(one: Sequence[Word], other: Sequence[Word]) -> bool:
    """Return whether two expressions are the same, though one may leave out the tables of its columns."""
    return len(one) == len(other) and all(map(_is_similar, one, other))


def _is_similar(one: Word, other: Word) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return one[1] == other[1] and (not one[0] or not other[0] or one[0] == other[0])
