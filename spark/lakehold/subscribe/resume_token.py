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

from lakehold.errors import DefinitionError, NotReadable
from lakehold.subscribe.query_columns import TABLE_UUID, QueryColumns, to_text, without_tables
from lakehold.subscribe.statement import Subscribe
from lakehold.timeline.as_of import AsOf

_VERSION = 3

_WITHOUT_TABLES = 2
"""The version of tokens that do not say which tables were read."""


@dataclass(frozen=True)
class Fingerprint:
    """A digest of what a token belongs to.

    Attributes:
        statement: A digest of the SUBSCRIBE as written.
        columns: A digest of the names and types of its output's columns, and of the tables' columns that they come from.
        tables: A digest of the tables; empty in a token of an earlier version.
    """

    statement: str
    columns: str
    tables: str

    @classmethod
    def of(cls, statement: str, read: QueryColumns, columns: pa.Schema) -> Fingerprint:
        """Return the fingerprint of a statement that has `read` columns of tables, and whose output has `columns`."""
        names = (f"{field.name} {field.type}" for field in columns)
        tables = (f"{name} {ids[TABLE_UUID]}" for name, ids in sorted(read.items()))
        return cls(_digest(statement), _digest(to_text(without_tables(read)), *names), _digest(*tables))


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
        of = self.fingerprint
        found = [_VERSION, self.position_ms, of.statement, of.columns, of.tables]
        return base64.urlsafe_b64encode(json.dumps(found).encode()).decode()

    @classmethod
    def parse(cls, text: str) -> ResumeToken:
        """Parse a token.

        Raises:
            DefinitionError: The text is none.
        """
        try:
            version, position_ms, statement, columns, *rest = json.loads(base64.urlsafe_b64decode(text.strip()))
            (tables,) = rest if version == _VERSION else ("", *rest)
            if version in (_VERSION, _WITHOUT_TABLES) and type(position_ms) is int and 0 < position_ms < 2**63:
                return cls(position_ms, Fingerprint(str(statement), str(columns), str(tables)))
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

    def check_continues(self, found: Fingerprint) -> None:
        """Check that the tables and the columns of the output are those of which the token was given.

        Raises:
            NotReadable: Another table has the name of one that was read.
            DefinitionError: The output has other columns.
        """
        if self.fingerprint.tables and self.fingerprint.tables != found.tables:
            raise NotReadable(
                "another table has the name of one that was read before the resume token was given",
                code="table-replaced",
                detail=f"The table whose changes were read below {self.position_ms} was dropped or renamed. What differs between "
                "its rows and those of the other table is unknown.",
                hint="Discard what was read, and begin without a token.",
            )
        if self.fingerprint.columns != found.columns:
            raise DefinitionError(
                "the columns of the output have changed since the resume token was given",
                code="token-columns",
                hint="Begin without a token. If the reader can take the new columns, read on WITH (SNAPSHOT = false) AS OF "
                f"{self.position_ms - 1}.",
            )


def _digest(*texts: str) -> str:
    return sha256("\0".join(texts).encode()).hexdigest()[:16]
