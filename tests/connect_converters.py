"""The output of Kafka Connect's converters: a schema and a payload as JSON, and the same as Avro."""

from __future__ import annotations

import base64
import io
import json
from itertools import count
from typing import Any

import fastavro

Json = Any

_AVRO = {"int8": "int", "int16": "int", "int32": "int", "int64": "long", "float32": "float", "float64": "double"}
_AVRO_LOGICAL = {"Date": "date", "Time": "time-millis", "Timestamp": "timestamp-millis"}
_CONNECT_DATA = "org.apache.kafka.connect.data."


def struct(name: str, fields: dict[str, Json], *, optional: bool = False) -> Json:
    """Return a Connect schema of type struct."""
    listed = [schema | {"field": field} for field, schema in fields.items()]
    return {"type": "struct", "name": name, "optional": optional, "fields": listed}


def envelope(row: Json, source: Json | None = None) -> Json:
    """Return the schema of Debezium's envelope around rows."""
    text, number = {"type": "string", "optional": True}, {"type": "int64", "optional": True}
    transaction = struct("event.block", {"id": {"type": "string"}, "total_order": {"type": "int64"}}, optional=True)
    fields = {
        "before": row | {"optional": True},
        "after": row | {"optional": True},
        "source": source or struct("Source", {"connector": text, "db": text, "table": text, "lsn": number}),
        "transaction": transaction,
        "op": {"type": "string"},
        "ts_ms": number,
    }
    return struct("Envelope", fields)


def json_record(schema: Json, payload: Json) -> bytes:
    """Encode a record as the JSON converter does."""
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()


def json_head(schema: Json) -> str:
    """Return the text that the JSON converter writes before the payload."""
    return f'{{"schema":{json.dumps(schema, separators=(",", ":"))},"payload":'


def avro_schema(schema: Json) -> Json:
    """Convert a schema as the Avro converters do; every record gets its own name."""
    return _avro(schema, count(1))


def avro_body(schema: Json, payload: Json) -> bytes:
    """Encode a payload of Connect's JSON as Avro, without the header. `schema` is the Avro schema."""
    plain = without_logical_types(schema)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain), avro_value(plain, payload))
    return out.getvalue()


def framed(schema_id: int, body: bytes) -> bytes:
    """Add the header of the Confluent wire format."""
    return b"\0" + schema_id.to_bytes(4, "big") + body


def avro_value(schema: Json, payload: Json) -> Json:  # noqa: PLR0911 - one for each kind of value
    """Convert a payload to fastavro's values: bytes from base64, pairs as records."""
    if payload is None:
        return None
    if isinstance(schema, list):
        branches = [b for b in schema if b != "null"]
        return avro_value(branches[0], payload) if len(branches) == 1 else payload
    kind = schema if isinstance(schema, str) else schema["type"]
    match kind:
        case "bytes" | "fixed":
            return base64.b64decode(payload)
        case "float" | "double":
            return float(payload)
        case "array":
            items = schema["items"]
            if isinstance(items, dict) and items.get("name", "").startswith("MapEntry"):
                payload = [{"key": k, "value": v} for k, v in payload]
            return [avro_value(items, item) for item in payload]
        case "map":
            return {k: avro_value(schema["values"], v) for k, v in payload.items()}
        case "record":
            return {f["name"]: avro_value(f["type"], payload.get(f["name"])) for f in schema["fields"]}
        case _ if isinstance(kind, (dict, list)):
            return avro_value(kind, payload)
        case _:
            return payload


def without_logical_types(schema: Json) -> Json:
    """Return a schema that reads the same bytes without conversions."""
    if isinstance(schema, list):
        return [without_logical_types(s) for s in schema]
    if isinstance(schema, dict):
        return {k: without_logical_types(v) for k, v in schema.items() if k not in ("logicalType", "default")}
    return schema


def _avro(schema: Json, numbers: count[int]) -> Json:
    bare = _avro_type(schema, numbers)
    return ["null", bare] if schema.get("optional") else bare


def _avro_type(schema: Json, numbers: count[int]) -> Json:
    annotations = {f"connect.{k}": schema[k] for k in ("name", "version", "parameters") if k in schema}
    kind = schema["type"]
    match kind:
        case "struct":
            fields = [{"name": f["field"], "type": _avro(f, numbers)} for f in schema["fields"]]
            return {"type": "record", "name": f"R{next(numbers)}", "fields": fields, **annotations}
        case "array":
            return {"type": "array", "items": _avro(schema["items"], numbers), **annotations}
        case "map" if schema["keys"]["type"] == "string":
            return {"type": "map", "values": _avro(schema["values"], numbers), **annotations}
        case "map":
            pair = [{"name": n, "type": _avro(schema[f"{n}s"], numbers)} for n in ("key", "value")]
            entry = {"type": "record", "name": f"MapEntry{next(numbers)}", "fields": pair}
            return {"type": "array", "items": entry, **annotations}
        case "int8" | "int16":
            annotations["connect.type"] = kind
    return {"type": _AVRO.get(kind, kind), **annotations, **_logical_type(schema)}


def _logical_type(schema: Json) -> Json:
    name = str(schema.get("name", ""))
    if name == f"{_CONNECT_DATA}Decimal":
        parameters = schema["parameters"]
        precision = int(parameters.get("connect.decimal.precision", 64))
        return {"logicalType": "decimal", "precision": precision, "scale": int(parameters["scale"])}
    logical = _AVRO_LOGICAL.get(name.removeprefix(_CONNECT_DATA)) if name.startswith(_CONNECT_DATA) else None
    return {"logicalType": logical} if logical else {}
