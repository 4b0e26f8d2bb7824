"""The tokens that admit clients, and what each token gives: a role, and tables to read."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass, field
from pathlib import Path

from lakehold.errors import SettingsError, bad_byte
from lakehold.serve.readable_tables import ReadableTables

_SHORTEST = 16
"""Characters of a token, at least: a shorter one could be guessed."""
_TABLES = "tables="
_LINE = re.compile(rf"(?P<token>\S{{{_SHORTEST},}})(?:\s+(?!{_TABLES})(?P<role>\S+))?(?:\s+{_TABLES}(?P<tables>\S+))?")
_PATTERN = re.compile(r"[^.`*]+\.(?:\*|[^.`*]+)")


@dataclass(frozen=True)
class Access:
    """The rights that a token gives to its clients.

    Attributes:
        role: Their role, if they have one.
        tables: The tables that they may read; None: all.
        line: The token's line in its file.
    """

    role: str | None = None
    tables: ReadableTables | None = None
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Tokens:
    """The tokens of a server; a server without tokens admits everybody.

    Attributes:
        accesses: What each token gives.
        default: What all clients have where there are no tokens.
    """

    accesses: dict[str, Access] = field(default_factory=dict, repr=False)
    default: Access = Access()

    def access_of(self, token: str) -> Access:
        """Return what a token gives.

        Raises:
            LookupError: There are tokens, and this is none of them.
        """
        if not self.accesses:
            return self.default
        # All are compared, each in constant time: how long it takes tells nothing about a token.
        matching = [known for known in self.accesses if hmac.compare_digest(known.encode(), token.encode())]
        if not matching:
            raise LookupError
        return self.accesses[matching[0]]


def read_tokens(path: Path) -> Tokens:
    """Read a file of tokens, one on each line: `TOKEN [ROLE] [tables=PATTERN,…]`. Lines that begin with # are comments.

    Raises:
        SettingsError: The file cannot be read, has no token, or has a line that is none.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise _unusable(path, f"{error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise _unusable(path, bad_byte(error)) from error
    accesses: dict[str, Access] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line.strip())
        if found is None:
            raise _unusable(
                path, f"Line {number} is not a token of {_SHORTEST} characters or more, at most one role, and tables."
            )
        patterns = found["tables"].split(",") if found["tables"] else []
        for pattern in patterns:
            if not _PATTERN.fullmatch(pattern):
                raise _unusable(path, f'Line {number}: "{pattern}" is neither namespace.table nor namespace.*.')
        tables = ReadableTables(frozenset(patterns)) if patterns else None
        accesses[found["token"]] = Access(found["role"], tables, number)
    if not accesses:
        raise _unusable(path, "It has no token.")
    return Tokens(accesses)


def _unusable(path: Path, detail: str) -> SettingsError:
    return SettingsError(
        f'the file of tokens "{path}" cannot be used',
        code="serve-tokens",
        detail=detail,
        hint="Write on each line a token, its role if it has one, and tables=shop.orders,crm.* if it may read only these, with "
        "blanks between. openssl rand -hex 32 makes a token.",
    )
