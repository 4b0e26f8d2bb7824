"""Split statements of MySQL and MariaDB into tokens, and read keywords and names of tables from them. Pure.

A statement in which the tokenizer does not find where a string ends is split roughly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import sqlglot
from sqlglot.tokens import Token, TokenType

_QUOTED = frozenset({TokenType.IDENTIFIER, TokenType.STRING})
_FIRST_COMMENTS = re.compile(r"(?:\s|/\*.*?\*/|(?:--\s|#)[^\n]*\n)*", re.DOTALL)
_PART = re.compile(r"`([^`]+)`|([^\s`'\"(),.;=]+)|([.])")


def tokenized(text: str) -> Sequence[Token]:
    """Split a text into tokens; raises `SqlglotError` where a string does not end."""
    tokens = sqlglot.tokenize(text, read="mysql")
    if len(tokens) > 1 and tokens[0].text.upper() == "RENAME" and tokens[1].token_type is TokenType.STRING:
        # The rest of such a statement is one token.
        tokens = [tokens[0], *sqlglot.tokenize(tokens[1].text, read="mysql")]
    return tokens


def roughly_tokenized(text: str) -> Sequence[Token]:
    """Split a text at spaces and punctuation; words in strings are tokens, too.

    With the SQL mode NO_BACKSLASH_ESCAPES a string may end in a backslash: the tokenizer then does not find where a string ends.
    """
    begin = _FIRST_COMMENTS.match(text)
    found = _PART.finditer(text, begin.end() if begin else 0)
    kinds = {1: TokenType.IDENTIFIER, 2: TokenType.VAR, 3: TokenType.DOT}
    return [Token(kinds[part.lastindex or 2], part[part.lastindex or 0]) for part in found]


def without_phrases(tokens: Sequence[Token], *phrases: Sequence[str]) -> Sequence[Token]:
    """Return tokens without the phrases at their beginning."""
    for phrase in phrases:
        if words_of(tokens[: len(phrase)]) == [*phrase]:
            tokens = tokens[len(phrase) :]
    return tokens


def table_name(tokens: Sequence[Token], database: str) -> str:
    """Return the name at the beginning of some tokens, with its database."""
    first, dot, second = ([token.text.lower() for token in tokens[:3]] + [""] * 3)[:3]
    return f"{first}.{second}" if dot == "." else f"{database.lower()}.{first}"


def possible_table_names(tokens: Sequence[Token], database: str) -> frozenset[str]:
    """Return what may be names of tables."""
    return frozenset(table_name(tokens[at:], database) for at in range(len(tokens)))


def split_at_commas(tokens: Sequence[Token]) -> Iterator[tuple[Token, ...]]:
    """Split tokens at commas outside of parentheses."""
    depth, part = 0, list[Token]()
    for token in tokens:
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if token.token_type == TokenType.COMMA and depth == 0:
            yield tuple(part)
            part = []
        else:
            part.append(token)
    if part:
        yield tuple(part)


def phrase_of(tokens: Sequence[Token]) -> list[str]:
    """Return keywords one by one, where `PRIMARY KEY` and others are one token."""
    return " ".join(words_of(tokens)).split(" ") if tokens else []


def words_of(tokens: Sequence[Token]) -> list[str]:
    """Return keywords in upper case; a quoted name is none of them."""
    return [f"`{token.text}`" if token.token_type in _QUOTED else token.text.upper() for token in tokens]
