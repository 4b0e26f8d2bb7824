"""A key or a value as the parser sees it: one `Version` for each way its records were written.

A parser puts the record into a field `v` of a structure of its own, so that a corrupt record (`v` is null, or the
corrupt record column is set) is not taken for a record of nulls. A part that is no record becomes one: its only field
is called as the part, `key` or `value`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from lakehold.ingest.decode.asked import asked
from lakehold.ingest.decode.avro_schema import AvroSchema, Fields, from_avro_json, pruned
from lakehold.ingest.decode.connect_schema import (
    DECLARED_DECIMAL,
    ConnectSchema,
    Field,
    SchemaType,
    UnsupportedSchema,
    from_connect_json,
    parsed,
)
from lakehold.ingest.decode.convert import Encoding
from lakehold.ingest.decode.json_fields import overflowed, taken_for_text, wrongly_typed
from lakehold.ingest.decode.logical import logical_type
from lakehold.ingest.decode.parsers import CORRUPT, AvroParser, JsonParser, Parser
from lakehold.ingest.decode.schema_ids import SCHEMA_MEMBER
from lakehold.ingest.decode.schemas import AvroIds, JsonDeclared, JsonHeads, PartSchemas, declared_struct
from lakehold.ingest.decode.storable import is_null, storable
from lakehold.spark_sql import literal, quoted


@dataclass(frozen=True)
class Version:
    """Records of a part that were written with one schema.

    `matches` is a condition on the part's bytes, `parser` reads those that match. From the column of its result, `row` makes
    the expression of the record and `corrupt` the condition of its being none. `wrong` (if set) gives the name of a field of
    the wrong type, or ''; so does `taken`, for fields that the parser took all the same.
    """

    matches: str
    parser: Parser
    schema: ConnectSchema
    encoding: Encoding
    row: Callable[[str], str]
    corrupt: Callable[[str], str]
    wrong: str | None = None
    taken: str | None = None


@dataclass(frozen=True)
class Refused:
    """Records of a part whose schema cannot be used, and why."""

    matches: str
    reason: str
    detail: str


@dataclass(frozen=True)
class Part:
    """How to parse the column `name` (`key` or `value`) of a topic.

    `is_blank` and `is_broken` are conditions on its bytes, and so is `is_null`: the bytes say that there is no key or value,
    whatever schema they name. `written_with` is the sentence about an unknown schema, or '' if the part need not be read at
    all. `reader` tells apart those who want different things of the same records.
    """

    name: str
    versions: tuple[Version, ...]
    refused: tuple[Refused, ...]
    is_blank: str
    is_broken: str
    is_null: str
    written_with: str
    reader: int = 0


def part(
    name: str,
    schemas: PartSchemas,
    as_declared: Callable[[ConnectSchema], ConnectSchema] = lambda row: row,
    fields: Fields | None = None,
) -> Part:
    """Return the part `name` written with `schemas`.

    Args:
        name: `key` or `value`.
        schemas: How it was written.
        as_declared: Puts an envelope around declared columns.
        fields: Those that are wanted of it; None: all.
    """
    match schemas:
        case AvroIds():
            return _avro_part(name, schemas, fields)
        case JsonHeads():
            return _json_part(name, schemas)
        case JsonDeclared():
            return _declared_part(name, schemas, as_declared)


def is_small_value(max_bytes: int) -> str:
    """The condition under which a value is parsed: it is no longer than that, its key included."""
    return f"coalesce(length(key), 0) + length(value) <= {max_bytes}"


def _avro_part(name: str, schemas: AvroIds, fields: Fields | None) -> Part:
    versions, refused, nulls = [], [], []
    for schema_id, text in sorted(schemas.schemas.items()):
        matches = f"substring({name}, 1, 5) = X'{schema_id:010X}'"
        try:
            read = from_avro_json(text)
            if is_null(read.schema):
                nulls.append(matches)
            else:
                versions.append(_avro_version(name, matches, read, fields))
        except UnsupportedSchema as e:
            refused.append(Refused(matches, "unsupported-schema", f"Schema {schema_id} of the {name}: {e}"))
    return Part(
        name,
        tuple(versions),
        tuple(refused),
        is_blank=f"length({name}) = 0",
        is_broken=f"(length({name}) < 5 OR substring({name}, 1, 1) <> X'00')",
        is_null=" OR ".join(nulls) or "false",
        written_with=f"concat('The {name} was written with schema ', conv(hex(substring({name}, 2, 4)), 16, 10), '.')",
    )


def _avro_version(name: str, matches: str, read: AvroSchema, fields: Fields | None) -> Version:
    schema, bare = storable(read.schema), [read.bare, pruned(read.bare, fields)]
    row = _row(name, schema)
    if not _is_record(schema):
        schema, bare = _record_of(name, schema), [_bare_record("row", name, read.bare)] * 2
    elif schema.optional:
        # A record that may be null needs one more around it, or a corrupt one would pass for a null.
        bare, row = [_bare_record("row", "row", each) for each in bare], "{}.v.row".format
    written, wanted = (json.dumps(_bare_record("wrapper", "v", each)) for each in bare)
    return Version(
        matches,
        AvroParser(f"substring({name}, 6)", written, wanted),
        schema,
        Encoding.AVRO,
        row=row,
        corrupt="{}.v IS NULL".format,
    )


def _bare_record(record: str, field: str, bare: Any) -> dict[str, Any]:
    return {"type": "record", "name": record, "fields": [{"name": field, "type": bare}]}


def _json_part(name: str, schemas: JsonHeads) -> Part:
    versions, refused = [], []
    member = f"get_json_object(CAST({name} AS STRING), {literal(SCHEMA_MEMBER)})"
    found = {head: f"startswith({name}, CAST({literal(head)} AS BINARY))" for head in schemas.heads}
    found |= {schema: f"{member} = {literal(schema)}" for schema in schemas.apart}
    for text, matches in found.items():
        version = _headed if text in schemas.heads else _apart
        try:
            versions.append(version(name, matches, text))
        except (UnsupportedSchema, ValueError) as e:
            refused.append(Refused(matches, "unsupported-schema", f"The schema of the {name}: {e}"))
    return Part(
        name,
        tuple(versions),
        tuple(refused),
        is_blank=_blank(name),
        is_broken="false",
        is_null=_null(name),
        written_with=f'\'The {name} is no {{"schema": …, "payload": …}} with the schema of a record.\'',
    )


def _headed(name: str, matches: str, head: str) -> Version:
    """Records that begin with `head`."""
    schema = storable(from_connect_json(parsed(head + "null}")["schema"]))
    payload = f"CAST(substring({name}, {len(head.encode()) + 1}) AS STRING)"
    version = _json_version(name, matches, payload, "", schema)
    return replace(version, taken=taken_for_text(payload, version.schema))


def _apart(name: str, matches: str, text: str) -> Version:
    """Records with the schema `text` somewhere, and the payload before it or after other members."""
    schema, whole = storable(from_connect_json(text)), f"CAST({name} AS STRING)"
    wrapper = ConnectSchema(SchemaType.STRUCT, optional=True, fields=(Field("payload", schema),))
    version = _json_version(name, matches, whole, "}", wrapper)
    if _is_record(schema):
        taken = taken_for_text(f"get_json_object({whole}, '$.payload')", schema)
        return replace(version, schema=schema, row="{}.v.payload".format, taken=taken)
    single = f"named_struct({literal(name)}, {{0}}.v.payload)"
    row = f"CASE WHEN {{0}}.v.payload IS NOT NULL THEN {single} END".format
    return replace(version, schema=_record_of(name, schema), row=row)


def _declared_part(name: str, schemas: JsonDeclared, as_declared: Callable[[ConnectSchema], ConnectSchema]) -> Part:
    row = declared_struct(schemas.columns)
    text = f"CAST({name} AS STRING)"
    is_object = f"ltrim({text}) LIKE '{{%'"
    schema = as_declared(row)
    wrapped_schema = ConnectSchema(SchemaType.STRUCT, optional=True, fields=(Field("payload", schema),))
    wrapped = _json_version(name, _is_wrapped(text, schemas, schema), text, "}", wrapped_schema)
    looked_through = replace(wrapped, schema=schema, row=lambda parsed: f"{parsed}.v.payload")
    versions = [looked_through, _json_version(name, "true", text, "}", schema)]
    if name == "key" and len(row.fields) == 1:
        versions.insert(1, _bare_key(row, text, is_object))
    return Part(
        name,
        tuple(versions) if schemas.columns else (),
        (),
        is_blank=_blank(name),
        is_broken="false",
        is_null="false",
        written_with="",
    )


def _is_wrapped(text: str, schemas: JsonDeclared, schema: ConnectSchema) -> str:
    """The condition that a record is the member `payload` of `text`: none of its own fields stand around that."""
    if not {"schema", "payload"}.isdisjoint(c.name for c in schemas.columns):
        return "false"
    members, own = f"json_object_keys({text})", ", ".join(literal(f.name) for f in schema.fields)
    has_payload = f"array_contains({members}, 'payload') AND NOT arrays_overlap({members}, array({own}))"
    by_connect = f"""startswith({text}, '{{"schema":{{"type":')"""
    may_be = rf"{text} RLIKE '^\\s*\\{{\\s*\"(schema|payload)\"\\s*:'"
    return f"{may_be} AND ({by_connect} OR coalesce({has_payload}, false))"


def _bare_key(row: ConnectSchema, text: str, is_object: str) -> Version:
    """A key of one column that stands alone: as JSON, or as a text without quotes."""
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
        f"NOT ({is_object})",
        JsonParser(body, asked(row)),
        row,
        Encoding.JSON,
        row=_row(only.name, only.schema),
        corrupt=lambda parsed: f"{parsed}.{CORRUPT} IS NOT NULL",
    )


def _json_version(name: str, matches: str, payload: str, end: str, schema: ConnectSchema) -> Version:
    """`payload` is the expression of a JSON value; `end` what must follow it to close the object it is put into."""
    start, row_schema = '{"v":', schema
    if not _is_record(schema):
        start, end, row_schema = f'{{"v":{{"{name}":', f"{end}}}", _record_of(name, schema)
    body = f"concat({literal(start)}, {payload}, {literal(end)})"
    return Version(
        matches,
        JsonParser(body, asked(row_schema)),
        row_schema,
        Encoding.JSON,
        row=_row(name, schema),
        corrupt=lambda parsed: _corrupt(parsed, body, row_schema),
        wrong=wrongly_typed(body, row_schema),
    )


def _corrupt(parsed: str, body: str, schema: ConnectSchema) -> str:
    return f"({' OR '.join([f'{parsed}.{CORRUPT} IS NOT NULL', *overflowed(f'{parsed}.v', body, schema)])})"


def _row(name: str, schema: ConnectSchema) -> Callable[[str], str]:
    if _is_record(schema):
        return lambda parsed: f"{parsed}.v"
    return lambda parsed: f"CASE WHEN {parsed}.v.{quoted(name)} IS NOT NULL THEN {parsed}.v END"


def _is_record(schema: ConnectSchema) -> bool:
    return schema.type is SchemaType.STRUCT and logical_type(schema) is None


def _record_of(name: str, schema: ConnectSchema) -> ConnectSchema:
    return ConnectSchema(SchemaType.STRUCT, optional=schema.optional, fields=(Field(name, schema),))


def _null(name: str) -> str:
    """A null as JSON: alone, or with the schema that it would have, as converters write a record without key or value."""
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
