"""The tokens of lakehold's SQL: those of Spark, each with its place in the whole text."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import ClassVar

from sqlglot import Token, TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError

from lakehold.errors import Place, StatementError
from lakehold.settings import DEFAULT_CATALOG
from lakehold.sql.text.spark_lexer import check_same_pieces

# sqlglot warns of text that it reads as a command. lakehold refuses such text itself, with its place.
logging.getLogger("sqlglot").setLevel(logging.ERROR)

MAX_BRACKETS = 300
"""The limit of nested brackets. At a hundred more Spark's parser runs out of stack, at thousands out of memory."""
_NESTING = {TokenType.L_PAREN: 1, TokenType.L_BRACKET: 1, TokenType.R_PAREN: -1, TokenType.R_BRACKET: -1}


class LakeholdDialect(Spark):
    """Spark's dialect as Spark 4 reads it, token by token to the end.

    Without these settings sqlglot returns the rest of a SHOW or EXECUTE as one string, and has no escape but the backslash.
    """

    class Tokenizer(Spark.Tokenizer):
        """The tokenizer of Spark; `''` in a string is a quote, as in Spark 4."""

        COMMANDS: ClassVar[set[TokenType]] = set()
        STRING_ESCAPES: ClassVar[list[str]] = ["'", '"', "\\"]


@dataclass(frozen=True)
class StatementText:
    """One statement of a script.

    Attributes:
        sql: The text of the whole script.
        tokens: The tokens of the statement, with their places in `sql`.
        catalog: The session's own catalog. The name of a table may begin with it, but full names do not have it.
    """

    sql: str
    tokens: tuple[Token, ...]
    catalog: str = DEFAULT_CATALOG

    @property
    def place(self) -> Place:
        """Return the place of the whole statement, for errors."""
        return Place(self.sql, self.start, self.end_exclusive)

    @property
    def start(self) -> int:
        """Return the offset of the statement's first character in `sql`."""
        return self.tokens[0].start

    @property
    def end_exclusive(self) -> int:
        """Return the offset after the statement's last character in `sql`, without the semicolon."""
        return self.tokens[-1].end + 1

    @property
    def text(self) -> str:
        """Return the statement as written, without its semicolon."""
        return self.sql[self.start : self.end_exclusive]


def split(sql: str, catalog: str = DEFAULT_CATALOG) -> tuple[StatementText, ...]:
    """Split `sql` at semicolons into statements; skip empty ones and comments around them.

    Args:
        sql: The text.
        catalog: The session's own catalog.

    Raises:
        StatementError: A string, quoted name or comment is not closed, or brackets are nested too deeply.
    """
    statements: list[StatementText] = []
    tokens: list[Token] = []
    depth = 0
    for token in tokenize(sql):
        depth += _NESTING.get(token.token_type, 0)
        if depth > MAX_BRACKETS:
            raise too_deep(sql, token.start)
        if token.token_type is not TokenType.SEMICOLON:
            tokens.append(token)
        elif tokens:
            statements.append(StatementText(sql, tuple(tokens), catalog))
            tokens = []
    if tokens:
        statements.append(StatementText(sql, tuple(tokens), catalog))
    return tuple(statements)


def too_deep(sql: str, start: int) -> StatementError:
    """Return the error of a statement with too many brackets inside each other, at a place in it."""
    message = "the statement is nested too deeply"
    return StatementError(
        message, sql=sql, start=start, end_exclusive=start + 1, hint="use fewer brackets inside each other"
    )


def tokenize(sql: str) -> list[Token]:
    """Split `sql` into tokens.

    Raises:
        StatementError: A string, quoted name or comment is not closed, the text has half of a character, or Spark reads other
            tokens.
    """
    if (half := _SURROGATE.search(sql)) is not None:
        raise StatementError(
            "the text is not Unicode: it has half of a character",
            sql=sql,
            start=half.start(),
            end_exclusive=half.end(),
            hint="write the text in UTF-8",
        )
    try:
        # Without the space sqlglot does not report a string that the last character opens.
        tokens = [word for token in LakeholdDialect().tokenize(f"{sql} ") for word in _words(sql, token)]
    except TokenError as error:
        raise _unreadable(sql, error) from None
    check_same_pieces(sql, tokens)
    return tokens


_SURROGATE = re.compile("[\ud800-\udfff]")
"""Python also reads so a byte of an argument that is not UTF-8."""
_PHRASE = re.compile(r"[^\W\d]\w*(?:\s+\w+)+")
_WORD = re.compile(r"\w+")


def _words(sql: str, token: Token) -> list[Token]:
    """Split a token of several words into one token a word: sqlglot has one token for `ORDER BY` without a comment in it."""
    if not _PHRASE.fullmatch(sql, token.start, token.end + 1):
        return [token]
    return [
        Token(TokenType.VAR, word[0], start=word.start(), end=word.end() - 1)
        for word in _WORD.finditer(sql, token.start, token.end + 1)
    ]


_CAUSE = re.compile(
    r"(?:Missing (?P<delimiter>\S+)|Numeric string contains invalid characters) from \d+:(?P<start>\d+)"
)


def _unreadable(sql: str, error: TokenError) -> StatementError:
    """Build an error at the place where an unclosed string or comment begins: sqlglot's error only shows text around it."""
    cause = _CAUSE.search(str(error.__cause__))
    if cause is None:
        start = max(sql.rfind("/*"), 0)
        return StatementError("expected a closing */, found end of text", sql=sql, start=start, end_exclusive=start + 2)
    start = int(cause["start"])
    if cause["delimiter"] is None:
        message = "expected only digits of the base in a numeric string"
    else:
        message = f"expected a closing {cause['delimiter']}, found end of text"
    return StatementError(message, sql=sql, start=start, end_exclusive=start + 1)
