"""Checks that Spark sees comments, blanks and quotes of a text where lakehold sees them.

sqlglot's tokenizer follows other rules than Spark's lexer in corners: a `--` comment that a backslash continues, quotes in a
hint, comments of templates. Text that is a comment for one and code for the other must not run: lakehold would check one
statement, and Spark would run another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sqlglot import Token, TokenType

from lakehold.errors import StatementError

_PIECE = re.compile(
    r"""(?P<hidden>
        [ \t\n\f\r\v\u00a0\u1680\u2000-\u200a\u2028\u202f\u205f\u3000]+  # blanks
        | --(?:\\\n|[^\r\n])*  # a comment, which a backslash continues on the next line
        | /\*\+(?:[^'"`*/-]|`[^`*/-]*`)*\*/  # a hint that is read in one way only
        | (?P<comment>/\*(?!\+))
    )
    | (?P<quoted>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`)
    | \w+(?:://[\w/.?=&\#%-]+)?  # a word, which may go on as an address
    | \*/  # the end of a hint, also elsewhere: no comment begins within it
    | .""",
    re.DOTALL | re.VERBOSE,
)
"""A piece of a text as Spark's lexer takes it."""
_COMMENT_EDGE = re.compile(r"/\*(?!\+)|\*/")
_FROM_QUOTE = re.compile(r"""[rR]?['"`]""")
_Span = tuple[int, int]


def check_same_pieces(sql: str, tokens: Iterable[Token]) -> None:
    """Check that all between tokens is blank, a comment or a hint for Spark, too, and that Spark sees the same quoted parts.

    Args:
        sql: The text.
        tokens: All its tokens as sqlglot finds them, in order.

    Raises:
        StatementError: Spark reads the text in another way.
    """
    hidden, quoted = _spark_pieces(sql)
    gaps: list[_Span] = []
    quotes: list[_Span] = []
    end = 0
    for token in tokens:
        if token.token_type is TokenType.HINT:
            continue
        if end < token.start:
            gaps.append((end, token.start))
        end = token.end + 1
        if (quote := _FROM_QUOTE.search(sql, token.start, end)) is not None:
            quotes.append((quote.start(), end))
    if end < len(sql):
        gaps.append((end, len(sql)))
    if (hidden, quoted) != (gaps, quotes):
        start, end = min({*hidden} ^ {*gaps} or {*quoted} ^ {*quotes})
        raise StatementError(
            "Spark reads the text from here on in another way than lakehold",
            sql=sql,
            start=start,
            end_exclusive=end,
            hint="end no -- comment with a backslash, quote nothing in a hint, and write blanks or comments between words",
        )


def _spark_pieces(sql: str) -> tuple[list[_Span], list[_Span]]:
    """Return the places of blanks, comments and hints, of which neighbours are one, and the places in quotes."""
    hidden: list[_Span] = []
    quoted: list[_Span] = []
    at = 0
    while (found := _PIECE.match(sql, at)) is not None:
        start, at = found.start(), found.end()
        if found["comment"]:
            at = _comment_end(sql, at)
        if found["quoted"]:
            quoted.append((start, at))
        elif found["hidden"]:
            if hidden and hidden[-1][1] == start:
                start = hidden.pop()[0]
            hidden.append((start, at))
    return hidden, quoted


def _comment_end(sql: str, at: int) -> int:
    """Return where a comment ends whose content begins at an offset: comments inside it have ends of their own."""
    depth = 1
    while depth and (edge := _COMMENT_EDGE.search(sql, at)) is not None:
        depth += 1 if edge[0] == "/*" else -1
        at = edge.end()
    return at if not depth else len(sql)
