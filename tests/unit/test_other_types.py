"""Schemas with types that PyIceberg does not know."""

from __future__ import annotations

import pickle
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, StructType

from lakehold.iceberg.other_types import OtherType, with_other_types
from lakehold.subscribe.project import readable_columns


def field(id_: int, type_: Any, **more: Any) -> dict[str, Any]:
    return {"id": id_, "name": f"c{id_}", "required": False, "type": type_, **more}


def test_only_unknown_types_are_replaced_wherever_they_occur() -> None:
    nested = {"type": "struct", "fields": [field(3, "int"), field(4, "variant")]}
    listed = {"type": "list", "element-id": 6, "element": "ghost", "element-required": False}
    mapped = {"type": "map", "key-id": 8, "key": "string", "value-id": 9, "value": nested, "value-required": False}
    fields = [
        field(1, "variant", **{"initial-default": "x"}),
        field(2, nested),
        field(5, listed),
        field(7, mapped),
        field(10, "decimal(9, 2)"),
        field(11, "geometry(srid:4326)"),
        field(12, "int", **{"initial-default": 5}),
    ]
    written = {"type": "struct", "schema-id": 3, "fields": fields}
    found = with_other_types({"schemas": [written], "location": "x"})
    assert (found["location"], written["fields"]) == ("x", fields)
    schema = Schema.model_validate(found["schemas"][0])
    types = {f.field_id: f.field_type for f in schema.fields}
    assert (types[1], str(types[1]), types[1]) == (
        OtherType("variant"),
        "variant",
        pickle.loads(pickle.dumps(types[1])),
    )
    assert isinstance(types[2], StructType)
    assert [f.field_type for f in types[2].fields] == [IntegerType(), OtherType("variant")]
    assert isinstance(types[5], ListType)
    assert types[5].element_type == OtherType("ghost")
    readable = readable_columns(schema)
    assert [f.name for f in readable.fields] == ["c10", "c12"]
    assert (readable.schema_id, readable.fields[1].initial_default) == (3, 5)
