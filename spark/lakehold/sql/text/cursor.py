"""A cursor over the tokens of a statement: peek, accept, expect, and errors that name what was expected and found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from sqlglot import Token, TokenType

from lakehold.errors import StatementError
from lakehold.nearest import close_names
from lakehold.object_names import NOT_A_NAME
from lakehold.sql.text.dialect import StatementText

_WORD = re.compile(r"[^\W\d]\w*")
_TEXTS = frozenset({TokenType.STRING, TokenType.RAW_STRING})
_NESTING = {"(": 1, "[": 1, ")": -1, "]": -1}
_CLOSE = 0.75
"""The similarity from which a word is a close miss: `SORCE` is one of SOURCE, `FUNCTIONS` is none of CONNECTIONS."""
_NONE: Mapping[str, str] = {}


class Cursor:
    """A position in the tokens of one statement, which moves from left to right; words match in any case."""

    def __init__(self, statement: StatementText) -> None:
        self.sql = statement.sql
        self.catalog = statement.catalog
        self._tokens = statement.tokens
        end = statement.end_exclusive
        self._end = Token(TokenType.SEMICOLON, "", start=end, end=end - 1)
        self._at = 0

    @property
    def at_end(self) -> bool:
        """Return whether all tokens were read."""
        return self._at >= len(self._tokens)

    @property
    def position(self) -> int:
        """Return the index of the next token, to which `rewind` can go back."""
        return self._at

    def rewind(self, position: int) -> None:
        """Go back to `position`."""
        self._at = position

    def peek(self, offset: int = 0) -> Token:
        """Return the token `offset` places ahead without stepping over it; an empty token after the last one."""
        index = self._at + offset
        return self._tokens[index] if index < len(self._tokens) else self._end

    @property
    def last(self) -> Token:
        """Return the token that was stepped over last; call it only after a step."""
        return self._tokens[self._at - 1]

    def advance(self) -> Token:
        """Read the next token and step over it.

        Raises:
            StatementError: The statement ends here.
        """
        if self.at_end:
            raise self.error("more")
        self._at += 1
        return self.last

    def source_text(self, token: Token) -> str:
        """Return the characters of `token` as written."""
        return self.sql[token.start : token.end + 1]

    def word(self, offset: int = 0) -> str:
        """Return the word `offset` places ahead, in capitals; empty if the token is no word."""
        text = self.source_text(self.peek(offset))
        return text.upper() if _WORD.fullmatch(text) else ""

    def at_words(self, *words: str) -> bool:
        """Return whether the next tokens are `words`."""
        return all(self.word(i) == w for i, w in enumerate(words))

    def accept(self, *words: str) -> bool:
        """Accept `words` if they come next: step over them and return true."""
        found = self.at_words(*words)
        if found:
            self._at += len(words)
        return found

    def expect(self, *words: str, hint: str = "") -> None:
        """Require that `words` come next, and step over them.

        Raises:
            StatementError: Something else comes next.
        """
        for word in words:
            if not self.accept(word):
                raise self.error(word, hint=hint)

    def choose(self, *phrases: str, elsewhere: Mapping[str, str] = _NONE) -> str:
        """Read the longest of `phrases` (one or more words) that comes next, and return it.

        Args:
            phrases: What may come next.
            elsewhere: Words of other systems in this place, each with a hint.

        Raises:
            StatementError: None of them comes next.
        """
        longest_first = sorted(phrases, key=len, reverse=True)
        for phrase in longest_first:
            if self.accept(*phrase.split()):
                return phrase
        for phrase in longest_first:
            if self.at_words(phrase.split()[0]):
                self.expect(*phrase.split(), hint=f"write {phrase}")
        raise self.error(*phrases, hint=elsewhere.get(self.word(), ""))

    def clauses(
        self, *phrases: str, fits: Callable[[str], bool] = lambda _: True, elsewhere: Mapping[str, str] = _NONE
    ) -> Iterator[str]:
        """Iterate over the clauses up to the end of the statement, in the order written, each at most once.

        Args:
            phrases: The words with which clauses begin. The caller reads the rest of a clause before the next one.
            fits: Returns whether to name a clause among those that may come next.
            elsewhere: First words of clauses of other statements, or of other systems, each with a hint.
        """
        left = list(phrases)
        while not self.at_end:
            if again := next((p for p in phrases if p not in left and self.at_words(*p.split())), None):
                raise self.error(*left, message=f"{again} is given twice")
            if not left:
                self.expect_end()
            if not any(self.at_words(p.split()[0]) for p in left):
                offered = [p for p in left if fits(p)] or ["end of statement"]
                raise self.error(*offered, hint=elsewhere.get(self.word(), ""))
            phrase = self.choose(*left)
            left.remove(phrase)
            yield phrase

    def take_until(self, stop: Callable[[], bool]) -> tuple[Token, ...]:
        """Take the tokens before the first place at which `stop()` is true; it is not asked inside brackets.

        The tokens also end before a closing bracket whose opening one came before them, and at the end of the statement.
        """
        first, depth = self._at, 0
        while not self.at_end:
            depth += _NESTING.get(self.source_text(self.peek()), 0)
            if depth < 0 or (depth == 0 and stop()):
                break
            self._at += 1
        return self._tokens[first : self._at]

    def accept_symbol(self, symbol: str) -> bool:
        """Accept `symbol` if it comes next: step over it and return true."""
        found = self.source_text(self.peek()) == symbol
        if found:
            self._at += 1
        return found

    def expect_symbol(self, symbol: str, hint: str = "") -> None:
        """Require that `symbol` comes next, and step over it.

        Raises:
            StatementError: Something else comes next.
        """
        if not self.accept_symbol(symbol):
            raise self.error(f'"{symbol}"', hint=hint)

    def more(self, closing: str = ")", *, after_last: bool = False) -> bool:
        """Continue a list: step over a comma and return true, or over `closing` and return false.

        With `after_last` a comma may follow the last item, too.
        """
        if self.accept_symbol(","):
            return not (after_last and self.accept_symbol(closing))
        if self.accept_symbol(closing):
            return False
        raise self.error('","', f'"{closing}"')

    def text(self, what: str, hint: str = "") -> str:
        """Read a string literal; `what` names it in the error."""
        if not self.is_text():
            raise self.error(f"{what} in single quotes", hint=hint)
        return self.advance().text

    def filled_text(self, what: str) -> str:
        """Read a string literal that is not blank; `what` names it in the error."""
        token = self.peek()
        text = self.text(what)
        if not text.strip():
            raise self.error_at(token, f"expected {what}, found an empty string")
        return text

    def is_text(self, offset: int = 0) -> bool:
        """Return whether the token `offset` places ahead is a string literal."""
        return self.peek(offset).token_type in _TEXTS

    def quoted_name(self) -> str | None:
        """Read a name in backquotes or double quotes; None if none comes next."""
        token = self.peek()
        if not token.text or self.source_text(token)[0] not in '`"':
            return None
        return self.advance().text

    def object_name(self, what: str) -> str:
        """Read one part of the name of an object or namespace: lowercase unless quoted."""
        quoted = self.quoted_name()
        if quoted is not None:
            return quoted
        word = self.word()
        if not word or word in NOT_A_NAME:
            raise self.error(what, hint="write names without single quotes" if self.is_text() else "")
        return self.source_text(self.advance()).lower()

    def column_name(self) -> str:
        """Read the name of a column, and keep its case: Spark matches columns in any case, but shows them as written."""
        quoted = self.quoted_name()
        if quoted is not None:
            return quoted
        if not self.word():
            raise self.error("a column name")
        return self.source_text(self.advance())

    def expect_end(self) -> None:
        """Require that the statement ends here."""
        if not self.at_end:
            raise self.error("end of statement")

    def error(self, *expected: str, message: str = "", hint: str = "") -> StatementError:
        """Build the error of an unexpected next token: one of `expected` belongs there. A close miss gets its own hint."""
        token = self.peek()
        found = self.source_text(token) or "end of statement"
        message = message or f"expected {one_of(expected)}, found {found}"
        return self.error_at(token, message, hint=did_you_mean(self.word(), expected) or hint)

    def error_at(self, token: Token, message: str, *, last: Token | None = None, hint: str = "") -> StatementError:
        """Build an error about the tokens from `token` to `last`; without `last` about `token` alone."""
        end_exclusive = (last or token).end + 1
        return StatementError(message, sql=self.sql, start=token.start, end_exclusive=end_exclusive, hint=hint)


def did_you_mean(found: str, expected: Iterable[str]) -> str:
    """Build a hint if `found` is a close miss of one of `expected`, or of the first word of a phrase; else empty."""
    meant = close_phrase(found, expected)
    return f"did you mean {meant}?" if meant else ""


def close_phrase(found: str, expected: Iterable[str]) -> str:
    """Return the one of `expected` that `found` is a close miss of, if any; else empty."""
    candidates = {c: phrase for phrase in expected for c in (phrase.split()[0], phrase)}
    if not found or found in candidates:
        return ""
    close = close_names(found, candidates, most=3, similarity=_CLOSE)
    # `FORM` is as close to FROM as other words are, but has the same letters: it is a slip of the fingers.
    swapped = [c for c in close if sorted(c) == sorted(found)]
    return candidates[(swapped or close)[0]] if close else ""


def one_of(phrases: Sequence[str]) -> str:
    """Join `phrases` to a text such as `a, b or c`."""
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} or {phrases[-1]}"
