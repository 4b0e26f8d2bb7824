"""Tokens with which a reader of a SUBSCRIBE continues: a position, and a fingerprint of what was read up to it.

A token is text that readers store and hand back. It contains no secret, and nobody but this module looks into it.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, replace
from hashlib import sha256

import pyarrow as pa

from lakehold.errors import DefinitionError
from lakehold.subscribe.query_columns import QueryColumns, to_text
from lakehold.subscribe.statement import Subscribe
from lakehold.timeline.as_of import AsOf

_VERSION = 2


@dataclass(frozen=True)
class Fingerprint:
    """A digest of what a token belongs to.

    Attributes:
        statement: A digest of the SUBSCRIBE as written.
        columns: A digest of the names and types of its output's columns, and of the tables' columns that they come from.
    """

    statement: str
    columns: str

    @classmethod
    def of(cls, statement: str, read: QueryColumns, columns: pa.Schema) -> Fingerprint:
        """Return the fingerprint of a statement that has `read` columns of tables, and whose output has `columns`."""
        return cls(_digest(statement), _digest(to_text(read), *(f"{field.name} {field.type}" for field in columns)))


@dataclass(frozen=True)
class ResumeToken:
    """A place in the output of a SUBSCRIBE.

    Attributes:
        position_ms: All output below it (exclusive) was read.
        fingerprint: What was read.
    """

    position_ms: int
    fingerprint: Fingerprint

    def __str__(self) -> str:
        found = [_VERSION, self.position_ms, self.fingerprint.statement, self.fingerprint.columns]
        return base64.urlsafe_b64encode(json.dumps(found).encode()).decode()

    @classmethod
    def parse(cls, text: str) -> ResumeToken:
        """Parse a token.

        Raises:
            DefinitionError: The text is none.
        """
        try:
            version, position_ms, statement, columns = json.loads(base64.urlsafe_b64decode(text.strip()))
            if version == _VERSION and type(position_ms) is int and 0 < position_ms < 2**63:
                return cls(position_ms, Fingerprint(str(statement), str(columns)))
        except (binascii.Error, ValueError, TypeError, RecursionError):
            pass
        raise DefinitionError(
            "this is not a resume token",
            code="token-invalid",
            detail=f"It has {len(text)} characters, and was cut off or changed, or comes from another version.",
            hint="Pass a token exactly as it was given, or none to begin with a snapshot.",
        )

    def resumed(self, statement: Subscribe) -> Subscribe:
        """Return the statement that reads the changes after the token's position.

        Raises:
            DefinitionError: The token belongs to another statement.
        """
        if self.fingerprint.statement != _digest(statement.text):
            raise DefinitionError(
                "the resume token belongs to another statement",
                code="token-statement",
                hint="Read the statement with which the token was given, as it was written then, or begin without a token.",
            )
        return replace(statement, snapshot=False, as_of=AsOf(self.position_ms - 1))

    def check_columns(self, found: Fingerprint) -> None:
        """Check that the output still has the columns that it had when the token was given.

        Raises:
            DefinitionError: It has others.
        """
        if self.fingerprint.columns != found.columns:
            raise DefinitionError(
                "the columns of the output have changed since the resume token was given",
                code="token-columns",
                hint="Begin without a token. If the reader can take the new columns, read on WITH (SNAPSHOT = false) AS OF "
                f"{self.position_ms - 1}.",
            )


def _digest(*texts: str) -> str:
    return sha256("\0".join(texts).encode()).hexdigest()[:16]
