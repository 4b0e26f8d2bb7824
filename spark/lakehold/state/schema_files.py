"""The files in `iceberg_schemas/`: columns, partitions and properties of the tables that lakehold creates itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema

SYSTEM_NAMESPACE = "mz_catalog"

_PROPERTIES = {
    "format-version": "2",
    # Each change is a compare-and-set: PyIceberg's own retry would skip the comparison.
    "commit.retry.num-retries": "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
}


@dataclass(frozen=True)
class TableSchema:
    """A file of `iceberg_schemas/`.

    `table` is the full name, `key` the columns that identify rows.
    """

    table: str
    key: tuple[str, ...]
    schema: Schema
    partition_spec: PartitionSpec
    properties: Mapping[str, str]


@cache
def system_tables() -> tuple[TableSchema, ...]:
    """Return the tables of `mz_catalog`, in order of name."""
    return tuple(read_table_schema(path) for path in sorted(schemas_directory().glob(f"{SYSTEM_NAMESPACE}.*.json")))


def read_table_schema(path: Path) -> TableSchema:
    """Read the table that the file `path` describes."""
    text = json.loads(path.read_text(encoding="utf-8"))
    fields = [PartitionField.model_validate(field) for field in text["partition-spec"]]
    return TableSchema(
        table=text["table"],
        key=tuple(text["key"]),
        schema=Schema.model_validate(text["schema"]),
        partition_spec=PartitionSpec(*fields),
        properties={**_PROPERTIES, "comment": text["doc"], **text["properties"]},
    )


def schemas_directory() -> Path:
    """Return the directory of the files: in the package when installed from a wheel, beside `spark/` in a checkout."""
    package = Path(__file__).parent.parent
    installed = package / "iceberg_schemas"
    return installed if installed.is_dir() else package.parent.parent / "iceberg_schemas"
