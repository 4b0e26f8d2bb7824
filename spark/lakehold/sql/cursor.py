"""A place in a statement's tokens: look, accept, expect, and errors that say expected and found."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from sqlglot import Token, TokenType

from lakehold.definitions import NOT_A_NAME
from lakehold.errors import StatementError
from lakehold.sql.dialect import StatementText

_WORD = re.compile(r"[^\W\d]\w*")
_TEXTS = frozenset({TokenType.STRING, TokenType.RAW_STRING})
_NESTING = {"(": 1, "[": 1, ")": -1, "]": -1}
_CLOSE = 0.75
"""How alike a close miss is: `SORCE` is SOURCE, `FUNCTIONS` is not CONNECTIONS."""


class Cursor:
    """Reads one statement from left to right; words are matched whatever their case."""

    def __init__(self, statement: StatementText) -> None:
        self.sql = statement.sql
        self._tokens = statement.tokens
        end = statement.end_exclusive
        self._end = Token(TokenType.SEMICOLON, "", start=end, end=end - 1)
        self._at = 0

    @property
    def at_end(self) -> bool:
        """Whether all is read."""
        return self._at >= len(self._tokens)

    @property
    def position(self) -> int:
        """Index of the next token; `rewind` comes back to it."""
        return self._at

    def rewind(self, position: int) -> None:
        """Go back to `position`."""
        self._at = position

    def peek(self, offset: int = 0) -> Token:
        """The token `offset` places on; behind the last one an empty one."""
        index = self._at + offset
        return self._tokens[index] if index < len(self._tokens) else self._end

    @property
    def last(self) -> Token:
        """The token just stepped over."""
        return self._tokens[self._at - 1]

    def advance(self) -> Token:
        """Step over the next token, which must be there."""
        if self.at_end:
            raise self.error("more")
        self._at += 1
        return self.last

    def source_text(self, token: Token) -> str:
        """The characters of `token` as written."""
        return self.sql[token.start : token.end + 1]

    def word(self, offset: int = 0) -> str:
        """The word `offset` places on, in capitals; empty when there is none."""
        text = self.source_text(self.peek(offset))
        return text.upper() if _WORD.fullmatch(text) else ""

    def at_words(self, *words: str) -> bool:
        """Whether the next tokens are `words`."""
        return all(self.word(i) == w for i, w in enumerate(words))

    def accept(self, *words: str) -> bool:
        """Step over `words` if they come next."""
        found = self.at_words(*words)
        if found:
            self._at += len(words)
        return found

    def expect(self, *words: str, hint: str = "") -> None:
        """Step over `words`, which must come next."""
        for word in words:
            if not self.accept(word):
                raise self.error(word, hint=hint)

    def choose(self, *phrases: str) -> str:
        """Step over the longest of `phrases` (one or more words) that comes next, and return it."""
        longest_first = sorted(phrases, key=len, reverse=True)
        for phrase in longest_first:
            if self.accept(*phrase.split()):
                return phrase
        for phrase in longest_first:
            if self.at_words(phrase.split()[0]):
                self.expect(*phrase.split(), hint=f"write {phrase}")
        raise self.error(*phrases)

    def clauses(self, *phrases: str) -> Iterator[str]:
        """The clauses that follow, in the order written, each at most once, to the end of the statement."""
        left = list(phrases)
        while not self.at_end:
            if again := next((p for p in phrases if p not in left and self.at_words(*p.split())), None):
                raise self.error(*left, message=f"{again} is given twice")
            if not left:
                self.expect_end()
            phrase = self.choose(*left)
            left.remove(phrase)
            yield phrase

    def take_until(self, stop: Callable[[], bool]) -> tuple[Token, ...]:
        """Step over the tokens before the place where `stop` holds, outside of brackets that open among them.

        A bracket that closes what opened earlier ends them too, as does the end of the statement.
        """
        first, depth = self._at, 0
        while not self.at_end:
            depth += _NESTING.get(self.source_text(self.peek()), 0)
            if depth < 0 or (depth == 0 and stop()):
                break
            self._at += 1
        return self._tokens[first : self._at]

    def accept_symbol(self, symbol: str) -> bool:
        """Step over `symbol` if it comes next."""
        found = self.source_text(self.peek()) == symbol
        if found:
            self._at += 1
        return found

    def expect_symbol(self, symbol: str, hint: str = "") -> None:
        """Step over `symbol`, which must come next."""
        if not self.accept_symbol(symbol):
            raise self.error(f'"{symbol}"', hint=hint)

    def more(self, closing: str = ")", *, after_last: bool = False) -> bool:
        """Inside a list: step over a comma and return true, or over `closing` and return false.

        With `after_last` a comma may stand behind the last of the list, too.
        """
        if self.accept_symbol(","):
            return not (after_last and self.accept_symbol(closing))
        if self.accept_symbol(closing):
            return False
        raise self.error('","', f'"{closing}"')

    def text(self, what: str, hint: str = "") -> str:
        """A string literal."""
        if not self.is_text():
            raise self.error(f"{what} in single quotes", hint=hint)
        return self.advance().text

    def filled_text(self, what: str) -> str:
        """A string literal that is not blank."""
        token = self.peek()
        text = self.text(what)
        if not text.strip():
            raise self.error_at(token, f"expected {what}, found an empty string")
        return text

    def is_text(self, offset: int = 0) -> bool:
        """Whether a string literal is `offset` places on."""
        return self.peek(offset).token_type in _TEXTS

    def quoted_name(self) -> str | None:
        """A name in backquotes or double quotes, if one comes next."""
        token = self.peek()
        if not token.text or self.source_text(token)[0] not in '`"':
            return None
        return self.advance().text

    def object_name(self, what: str) -> str:
        """One part of a name of a connection, source or table: lowercase unless quoted."""
        quoted = self.quoted_name()
        if quoted is not None:
            return quoted
        word = self.word()
        if not word or word in NOT_A_NAME:
            raise self.error(what, hint="write names without single quotes" if self.is_text() else "")
        return self.source_text(self.advance()).lower()

    def column_name(self) -> str:
        """A column's name, as written: Spark matches columns whatever their case, and shows them so."""
        quoted = self.quoted_name()
        if quoted is not None:
            return quoted
        if not self.word():
            raise self.error("a column name")
        return self.source_text(self.advance())

    def expect_end(self) -> None:
        """Nothing may follow."""
        if not self.at_end:
            raise self.error("end of statement")

    def error(self, *expected: str, message: str = "", hint: str = "") -> StatementError:
        """An error at the next token: one of `expected` belongs there; a close miss gets a hint of its own."""
        token = self.peek()
        found = self.source_text(token) or "end of statement"
        message = message or f"expected {one_of(expected)}, found {found}"
        return self.error_at(token, message, hint=did_you_mean(self.word(), expected) or hint)

    def error_at(self, token: Token, message: str, *, last: Token | None = None, hint: str = "") -> StatementError:
        """An error about what was read, from `token` to `last`."""
        end_exclusive = (last or token).end + 1
        return StatementError(message, sql=self.sql, start=token.start, end_exclusive=end_exclusive, hint=hint)


def did_you_mean(found: str, expected: Iterable[str]) -> str:
    """A hint when `found` is nearly one of `expected`; empty otherwise. Of a phrase its first word counts as well."""
    candidates = {c: phrase for phrase in expected for c in (phrase.split()[0], phrase)}
    if not found or found in candidates:
        return ""
    close = difflib.get_close_matches(found, candidates, n=3, cutoff=_CLOSE)
    swapped = [c for c in close if sorted(c) == sorted(found)]
    return f"did you mean {candidates[(swapped or close)[0]]}?" if close else ""


def one_of(phrases: Sequence[str]) -> str:
    """`a, b or c`."""
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} or {phrases[-1]}"
