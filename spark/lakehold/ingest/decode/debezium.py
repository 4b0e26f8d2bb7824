"""Debezium's envelope: the fields around `before` and `after`, and the placeholder for a value that it does not have.

`decoded.py` and `envelope_fields.py` build their SQL with these functions. They take a `Part` (`message_parts.py`): the values of
a topic with a `Version` for each schema, whose `row` is SQL of the parsed envelope.

Connectors differ in `source`: each field below is null if a message lacks it. Numbers that some connectors send as text are read
as numbers if they are one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lakehold.ingest.decode.avro_schema import Fields
from lakehold.ingest.decode.connect_schema import ConnectSchema, SchemaType
from lakehold.ingest.decode.convert import Encoding
from lakehold.ingest.decode.logical import decimal_parameters, logical_type
from lakehold.ingest.decode.message_parts import Part, Refused, Version
from lakehold.ingest.decode.placeholder import BYTES, PLACEHOLDER, TEXTS, UUID
from lakehold.ingest.decode.requested_types import has_text_keys
from lakehold.ingest.decode.structures import Structure
from lakehold.spark_sql import literal, quoted, struct_of

SOURCE = {
    "connector": ("connector", "string"),
    "snapshot": ("snapshot", "string"),
    "sequence": ("sequence", "string"),
    "lsn": ("lsn", "bigint"),
    "file": ("file", "string"),
    "pos": ("pos", "bigint"),
    "row": ("row", "int"),
    "ts_ms": ("ts_ms", "bigint"),
}
"""Fields of `source` in the result, by their name there: the name that Debezium gives the field, and its type in SQL."""

_TRANSACTION = {
    "id": ("id", "string"),
    "total_order": ("total_order", "bigint"),
    "collection_order": ("data_collection_order", "bigint"),
}
"""Fields of `transaction` in the result, as `SOURCE`."""

HEAD_FIELDS: Fields = {
    "op": None,
    **{
        name: dict.fromkeys(f for f, _ in of.values())
        for name, of in (("source", SOURCE), ("transaction", _TRANSACTION))
    },
}
"""The fields around the rows that are read from an envelope."""

FIELDS: Fields = {"before": None, "after": None, **HEAD_FIELDS}
"""The fields that are read from an envelope."""

_JAVA_ARRAY = r"^\[+(L[\w.$]+;|[ZBCSIJFD])@[0-9a-f]+$"
"""The text that Debezium makes of an inner array: `[Ljava.lang.String;@1b2c3d`."""

NOT_DEBEZIUM = "not-debezium"
"""The error code of a message whose schema is not that of a change event."""

_DOCUMENT = (
    'The field "after" of the change event is a text with a document in it, as the MongoDB connector writes it, which does not '
    "say what columns it has. Let the connector write documents as records (ExtractNewDocumentState), and use ENVELOPE UPSERT, "
    "or DEBEZIUM FLATTENED with its delete.tombstone.handling.mode=rewrite."
)


def only_envelopes(value: Part) -> Part:
    """Return the part without versions whose schema is not an envelope; their records are refused."""
    checked = [(version, _refused(version)) for version in value.versions]
    envelopes = tuple(version for version, why in checked if why is None)
    return replace(value, versions=envelopes, refused=(*value.refused, *(why for _, why in checked if why is not None)))


def _refused(version: Version) -> Refused | None:
    """Describe why records of a schema have no row; None if it is an envelope, with or without `before`."""
    after = version.schema.field_named("after")
    missing = [name for name in ("after", "op") if version.schema.field_named(name) is None]
    left_out = next((part for part in version.schema.left_out if part.path == "after"), None)
    if left_out is not None:
        return Refused(version.matches, "unsupported-schema", f'The row in "after" has no columns: {left_out.why}.')
    if missing or after is None:
        detail = f"The value has no {' and no '.join(missing)}: it is not a change event of Debezium."
        return Refused(version.matches, NOT_DEBEZIUM, detail)
    if after.type is SchemaType.STRING:
        return Refused(version.matches, "unsupported-schema", _DOCUMENT)
    if after.type is not SchemaType.STRUCT or logical_type(after) is not None:
        return Refused(
            version.matches,
            NOT_DEBEZIUM,
            f'The field "after" of the value is of type {after.type}, and not a row: it is not a change event of Debezium.',
        )
    return None


def head(value: Part) -> dict[str, str]:
    """Write the fields around the rows of a change, which can be read although its rows cannot be decoded.

    Returns:
        SQL of `op`, `source`, `transaction` and `is_readable`: false for a value that exists and that no schema reads.
    """
    other = [refused.matches for refused in value.refused if refused.reason == NOT_DEBEZIUM]
    read = [f"({version.parsed} IS NOT NULL AND NOT {version.corrupt})" for version in value.versions]
    is_readable = f"coalesce({' OR '.join(['value IS NULL', *read, *other])}, false)"
    return {
        "op": field_of(value, "op"),
        "source": block(value, "source", SOURCE),
        "transaction": block(value, "transaction", _TRANSACTION),
        "is_readable": is_readable,
    }


def problems(value: Part) -> Iterator[tuple[str, str]]:
    """Yield (condition, detail) for each way in which a record is not an envelope, or lacks values, despite a valid schema."""
    for version in value.versions:
        row = version.row
        yield f"({row} IS NOT NULL AND {row}.op IS NULL)", "The envelope has no op."
        texts = _texts(version)
        if texts:
            yield f"NOT is_valid_utf8(concat_ws(',', {', '.join(texts)}))", "The envelope has a text that is not UTF-8."
        after = version.schema.field_named("after")
        for f in after.fields if after is not None else ():
            if f.schema.items is not None and f.schema.items.type is SchemaType.STRING:
                # One such element is enough. A function over all elements would be a higher-order one, as below.
                first = f"get({row}.after.{quoted(f.name)}, 0)"
                yield (
                    f"({first} RLIKE {literal(_JAVA_ARRAY)})",
                    f'Column "{f.name}" holds an array of several dimensions, which the connector sends without its values.',
                )


def documents(value: Part) -> Iterator[tuple[str, str, str]]:
    """Yield (condition, code, detail): the condition that MongoDB's connector sent a text where columns are declared.

    JSON without a schema shows only by its values that it has such texts.
    """
    paths = ("$.source.connector", "$.payload.source.connector")
    connector = f"coalesce({', '.join(f'get_json_object(CAST({value.name} AS STRING), {literal(p)})' for p in paths)})"
    for version in value.versions if not value.written_with else ():
        is_unread = f"{version.parsed} IS NOT NULL AND {version.corrupt}"
        yield f"({is_unread} AND {connector} = 'mongodb')", "unsupported-schema", _DOCUMENT


def _texts(version: Version) -> list[str]:
    """Write the texts around the rows of a record, if its parser may return texts that are not UTF-8."""
    if version.encoding is not Encoding.AVRO:
        return []
    blocks = {name: version.schema.field_named(name) for name in ("source", "transaction")}
    known = {f for of in (SOURCE, _TRANSACTION) for f, kind in of.values() if kind == "string"}
    inside = [
        f"{version.row}.{quoted(name)}.{quoted(f.name)}"
        for name, schema in blocks.items()
        for f in (schema.fields if schema is not None else ())
        if f.name in known and f.schema.type is SchemaType.STRING
    ]
    return [f"{version.row}.op", *inside]


def field_of(value: Part, name: str, kind: str = "string") -> str:
    """Write a field of the envelope that every version has, of type `kind` (SQL); null for a record that was not parsed."""
    return _first([f"{version.row}.{quoted(name)}" for version in value.versions], kind)


def block(value: Part, name: str, wanted: Mapping[str, tuple[str, str]]) -> str:
    """Write a structure of the `wanted` fields (as `SOURCE`) of the envelope's field `name`, each null if a record lacks it."""
    found: dict[str, list[str]] = {field: [] for field, _ in wanted.values()}
    for version in value.versions:
        schema = version.schema.field_named(name)
        for f in schema.fields if schema is not None else ():
            if f.name in found:
                found[f.name].append(f"{version.row}.{quoted(name)}.{quoted(f.name)}")
    return struct_of(
        {
            key: _first([f"try_cast({place} AS {kind})" for place in found[field]], kind)
            for key, (field, kind) in wanted.items()
        }
    )


def _first(places: Sequence[str], kind: str) -> str:
    found = f"coalesce({', '.join([*places, f'CAST(NULL AS {kind})'])})"
    # Also the envelope of a record with an error is read, whose texts may have any bytes.
    return f"make_valid_utf8({found})" if kind == "string" else found


def unavailable(after: Structure) -> str:
    """List the names of columns that contain the placeholder, in the forms in which connectors write it."""
    placeholders = []
    for origin in after.origins:
        for f in origin.schema.fields:
            is_placeholder = _is_placeholder(f"{origin.raw}.{quoted(f.name)}", f.schema)
            if is_placeholder is not None:
                placeholders.append((is_placeholder, literal(f.name)))
    if not placeholders:
        return "CAST(NULL AS array<string>)"
    names = ", ".join(f"CASE WHEN {condition} THEN {name} END" for condition, name in placeholders)
    some = " OR ".join(condition for condition, _ in placeholders)
    # Not array_compact: it is a higher-order function, for which Spark would compile nothing of the whole stage.
    return f"CASE WHEN {some} THEN array_except(array({names}), array(CAST(NULL AS string))) END"


def _is_placeholder(raw: str, schema: ConnectSchema) -> str | None:
    """Write the condition that a value is the placeholder; None for a type that has none."""
    match schema.type:
        case SchemaType.ARRAY if schema.items is not None:
            items = _placeholders(schema.items, in_array=True)
            return f"{raw} IN ({', '.join(f'array({each})' for each in items)})" if items else None
        case SchemaType.MAP if schema.values is not None and has_text_keys(schema):
            text = literal(PLACEHOLDER)
            return f"{raw}[{text}] = {text}" if schema.values.type is SchemaType.STRING else None
        case _:
            values = _placeholders(schema, in_array=False)
            return f"{raw} IN ({', '.join(values)})" if values else None


def _placeholders(schema: ConnectSchema, *, in_array: bool) -> list[str]:
    """Write the values that stand for an unavailable one, or in an array of one element for an unavailable array."""
    match schema.type:
        case SchemaType.STRING if not schema.is_declared:
            return [*map(literal, TEXTS), *([literal(UUID)] if in_array else [])]
        case SchemaType.BYTES if decimal_parameters(schema) is None:
            return [f"CAST({literal(PLACEHOLDER)} AS BINARY)"]
        case SchemaType.INT16 | SchemaType.INT32 if in_array:
            return [", ".join(map(str, BYTES))]
        case SchemaType.INT64 if in_array:
            return [", ".join(f"{code}L" for code in BYTES)]
        case _:
            return []
