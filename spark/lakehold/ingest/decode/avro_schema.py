"""Avro schemas: their meaning as Connect schemas, and *bare* schemas that read the same bytes.

`message_parts.py` reads with this module each schema of the registry that a topic's messages use. The Connect schema says which
columns come of it (`connect_schema.py`). Spark's `from_avro` gets the bare schema: no names from users, no defaults, no logical
types but decimals. So names that Avro's own parser would refuse and logical types that Spark reads in its own way cannot matter.
A bare schema keeps every union, also one of a single branch: the number of the branch precedes each value.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lakehold.ingest.decode import decimals
from lakehold.ingest.decode.connect_schema import (
    AVRO,
    DEEPEST,
    NULL,
    TOO_DEEP,
    UNION,
    ConnectSchema,
    Field,
    SchemaType,
    UnsupportedSchema,
    parsed_json,
    with_text_bytes,
)
from lakehold.ingest.decode.logical import decimal_parameters, logical_type

DECIMAL = "org.apache.kafka.connect.data.Decimal"

_PRIMITIVES = {
    "boolean": SchemaType.BOOLEAN,
    "int": SchemaType.INT32,
    "long": SchemaType.INT64,
    "float": SchemaType.FLOAT32,
    "double": SchemaType.FLOAT64,
    "string": SchemaType.STRING,
    "bytes": SchemaType.BYTES,
}

_PAIR = 2
_WIDENED = ({"int", "long"}, {"float", "double"})
"""Pairs of types whose unions Spark reads as the wider type, and not as a structure with a field for each."""


@dataclass(frozen=True)
class AvroSchema:
    """An Avro schema: its meaning, the bare Avro schema (a JSON value) of the same bytes, and the full name of its type."""

    schema: ConnectSchema
    bare: Any
    type_name: str = ""


_NULL = AvroSchema(ConnectSchema(SchemaType.STRUCT, optional=True, name=NULL), "null")


def from_avro_json(text: str) -> AvroSchema:
    """Read a schema as the registry holds it.

    Raises:
        UnsupportedSchema: It is no Avro schema, holds itself, is nested too deeply, or refers to a type that it does not define.
    """
    try:
        return _Reader().read(parsed_json(text), "")
    except (AttributeError, KeyError, TypeError) as e:
        raise UnsupportedSchema(f"It is no schema of Avro ({e}).") from e


Fields = Mapping[str, "Fields | None"]
"""Names of the wanted fields of a record, each with its own wanted fields; None: all."""


def pruned(bare: Any, fields: Fields | None) -> Any:
    """Return a bare schema less the fields that are not wanted; `from_avro` takes it beside the one that wrote the values.

    A record that has no wanted field keeps all of them, as Avro has no record without fields.
    """
    if isinstance(bare, list):
        return [pruned(branch, fields) for branch in bare]
    if fields is None or not isinstance(bare, dict) or bare["type"] != "record":
        return bare
    kept = [f | {"type": pruned(f["type"], fields[f["name"]])} for f in bare["fields"] if f["name"] in fields]
    return bare | {"fields": kept or bare["fields"]}


class _Reader:
    """A reader of one schema; it knows the named types met so far, and gives the bare ones fresh names."""

    def __init__(self) -> None:
        self._named: dict[str, dict[str, Any]] = {}
        self._open: list[str] = []
        self._count = 0
        self._depth = 0

    def read(self, node: Any, namespace: str) -> AvroSchema:
        """Read a schema, given as the parsed JSON `node`, whose names without a dot are looked up in `namespace`."""
        if self._depth > DEEPEST:
            raise UnsupportedSchema(TOO_DEEP)
        self._depth += 1
        read = self._read(node, namespace)
        self._depth -= 1
        return read

    def _read(self, node: Any, namespace: str) -> AvroSchema:  # noqa: PLR0911 - one for each form of a schema
        if isinstance(node, list):
            return self._union(node, namespace)
        if node == "null":
            return _NULL
        if isinstance(node, str):
            return self._primitive(node, {}) if node in _PRIMITIVES else self._reference(node, namespace)
        kind = node["type"]
        if not isinstance(kind, str):
            return self.read(kind, namespace)
        if kind == "null":
            return _NULL
        if kind in _PRIMITIVES:
            return self._primitive(kind, node)
        match kind:
            case "record" | "error":
                return self._record(node, namespace)
            case "enum" | "fixed":
                return self._leaf(node, namespace)
            case "array":
                items = self.read(node["items"], namespace)
                schema = ConnectSchema(SchemaType.ARRAY, items=items.schema)
                return AvroSchema(_annotated(schema, node), {"type": "array", "items": items.bare}, kind)
            case "map":
                values = self.read(node["values"], namespace)
                schema = ConnectSchema(SchemaType.MAP, keys=ConnectSchema(SchemaType.STRING), values=values.schema)
                return AvroSchema(_annotated(schema, node), {"type": "map", "values": values.bare}, kind)
            case _:
                return self._reference(kind, namespace)

    def _primitive(self, kind: str, node: dict[str, Any]) -> AvroSchema:
        named = node.get("connect.type")
        schema_type = SchemaType(named) if named in ("int8", "int16") else _PRIMITIVES[kind]
        schema = _annotated(ConnectSchema(schema_type), node)
        return AvroSchema(schema, _with_decimal(schema, {"type": kind}) if kind == "bytes" else kind, kind)

    def _leaf(self, node: dict[str, Any], namespace: str) -> AvroSchema:
        """Read an enum or a fixed, the named types without others inside."""
        name = _full_name(node, namespace)
        self._named[name] = node | {"namespace": _namespace(node, namespace)}
        bare: dict[str, Any] = {"type": node["type"], "name": self._fresh_name()}
        if node["type"] == "enum":
            schema = _annotated(ConnectSchema(SchemaType.STRING), node)
            return AvroSchema(schema, bare | {"symbols": node.get("symbols")}, name)
        schema = _annotated(ConnectSchema(SchemaType.BYTES), node)
        return AvroSchema(schema, _with_decimal(schema, bare | {"size": node.get("size")}), name)

    def _record(self, node: dict[str, Any], namespace: str) -> AvroSchema:
        name, inner = _full_name(node, namespace), _namespace(node, namespace)
        self._named[name] = node | {"namespace": inner}
        self._open.append(name)
        bare_name = self._fresh_name()
        read = [(str(f["name"]), self.read(f["type"], inner)) for f in node["fields"]]
        self._open.pop()
        schema = ConnectSchema(SchemaType.STRUCT, fields=tuple(Field(n, s.schema) for n, s in read))
        bare_fields = [{"name": n, "type": s.bare} for n, s in read]
        return AvroSchema(_annotated(schema, node), {"type": "record", "name": bare_name, "fields": bare_fields}, name)

    def _reference(self, name: str, namespace: str) -> AvroSchema:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        full = full if full in self._named else name
        if full in self._open:
            raise UnsupportedSchema(f'The record "{full}" holds itself, which no table can.')
        if full not in self._named:
            raise UnsupportedSchema(f'The schema refers to "{full}", which it does not define.')
        return self.read(self._named[full], "")

    def _union(self, branches: list[Any], namespace: str) -> AvroSchema:
        read = [self.read(branch, namespace) for branch in branches]
        members = [m for m in read if m is not _NULL]
        bare = [m.bare for m in read]
        optional = len(members) < len(read)
        if not members:
            return AvroSchema(_NULL.schema, bare)
        if len(members) == 1:
            return AvroSchema(replace(members[0].schema, optional=optional), bare)
        if len(members) == _PAIR and {m.bare for m in members if isinstance(m.bare, str)} in _WIDENED:
            if all(logical_type(m.schema) is None for m in members):
                wider = next(m.schema for m in members if m.bare in ("long", "double"))
                return AvroSchema(replace(wider, optional=optional), bare)
            # A date and a timestamp are not two widths of one number: a branch that no value has keeps Spark from merging them.
            bare.append({"type": "enum", "name": self._fresh_name(), "symbols": []})
        names = _branch_names([m.type_name for m in members])
        fields = tuple(
            Field(name, replace(m.schema, optional=True), f"member{i}")
            for i, (name, m) in enumerate(zip(names, members, strict=True))
        )
        return AvroSchema(ConnectSchema(SchemaType.STRUCT, optional=optional, name=UNION, fields=fields), bare)

    def _fresh_name(self) -> str:
        self._count += 1
        return f"n{self._count}"


def _branch_names(types: list[str]) -> list[str]:
    """Name the branches of a union by their types; types of one name are distinguished by their namespaces.

    A branch keeps its name wherever later versions of the schema put it. Spark names it by its place.
    """
    simple = [name.rpartition(".")[2] for name in types]
    count = Counter(map(str.lower, simple))
    return [s if count[s.lower()] == 1 else name.replace(".", "_") for s, name in zip(simple, types, strict=True)]


def _is_ignored(node: dict[str, Any]) -> bool:
    """Return whether Avro ignores the logical type: an invalid decimal, or one for which a fixed type is too short."""
    if node.get("logicalType") != "decimal":
        return False
    precision, scale, size = node.get("precision", 0), node.get("scale", 0), node.get("size")
    if not (isinstance(precision, int) and isinstance(scale, int) and isinstance(size, int | None)):
        return True
    return not 0 <= scale <= (precision or scale) or (size is not None and precision > math.log10(2) * (8 * size - 1))


def _annotated(schema: ConnectSchema, node: dict[str, Any]) -> ConnectSchema:
    """Return the schema with the name and the parameters that Connect's converter or Avro itself wrote."""
    logical = None if _is_ignored(node) else node.get("logicalType")
    name = node.get("connect.name") or (f"{AVRO}{logical}" if isinstance(logical, str) else None)
    written = node.get("connect.parameters")
    parameters = {str(k): str(v) for k, v in written.items()} if isinstance(written, dict) else {}
    if name == f"{AVRO}decimal":
        parameters = {"scale": str(node.get("scale", 0)), "connect.decimal.precision": str(node.get("precision", 0))}
    elif name == DECIMAL:
        parameters.setdefault("scale", str(node.get("scale", 0)))
    return with_text_bytes(replace(schema, name=name, parameters=parameters))


def _with_decimal(schema: ConnectSchema, bare: dict[str, Any]) -> Any:
    """Return the bare type, as a decimal if Spark can read it as one; a plain name if nothing else is left."""
    fitting = decimal_parameters(schema)
    if fitting is not None:
        precision, scale = fitting
        if not isinstance(size := bare.get("size"), int) or size > decimals.LONG_BYTES:
            precision = max(precision, decimals.WHOLE_PRECISION)
        return bare | {"logicalType": "decimal", "precision": precision, "scale": scale}
    return bare["type"] if bare.keys() == {"type"} else bare


def _full_name(node: dict[str, Any], namespace: str) -> str:
    name, inner = str(node.get("name", "")), _namespace(node, namespace)
    return name if "." in name or not inner else f"{inner}.{name}"


def _namespace(node: dict[str, Any], namespace: str) -> str:
    name = str(node.get("name", ""))
    return name.rpartition(".")[0] if "." in name else str(node.get("namespace", namespace))
