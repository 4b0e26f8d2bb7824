"""Calls of Spark's parsers `from_avro` and `from_json`, with one call for all readers of a text.

A *reader* here is a table, or several with equal needs, that takes decoded records. Readers with different envelopes, keys or
column lists read the same text, so it is parsed once, for the union of their requests. A record that is corrupt then is parsed
again for each reader, because a value that one reader cannot hold is no error of another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from lakehold.ingest.decode.json_fields import numbers_in_quotes
from lakehold.ingest.decode.requested_types import Requested, as_requested, ddl, doubles, requested_by_both
from lakehold.spark_sql import literal, map_of, struct_of

CORRUPT = "_corrupt"
_JSON_OPTIONS = map_of({"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT})


@dataclass(frozen=True)
class AvroParser:
    """A parser of the Avro record in the SQL `body`, written with the schema `written` (as JSON): null if it is corrupt.

    `read` is the schema of its wanted fields (as JSON); Avro finds them by name.
    """

    body: str
    written: str
    read: str

    @property
    def sql(self) -> str:
        """Write the call."""
        options = map_of({"mode": "PERMISSIVE"} | ({} if self.read == self.written else {"avroSchema": self.read}))
        return f"from_avro({self.body}, {literal(self.written)}, {options})"

    def joined(self, other: Parser) -> AvroParser | None:
        """Return a parser whose result serves both, if there is one."""
        if self == other:
            return self
        whole = replace(self, read=self.written)
        return whole if isinstance(other, AvroParser) and replace(other, read=other.written) == whole else None

    def result(self, found: str, of: Parser) -> str:
        """Write the result of parser `of`, or one with more fields, from `found`, SQL of what this one found."""
        return found if self.joined(of) == self else of.sql


@dataclass(frozen=True)
class JsonParser:
    """A parser of the JSON object `{"v": …}` in the SQL `body`: a structure of `v`, in the requested type, and `CORRUPT`."""

    body: str
    requested: Requested

    @property
    def sql(self) -> str:
        """Write the call."""
        return f"from_json({self.body}, {literal(f'v {ddl(self.requested)}, {CORRUPT} string')}, {_JSON_OPTIONS})"

    def joined(self, other: Parser) -> JsonParser | None:
        """Return a parser whose result serves both, if there is one."""
        if not isinstance(other, JsonParser) or self.body != other.body:
            return None
        both = requested_by_both(self.requested, other.requested)
        return None if both is None else replace(self, requested=both)

    def result(self, found: str, of: Parser) -> str:
        """Write the result of parser `of` from `found`, SQL of what this one found, or else by parsing again."""
        if not isinstance(of, JsonParser):
            return of.sql
        value = as_requested(f"{found}.v", self.requested, of.requested)
        if value == f"{found}.v":
            return self._exact(found, of, found)
        result = struct_of({"v": value, CORRUPT: "CAST(NULL AS STRING)"})
        return self._exact(found, of, f"CASE WHEN {found}.{CORRUPT} IS NULL THEN {result} ELSE {of.sql} END")

    def _exact(self, found: str, of: JsonParser, otherwise: str) -> str:
        """Return SQL that parses again for `of`, with numbers in quotes, if a number became a double; else `otherwise`.

        Few numbers have an exponent or more than 38 digits, so that few texts are parsed twice.
        """
        some = [condition for _, condition in doubles(self.requested, f"{found}.v")]
        in_quotes = numbers_in_quotes(self.body, {name for name, _ in doubles(of.requested, "v")})
        if not some or in_quotes is None:
            return otherwise
        return f"CASE WHEN {' OR '.join(some)} THEN {replace(of, body=in_quotes).sql} ELSE {otherwise} END"


Parser = AvroParser | JsonParser


@dataclass(frozen=True)
class Call:
    """A parser, with the condition on a record under which its result is wanted."""

    when: str
    parser: Parser

    @property
    def sql(self) -> str:
        """Write the result; null for other records."""
        return f"CASE WHEN {self.when} THEN {self.parser.sql} END"


@dataclass(frozen=True)
class CallForAll:
    """A parser whose result serves several calls."""

    parser: Parser
    calls: tuple[Call, ...]

    @property
    def sql(self) -> str:
        """Write the result; null for a record that no call wants."""
        return Call(" OR ".join(f"({when})" for when in self._whens), self.parser).sql

    def joined(self, call: Call) -> CallForAll | None:
        """Return a call that serves one more; None if the parser cannot serve it."""
        parser = self.parser.joined(call.parser)
        return None if parser is None else CallForAll(parser, (*self.calls, call))

    def result(self, column: str, call: Call) -> str:
        """Write the result of one of the calls from `column`, which has the common result."""
        found = self.parser.result(column, call.parser)
        if len(self._whens) > 1:
            return f"CASE WHEN {column} IS NOT NULL AND ({call.when}) THEN {found} END"
        return found if found == column else f"CASE WHEN {column} IS NOT NULL THEN {found} END"

    @property
    def _whens(self) -> list[str]:
        return list(dict.fromkeys(call.when for call in self.calls))


def calls_for_all(calls: Iterable[Call]) -> list[CallForAll]:
    """Return as few calls as possible for all that read the same text."""
    found: list[CallForAll] = []
    for call in calls:
        for number, others in enumerate(found):
            if (joined := others.joined(call)) is not None:
                found[number] = joined
                break
        else:
            found.append(CallForAll(call.parser, (call,)))
    return found
