"""The tokens that admit clients, and the role that each token has."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from pathlib import Path

from lakehold.errors import SettingsError, bad_byte

_SHORTEST = 16
"""Characters of a token, at least: a shorter one could be guessed."""
_FIELDS = 2


@dataclass(frozen=True)
class Tokens:
    """The tokens of a server and their roles; a server without tokens admits everybody.

    Attributes:
        roles: The role of each token, None for a token without one.
        default_role: The role of clients where there are no tokens.
    """

    roles: dict[str, str | None] = field(default_factory=dict, repr=False)
    default_role: str | None = None

    def __bool__(self) -> bool:
        return bool(self.roles)

    def role_of(self, token: str) -> str | None:
        """Return the role of a token.

        Raises:
            LookupError: There are tokens, and this is none of them.
        """
        if not self.roles:
            return self.default_role
        # All are compared, each in constant time: how long it takes tells nothing about a token.
        matching = [known for known in self.roles if hmac.compare_digest(known.encode(), token.encode())]
        if not matching:
            raise LookupError
        return self.roles[matching[0]]


def read_tokens(path: Path) -> Tokens:
    """Read a file of tokens: one on each line, and after a blank its role, if it has one. Lines that begin with # are comments.

    Raises:
        SettingsError: The file cannot be read, has no token, or has a line that is none.
    """
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise _unusable(path, f"{error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise _unusable(path, bad_byte(error)) from error
    roles: dict[str, str | None] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if len(words) > _FIELDS or len(words[0]) < _SHORTEST:
            raise _unusable(
                path, f"Line {number} is not a token of {_SHORTEST} characters or more, and at most one role."
            )
        roles[words[0]] = words[1] if len(words) == _FIELDS else None
    if not roles:
        raise _unusable(path, "It has no token.")
    return Tokens(roles)


def _unusable(path: Path, detail: str) -> SettingsError:
    return SettingsError(
        f'the file of tokens "{path}" cannot be used',
        code="serve-tokens",
        detail=detail,
        hint="Write one token on each line, and after a blank the role that it has. openssl rand -hex 32 makes a token.",
    )
