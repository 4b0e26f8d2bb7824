"""Column types that PyIceberg does not know, such as `variant`: other columns of a table that has one stay readable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.exceptions import ValidationError
from pyiceberg.types import IcebergType, PrimitiveType


class OtherType(PrimitiveType):
    """A type of Iceberg that PyIceberg does not know, by its name."""

    root: tuple[str]

    def __init__(self, name: str) -> None:
        super().__init__(root=(name,))

    def __str__(self) -> str:
        """Return the type's name."""
        return self.root[0]

    def __repr__(self) -> str:
        """Return the expression that makes the type."""
        return f"OtherType({self.root[0]!r})"

    def __getnewargs__(self) -> tuple[str]:
        """Return the arguments from which pickle makes the type."""
        return self.root


def with_other_types(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Convert table metadata as JSON so that PyIceberg can read its schemas.

    Unknown types become `OtherType`, without defaults.
    """
    found = {**metadata, "schemas": [_struct(schema) for schema in metadata.get("schemas") or ()]}
    return {**found, "schema": _struct(metadata["schema"])} if "schema" in metadata else found


def _struct(struct: Mapping[str, Any]) -> dict[str, Any]:
    return {**struct, "fields": [_field(field) for field in struct["fields"]]}


def _field(field: Mapping[str, Any]) -> dict[str, Any]:
    read = {**field, "type": _type(field["type"])}
    if isinstance(read["type"], OtherType):
        return {name: value for name, value in read.items() if name not in ("initial-default", "write-default")}
    return read


def _type(written: Any) -> Any:
    if isinstance(written, Mapping):
        if "fields" in written:
            return _struct(written)
        return {name: _type(value) if name in ("element", "key", "value") else value for name, value in written.items()}
    try:
        IcebergType.model_validate(written)
    except (ValueError, ValidationError):
        return OtherType(str(written))
    return written
