"""The part of a schema that a table can hold.

Iceberg and Parquet have no type without values: neither Avro's null nor a structure without fields. A map with keys that are not
texts is read if its keys and values are single values. Other parts are removed from the schema before a parser is made for it
(`message_parts.py`), and listed in it, so that people can be shown what their table lacks.
"""

from __future__ import annotations

from dataclasses import replace

from lakehold.ingest.decode.connect_schema import NULL, ConnectSchema, LeftOut, SchemaType, UnsupportedSchema
from lakehold.ingest.decode.logical import logical_type
from lakehold.ingest.decode.requested_types import PLAIN_TYPES, has_text_keys

_NO_FIELDS = "a table can hold no structure without fields"
_NO_VALUES = "Avro's type null has no values"
_MAP = "a map with such keys is read only where keys and values are single values"


def storable(schema: ConnectSchema) -> ConnectSchema:
    """Return the schema without the parts that no table can hold; `left_out` of each structure names them.

    Raises:
        UnsupportedSchema: Nothing of it is left.
    """
    found = _storable(schema)
    if isinstance(found, LeftOut):
        raise UnsupportedSchema(f"Nothing of it is left for a table: {found.why}.")
    return found


def is_null(schema: ConnectSchema) -> bool:
    """Return whether all values of a schema are null."""
    return schema.name == NULL


def _storable(schema: ConnectSchema) -> ConnectSchema | LeftOut:
    if logical_type(schema) is not None:
        return schema
    if schema.type is SchemaType.ARRAY and schema.items is not None:
        items = _storable(schema.items)
        return items if isinstance(items, LeftOut) else replace(schema, items=items)
    if schema.type is SchemaType.MAP and schema.keys is not None and schema.values is not None:
        if not has_text_keys(schema) and not (_is_single(schema.keys) and _is_single(schema.values)):
            return LeftOut("", _MAP)
        values = _storable(schema.values)
        return values if isinstance(values, LeftOut) else replace(schema, values=values)
    return _storable_structure(schema) if schema.type is SchemaType.STRUCT else schema


def _storable_structure(schema: ConnectSchema) -> ConnectSchema | LeftOut:
    fields, left_out = [], []
    for field in schema.fields:
        found = _storable(field.schema)
        if isinstance(found, LeftOut):
            left_out.append(found.inside(field.name))
            continue
        fields.append(replace(field, schema=found))
        left_out += [part.inside(field.name) for part in _inside(found)]
    if not fields:
        return LeftOut("", _NO_VALUES if is_null(schema) else _NO_FIELDS)
    return replace(schema, fields=tuple(fields), left_out=tuple(left_out))


def _inside(schema: ConnectSchema) -> tuple[LeftOut, ...]:
    """Return the parts that are left out of a field's structure, or of the structures in its array or map."""
    found = schema.left_out
    for child in (schema.items, schema.values):
        found += () if child is None else _inside(child)
    return found


def _is_single(schema: ConnectSchema) -> bool:
    return schema.type in PLAIN_TYPES
