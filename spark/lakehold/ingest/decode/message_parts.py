"""A key or a value as the parser sees it: a `Part`, with one `Version` for each schema of its records.

A part has SQL for its parser calls and for what can be wrong with a record's bytes. `decoded.py` and `envelope_fields.py` make
parts, `structures.py` makes typed columns of them, `record_problems.py` errors.

A parser puts the record into a field `v` of a structure of its own, so that a corrupt record (`v` is null, or the
corrupt record column is set) is not mistaken for a record of nulls. A part that is not a record becomes one: its only field
has the part's name, `key` or `value`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from lakehold.ingest.decode.avro_schema import AvroSchema, Fields, from_avro_json, pruned
from lakehold.ingest.decode.connect_schema import (
    DECLARED_DECIMAL,
    ConnectSchema,
    Field,
    SchemaType,
    UnsupportedSchema,
    from_connect_json,
    parsed_json,
)
from lakehold.ingest.decode.convert import Encoding
from lakehold.ingest.decode.json_fields import not_text_in_text_column, overflowed, wrongly_typed
from lakehold.ingest.decode.logical import logical_type
from lakehold.ingest.decode.parsers import CORRUPT, AvroParser, Call, JsonParser, Parser
from lakehold.ingest.decode.record_schemas import AvroIds, JsonDeclared, JsonHeads, PartSchemas, declared_struct
from lakehold.ingest.decode.requested_types import requested
from lakehold.ingest.decode.storable import is_null, storable
from lakehold.spark_sql import literal, quoted

_LONG_ID = (
    "The {} was written with schema 0, which no registry has: ids of eight bytes begin so. Let the serializer write ids of four "
    "bytes: apicurio.registry.as-confluent=true."
)
_FRAMED = (
    "The {} begins with a byte 0 and the id of a schema: a converter with a registry wrote it. Of these, lakehold reads Avro, "
    "with FORMAT AVRO. For JSON use org.apache.kafka.connect.json.JsonConverter."
)


@dataclass(frozen=True)
class Version:
    """The records of a part that share one schema.

    Args:
        matches: The condition, in SQL on the part's bytes, that they were written with the schema.
        parser: Reads the bytes that match.
        parsed: The name of the column with its result.
        schema: The schema.
        encoding: The parser's encoding.
        row: The record as a structure, in SQL over `parsed`; null for a null.
        corrupt: The condition that the parser could not read the bytes.
        wrong: If set, SQL of the name of a field of the wrong type, or of ''.
        not_text: If set, SQL of the name of a field that the parser accepted in spite of its type, or of ''.
    """

    matches: str
    parser: Parser
    parsed: str
    schema: ConnectSchema
    encoding: Encoding
    row: str
    corrupt: str
    wrong: str | None = None
    not_text: str | None = None


@dataclass(frozen=True)
class Refused:
    """The records of a part whose schema cannot be used.

    Args:
        matches: The condition that the part's bytes were written with the schema.
        reason: The error code of the records.
        detail: A sentence for people.
    """

    matches: str
    reason: str
    detail: str


@dataclass(frozen=True)
class Part:
    """The column `name` (`key` or `value`) of a topic's records, and how it is parsed.

    Args:
        name: The column of its bytes.
        is_small: The condition under which records are parsed; longer ones are errors.
        reader: Distinguishes the tables or groups of tables that decode the same records with different requests.
        versions: The schemas that can be read.
        refused: The schemas that cannot.
        is_blank: The condition that the bytes are empty, or only white space.
        is_broken: The condition that the bytes name no schema, although the format requires one.
        is_null: The condition that the bytes stand for a null.
        is_bare: For declared columns: the condition that a key is a single value, which does not name its column.
        written_with: SQL of the sentence about a record with an unknown schema. Empty: no record can have one, as columns are
            declared, or the part is not decoded at all.
    """

    name: str
    is_small: str = "true"
    reader: int = 0
    versions: tuple[Version, ...] = ()
    refused: tuple[Refused, ...] = ()
    is_blank: str = "false"
    is_broken: str = "false"
    is_null: str = "false"
    is_bare: str = "false"
    written_with: str = ""

    @property
    def is_unread(self) -> str:
        """Write the condition that the bytes have none of the schemas."""
        return " AND ".join(f"{version.parsed} IS NULL" for version in self.versions) or "true"

    @property
    def problem(self) -> str:
        """Return the name of the column that describes a record's problem."""
        return f"_{self.name}_problem_{self.reader}"

    def calls(self) -> Iterator[tuple[str, Call]]:
        """Yield column and call of each version, for the small records that no earlier version takes."""
        others: list[str] = []
        for version in self.versions:
            mine = " AND ".join([self.is_small, f"NOT ({self.is_blank})", f"({version.matches})", *others])
            yield version.parsed, Call(mine, version.parser)
            others.append(f"NOT ({version.matches})")


def part(
    of: Part,
    schemas: PartSchemas,
    as_declared: Callable[[ConnectSchema], ConnectSchema] = lambda row: row,
    fields: Fields | None = None,
) -> Part:
    """Add to a part a version for each of its schemas.

    Args:
        of: The part, without versions.
        schemas: The schemas of its records.
        as_declared: For declared columns: puts Debezium's envelope around their structure, if values are envelopes.
        fields: For Avro: the wanted fields; None: all.
    """
    match schemas:
        case AvroIds():
            return _avro_part(of, schemas, fields)
        case JsonHeads():
            with_schema = _json_part(of, schemas)
            mixed = _declared_part(with_schema, schemas.declared, as_declared)
            return replace(mixed, written_with="") if schemas.declared.columns else with_schema
        case JsonDeclared():
            return _declared_part(of, schemas, as_declared)


def is_small_value(max_bytes: int) -> str:
    """Write the condition under which a value is parsed: it is no longer than the limit, its key included."""
    return f"coalesce(length(key), 0) + length(value) <= {max_bytes}"


def _parsed(of: Part, version: int) -> str:
    return f"_parsed_{of.name}{version}_{of.reader}"


def _avro_part(of: Part, schemas: AvroIds, fields: Fields | None) -> Part:
    name = of.name
    versions: list[Version] = []
    refused = [
        Refused(_written_with(name, schema_id), "unsupported-schema", f"Schema {schema_id} of the {name}: {why}.")
        for schema_id, why in sorted(schemas.unreadable.items())
    ]
    nulls = []
    for schema_id, text in sorted(schemas.schemas.items()):
        matches = _written_with(name, schema_id)
        try:
            read = from_avro_json(text)
            if is_null(read.schema):
                nulls.append(matches)
            else:
                versions.append(_avro_version(name, matches, _parsed(of, len(versions)), read, fields))
        except UnsupportedSchema as e:
            refused.append(Refused(matches, "unsupported-schema", f"Schema {schema_id} of the {name}: {e}"))
    return replace(
        of,
        versions=tuple(versions),
        refused=tuple(refused),
        is_blank=f"length({name}) = 0",
        is_broken=f"(length({name}) < 5 OR substring({name}, 1, 1) <> X'00')",
        is_null=" OR ".join(nulls) or "false",
        written_with=f"CASE WHEN {_written_with(name, 0)} THEN {literal(_LONG_ID.format(name))} ELSE "
        f"concat('The {name} was written with schema ', conv(hex(substring({name}, 2, 4)), 16, 10), '.') END",
    )


def _written_with(name: str, schema_id: int) -> str:
    """Write the condition that bytes begin with the id of a schema."""
    return f"substring({name}, 1, 5) = X'{schema_id:010X}'"


def _avro_version(name: str, matches: str, parsed: str, read: AvroSchema, fields: Fields | None) -> Version:
    schema, bare = storable(read.schema), [read.bare, pruned(read.bare, fields)]
    row = _row(name, schema, parsed)
    if not _is_record(schema):
        schema, bare = _record_of(name, schema), [_bare_record("row", name, read.bare)] * 2
    elif schema.optional:
        # A record that may be null needs another record around it, or a corrupt one would pass for a null.
        bare, row = [_bare_record("row", "row", each) for each in bare], f"{parsed}.v.row"
    written, wanted = (json.dumps(_bare_record("wrapper", "v", each)) for each in bare)
    parser = AvroParser(f"substring({name}, 6)", written, wanted)
    return Version(matches, parser, parsed, schema, Encoding.AVRO, row, f"{parsed}.v IS NULL")


def _bare_record(record: str, field: str, bare: Any) -> dict[str, Any]:
    return {"type": "record", "name": record, "fields": [{"name": field, "type": bare}]}


def _json_part(of: Part, schemas: JsonHeads) -> Part:
    name = of.name
    versions: list[Version] = []
    refused = []
    for head in schemas.heads:
        matches = f"startswith({name}, CAST({literal(head)} AS BINARY))"
        payload = f"CAST(substring({name}, {len(head.encode()) + 1}) AS STRING)"
        try:
            schema = storable(from_connect_json(parsed_json(head + "null}")["schema"]))
            version = _json_version(name, matches, _parsed(of, len(versions)), payload, schema)
            versions.append(replace(version, not_text=not_text_in_text_column(payload, version.schema)))
        except (UnsupportedSchema, ValueError) as e:
            refused.append(Refused(matches, "unsupported-schema", f"The schema of the {name}: {e}"))
    return replace(
        of,
        versions=tuple(versions),
        refused=tuple(refused),
        is_blank=_blank(name),
        is_null=_null(name),
        written_with=f"CASE WHEN startswith({name}, X'00') THEN {literal(_FRAMED.format(name))} ELSE "
        f'\'The {name} is no {{"schema": …, "payload": …}} with the schema of a record, in that order.\' END',
    )


def _declared_part(of: Part, schemas: JsonDeclared, as_declared: Callable[[ConnectSchema], ConnectSchema]) -> Part:
    """Add to a part the versions of records whose columns are declared: all that have no schema."""
    if not schemas.columns:
        return of
    row, text = declared_struct(schemas.columns), f"CAST({of.name} AS STRING)"
    schema = as_declared(row)
    first = len(of.versions)
    outer = ConnectSchema(SchemaType.STRUCT, optional=True, fields=(Field("payload", schema),))
    closed = f"{text}, '}}'"
    wrapped = _json_version(of.name, _is_wrapped(text, schemas, schema), _parsed(of, first), closed, outer)
    versions = [replace(wrapped, schema=schema, row=f"{wrapped.row}.payload")]
    if of.name == "key" and len(row.fields) == 1:
        versions.append(_bare_key(row, text, _parsed(of, first + 1)))
    versions.append(_json_version(of.name, "true", _parsed(of, first + len(versions)), closed, schema))
    is_bare = is_bare_json(of.name) if of.name == "key" else "false"
    if schemas.is_bare:
        record = Refused(
            f"NOT ({is_bare})", "undecodable-key", "The key is a record; the table's keys are single values."
        )
        only = (_bare_key(row, text, _parsed(of, first)),)
        return replace(of, versions=only, refused=(record,), is_blank=_blank(of.name), is_bare=is_bare)
    # A null with a schema is none of them, nor is a record whose schema cannot be used.
    others = [f"NOT ({each})" for each in (of.is_null, *(refused.matches for refused in of.refused)) if each != "false"]
    own = [replace(version, matches=" AND ".join([*others, f"({version.matches})"])) for version in versions]
    return replace(of, versions=(*of.versions, *own), is_blank=_blank(of.name), is_bare=is_bare)


def is_bare_json(column: str) -> str:
    """Write the condition that the bytes of a JSON key are no record: a bare number or text."""
    return f"NOT (ltrim(CAST({column} AS STRING)) LIKE '{{%')"


def _is_wrapped(text: str, schemas: JsonDeclared, schema: ConnectSchema) -> str:
    """Write the condition that a record is the member `payload` of `text`, and not an object with fields of its own."""
    if not {"schema", "payload"}.isdisjoint(c.name for c in schemas.columns):
        return "false"
    members, own = f"json_object_keys({text})", ", ".join(literal(f.name) for f in schema.fields)
    has_payload = f"array_contains({members}, 'payload') AND NOT arrays_overlap({members}, array({own}))"
    by_connect = f"""startswith({text}, '{{"schema":{{"type":')"""
    may_be = rf"{text} RLIKE '^\\s*\\{{\\s*\"(schema|payload)\"\\s*:'"
    return f"{may_be} AND ({by_connect} OR coalesce({has_payload}, false))"


def _bare_key(row: ConnectSchema, text: str, parsed: str) -> Version:
    """Return the version of a key that is a single bare value: as JSON, or as a text without quotes."""
    only = row.fields[0]
    in_quotes = f"to_json(named_struct({literal(only.name)}, {text}))"
    opening = literal(json.dumps({only.name: None})[: -len("null}")])
    is_text = only.schema.type is SchemaType.STRING
    # A number of days or of microseconds is one; the digits of a text or a decimal are as good in quotes.
    is_moment = only.schema.is_declared and only.schema.name != DECLARED_DECIMAL
    numbers = r"|-?[0-9]+\\s*$" if is_moment else ""
    unquoted = f"NOT ({text} RLIKE '^\\\\s*(\"|null\\\\s*${numbers})')" if is_text else "false"
    as_json = f"concat({opening}, {text}, '}}')"
    body = f"concat('{{\"v\":', CASE WHEN {unquoted} THEN {in_quotes} ELSE {as_json} END, '}}')"
    return Version(
        is_bare_json("key"),
        JsonParser(body, requested(row)),
        parsed,
        row,
        Encoding.JSON,
        row=_row(only.name, only.schema, parsed),
        corrupt=f"{parsed}.{CORRUPT} IS NOT NULL",
    )


def _json_version(name: str, matches: str, parsed: str, payload: str, schema: ConnectSchema) -> Version:
    """Return the version of records whose JSON value is `payload`, in SQL, followed by a bracket that closes the object."""
    start, end, row_schema = '{"v":', "", schema
    if not _is_record(schema):
        start, end, row_schema = f'{{"v":{{"{name}":', "}", _record_of(name, schema)
    body = f"concat({literal(start)}, {payload}, {literal(end)})"
    corrupt = [f"{parsed}.{CORRUPT} IS NOT NULL", *overflowed(f"{parsed}.v", body, row_schema)]
    return Version(
        matches,
        JsonParser(body, requested(row_schema)),
        parsed,
        row_schema,
        Encoding.JSON,
        row=_row(name, schema, parsed),
        corrupt=f"({' OR '.join(corrupt)})",
        wrong=wrongly_typed(body, row_schema),
    )


def _row(name: str, schema: ConnectSchema, parsed: str) -> str:
    if _is_record(schema):
        return f"{parsed}.v"
    return f"CASE WHEN {parsed}.v.{quoted(name)} IS NOT NULL THEN {parsed}.v END"


def _is_record(schema: ConnectSchema) -> bool:
    return schema.type is SchemaType.STRUCT and logical_type(schema) is None


def _record_of(name: str, schema: ConnectSchema) -> ConnectSchema:
    return ConnectSchema(SchemaType.STRUCT, optional=schema.optional, fields=(Field(name, schema),))


def _null(name: str) -> str:
    """Write the condition that JSON is a null: alone, or with a schema as converters write it."""
    text = f"CAST({name} AS STRING)"
    members = f"json_object_keys({text})"
    is_wrapper = (
        f"array_contains({members}, 'payload') AND size(array_except({members}, array('schema', 'payload'))) = 0"
    )
    wrapped = f"""contains({text}, '"payload"') AND {is_wrapper} AND get_json_object({text}, '$.payload') IS NULL"""
    return f"(length({name}) < 100 AND {text} RLIKE '^\\\\s*null\\\\s*$' OR coalesce({wrapped}, false))"


def _blank(name: str) -> str:
    # Bounded, because the pattern is tried at every character of what is not blank.
    return f"(length({name}) < 100 AND CAST({name} AS STRING) RLIKE '^\\\\s*$')"
