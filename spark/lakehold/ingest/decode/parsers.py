"""Calls of Spark's parsers, and one pass of them for readers who want different things of the same records.

Readers with other envelopes look at the same record, so they take one call. `from_json` reads the fields it is asked for: what
several lists of columns ask of one text is asked at once, and each takes its own fields from the result. A record that is corrupt
so is parsed again as each list asks for it, because a value that one of them cannot hold is no error of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from lakehold.ingest.decode.connect_schema import ConnectSchema, SchemaType
from lakehold.ingest.decode.convert import json_type
from lakehold.ingest.decode.sql_text import literal, struct_of
from lakehold.session import quoted

CORRUPT = "_corrupt"
_JSON_OPTIONS = f"map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{CORRUPT}')"
_AVRO_OPTIONS = "map('mode', 'PERMISSIVE')"


@dataclass(frozen=True)
class AvroParser:
    """Reads the Avro record that the SQL `body` gives, written with the schema `written`; null if it is corrupt."""

    body: str
    written: str

    @property
    def sql(self) -> str:
        """The call."""
        return f"from_avro({self.body}, {literal(self.written)}, {_AVRO_OPTIONS})"


@dataclass(frozen=True)
class JsonParser:
    """Reads the JSON object `{"v": …}` that the SQL `body` gives: fields `v`, in the types of `row`, and `CORRUPT`."""

    body: str
    row: ConnectSchema

    @property
    def sql(self) -> str:
        """The call."""
        kind = f"v {json_type(self.row)}, {CORRUPT} string"
        return f"from_json({self.body}, {literal(kind)}, {_JSON_OPTIONS})"


Parser = AvroParser | JsonParser


@dataclass(frozen=True)
class Call:
    """A parser, and the condition on a record under which its result is wanted."""

    when: str
    parser: Parser

    @property
    def sql(self) -> str:
        """The result; null for the other records."""
        return f"CASE WHEN {self.when} THEN {self.parser.sql} END"


@dataclass(frozen=True)
class _Parsing:
    """A column of results for one or several readers: those of the records that satisfy one of `whens`."""

    column: str
    whens: tuple[str, ...]
    parser: Parser

    @property
    def sql(self) -> str:
        return Call(" OR ".join(f"({when})" for when in self.whens), self.parser).sql

    def joined(self, call: Call) -> _Parsing | None:
        """The same with what `call` asks for; None if it is of another text, or asks for a field in another type."""
        parser = _both(self.parser, call.parser)
        if parser is None:
            return None
        return replace(self, whens=tuple(dict.fromkeys((*self.whens, call.when))), parser=parser)

    def result(self, call: Call) -> str | None:
        """What `call` gives, in SQL; None if it is not among what is asked for here."""
        if call.when not in self.whens or _both(self.parser, call.parser) != self.parser:
            return None
        found = self.column
        if isinstance(call.parser, JsonParser) and isinstance(self.parser, JsonParser):
            found = self._narrowed(call.parser, self.parser)
        if len(self.whens) > 1:
            return f"CASE WHEN {self.column} IS NOT NULL AND ({call.when}) THEN {found} END"
        return found if found == self.column else f"CASE WHEN {self.column} IS NOT NULL THEN {found} END"

    def _narrowed(self, own: JsonParser, wide: JsonParser) -> str:
        fields = _narrowed(f"{self.column}.v", wide.row, own.row)
        if fields == f"{self.column}.v":
            return self.column
        result = struct_of({"v": fields, CORRUPT: "CAST(NULL AS string)"})
        return f"CASE WHEN {self.column}.{CORRUPT} IS NULL THEN {result} ELSE {own.sql} END"


@dataclass(frozen=True)
class Parsed:
    """Records, and what parsers made of them for several readers.

    Args:
        frame: The records, with a column for each of `_parsings`.
    """

    frame: DataFrame
    _parsings: tuple[_Parsing, ...]

    def has(self, call: Call) -> bool:
        """Whether what `call` gives is there."""
        return self._result(call) is not None

    def result(self, call: Call) -> str:
        """What `call` gives, in SQL over `frame`: it is called only if the result is not there."""
        return self._result(call) or call.sql

    def _result(self, call: Call) -> str | None:
        return next((sql for parsing in self._parsings if (sql := parsing.result(call)) is not None), None)


def parsed_for(raw: DataFrame, calls: Iterable[Call]) -> Parsed:
    """`raw` with what all of `calls` give, which parse each text once where they agree about the types of its fields."""
    parsings: list[_Parsing] = []
    for call in calls:
        for i, parsing in enumerate(parsings):
            if (joined := parsing.joined(call)) is not None:
                parsings[i] = joined
                break
        else:
            parsings.append(_Parsing(f"_for_all{len(parsings)}", (call.when,), call.parser))
    return Parsed(raw.selectExpr("*", *_columns(parsings)), tuple(parsings))


def _columns(parsings: Iterable[_Parsing]) -> Iterator[str]:
    return (f"{parsing.sql} AS {parsing.column}" for parsing in parsings)


def _both(one: Parser, other: Parser) -> Parser | None:
    if isinstance(one, JsonParser) and isinstance(other, JsonParser) and one.body == other.body:
        row = _merged(one.row, other.row)
        return None if row is None else replace(one, row=row)
    return one if one == other else None


def _merged(one: ConnectSchema, other: ConnectSchema) -> ConnectSchema | None:
    """A schema with the fields of both; None where they say different things of one, or Spark cannot tell two apart."""
    if json_type(one) == json_type(other):
        return one
    if not (one.type is other.type is SchemaType.STRUCT and one.fields and other.fields):
        return None
    fields = {f.name: f for f in one.fields}
    for f in other.fields:
        schema = _merged(fields[f.name].schema, f.schema) if f.name in fields else f.schema
        if schema is None:
            return None
        fields[f.name] = replace(f, schema=schema)
    return replace(one, fields=tuple(fields.values())) if len({n.lower() for n in fields}) == len(fields) else None


def _narrowed(raw: str, wide: ConnectSchema, own: ConnectSchema) -> str:
    """What is of the fields of `own`, from what has those of `wide`."""
    if json_type(wide) == json_type(own):
        return raw
    places = {f.name: f"{raw}.{quoted(f.name)}" for f in own.fields}
    fields = {f.name: _narrowed(places[f.name], wide.field_named(f.name) or f.schema, f.schema) for f in own.fields}
    return f"CASE WHEN {raw} IS NOT NULL THEN {struct_of(fields)} END"
