"""The lake's catalog as clients list it: schemas, tables and their columns and keys. Only the columns of views need Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from lakehold.errors import DefinitionError, LakeholdError
from lakehold.lake import Lake
from lakehold.serve.readable_tables import ReadableTables
from lakehold.serve.sql_info import SQL_INFO_SCHEMA, sql_info
from lakehold.spark_sql import quoted_table
from lakehold.subscribe.project import arrow_schema, readable_columns
from lakehold.subscribe.row_values import of_arrow_types
from lakehold.subscribe.spark_types import arrow_schema_of
from lakehold.tables.stored_key import stored_key

_SYSTEM_SCHEMA = "mz_catalog"
_TABLE, _SYSTEM_TABLE, _VIEW = "TABLE", "SYSTEM TABLE", "VIEW"
_TABLE_TYPES = (_SYSTEM_TABLE, _TABLE, _VIEW)


def _schema(**columns: str) -> pa.Schema:
    """Declare columns by type; `!` marks one that is never null."""
    kinds = {"binary": pa.binary(), "int32": pa.int32(), "uint8": pa.uint8(), "utf8": pa.utf8(), "bool": pa.bool_()}
    kinds["list"] = pa.list_(pa.field("item", pa.utf8(), nullable=False))
    return pa.schema(
        [pa.field(name, kinds[kind.rstrip("!")], nullable=kind[-1] != "!") for name, kind in columns.items()]
    )


_CATALOGS = _schema(catalog_name="utf8!")
_SCHEMAS = _schema(catalog_name="utf8", db_schema_name="utf8!")
_TABLES = _schema(catalog_name="utf8", db_schema_name="utf8", table_name="utf8!", table_type="utf8!")
_TABLES_WITH_COLUMNS = _TABLES.append(pa.field("table_schema", pa.binary(), nullable=False))
_TYPES = _schema(table_type="utf8!")
_PRIMARY_KEYS = _schema(
    catalog_name="utf8",
    db_schema_name="utf8",
    table_name="utf8!",
    column_name="utf8!",
    key_name="utf8",
    key_sequence="int32!",
)
_FOREIGN_KEYS = _schema(
    pk_catalog_name="utf8",
    pk_db_schema_name="utf8",
    pk_table_name="utf8!",
    pk_column_name="utf8!",
    fk_catalog_name="utf8",
    fk_db_schema_name="utf8",
    fk_table_name="utf8!",
    fk_column_name="utf8!",
    key_sequence="int32!",
    fk_key_name="utf8",
    pk_key_name="utf8",
    update_rule="uint8!",
    delete_rule="uint8!",
)
_TYPE_INFO = _schema(
    type_name="utf8!",
    data_type="int32!",
    column_size="int32",
    literal_prefix="utf8",
    literal_suffix="utf8",
    create_params="list",
    nullable="int32!",
    case_sensitive="bool!",
    searchable="int32!",
    unsigned_attribute="bool",
    fixed_prec_scale="bool!",
    auto_increment="bool",
    local_type_name="utf8",
    minimum_scale="int32",
    maximum_scale="int32",
    sql_data_type="int32!",
    datetime_subcode="int32",
    num_prec_radix="int32",
    interval_precision="int32",
)

_SCHEMA_OF: Mapping[str, pa.Schema] = {
    "CommandGetSqlInfo": SQL_INFO_SCHEMA,
    "CommandGetCatalogs": _CATALOGS,
    "CommandGetDbSchemas": _SCHEMAS,
    "CommandGetTables": _TABLES,
    "CommandGetTableTypes": _TYPES,
    "CommandGetPrimaryKeys": _PRIMARY_KEYS,
    "CommandGetExportedKeys": _FOREIGN_KEYS,
    "CommandGetImportedKeys": _FOREIGN_KEYS,
    "CommandGetCrossReference": _FOREIGN_KEYS,
    "CommandGetXdbcTypeInfo": _TYPE_INFO,
}


def listing_schema(name: str, command: Any) -> pa.Schema | None:
    """Return the columns of the answer to a command; None if the command lists nothing."""
    if name == "CommandGetTables" and command.include_schema:
        return _TABLES_WITH_COLUMNS
    return _SCHEMA_OF.get(name)


def listing(lake: Lake, name: str, command: Any, readable: ReadableTables | None) -> pa.Table:
    """Answer a command that lists; Iceberg has no foreign keys, and clients make no tables that would need types.

    Args:
        lake: The lake.
        name: Name of the command.
        command: The command.
        readable: The tables to list; None: all.
    """
    catalog = lake.settings.catalog_name
    if name == "CommandGetSqlInfo":
        return sql_info(command.info)
    rows: list[dict[str, Any]] = []
    wanted = command.catalog if name != "CommandGetCatalogs" and _is_given(command, "catalog") else catalog
    if name == "CommandGetTableTypes":
        rows = [{"table_type": kind} for kind in _TABLE_TYPES]
    elif wanted == catalog:
        rows = [{"catalog_name": catalog, **row} for row in _in_the_lake(lake, name, command, readable)]
    return pa.Table.from_pylist(rows, listing_schema(name, command))


def _in_the_lake(lake: Lake, name: str, command: Any, readable: ReadableTables | None) -> Iterator[dict[str, Any]]:
    match name:
        case "CommandGetCatalogs":
            yield {}
        case "CommandGetDbSchemas":
            yield from ({"db_schema_name": schema} for schema in _schemas(lake, command, readable))
        case "CommandGetTables":
            yield from _tables(lake, command, readable)
        case "CommandGetPrimaryKeys":
            full_name = f"{command.db_schema}.{command.table}"
            if readable is None or readable.has(full_name):
                yield from _primary_key(lake, command.db_schema, command.table)


def _schemas(lake: Lake, command: Any, readable: ReadableTables | None) -> list[str]:
    found = (schema for schema in lake.tables.namespaces() if readable is None or readable.has_schema(schema))
    return [schema for schema in found if _matches(command, "db_schema_filter_pattern", schema)]


def _tables(lake: Lake, command: Any, readable: ReadableTables | None) -> Iterator[dict[str, Any]]:
    for schema in _schemas(lake, command, readable):
        kind_of = dict.fromkeys(lake.tables.names_in(schema), _SYSTEM_TABLE if schema == _SYSTEM_SCHEMA else _TABLE)
        kind_of.update(dict.fromkeys(lake.tables.views_in(schema), _VIEW))
        for table, kind in sorted(kind_of.items()):
            if command.table_types and kind not in command.table_types:
                continue
            if readable is not None and not readable.has(f"{schema}.{table}"):
                continue
            if not _matches(command, "table_name_filter_pattern", table):
                continue
            row: dict[str, Any] = {"db_schema_name": schema, "table_name": table, "table_type": kind}
            if command.include_schema:
                columns = (_view_columns if kind == _VIEW else _columns)(lake, f"{schema}.{table}")
                if columns is None:  # dropped since it was listed
                    continue
                row["table_schema"] = columns
            yield row


def _columns(lake: Lake, full_name: str) -> bytes | None:
    """Return the columns of a table, none if it cannot be read; None if it does not exist."""
    try:
        state = lake.tables.table_state(full_name)
    except DefinitionError:
        return bytes(pa.schema([]).serialize().to_pybytes())
    if state is None:
        return None
    return bytes(arrow_schema(readable_columns(state.schema)).serialize().to_pybytes())


def _view_columns(lake: Lake, full_name: str) -> bytes | None:
    """Return the columns of a view, none if it cannot be read."""
    try:
        with lake.open_query(f"SELECT * FROM {quoted_table(lake.settings.catalog_name, full_name)}") as frame:
            types = arrow_schema_of(of_arrow_types(frame).schema).types
            columns = pa.schema(list(zip(frame.columns, types, strict=True)))
    except LakeholdError:
        columns = pa.schema([])
    return bytes(columns.serialize().to_pybytes())


def _primary_key(lake: Lake, schema: str, table: str) -> Iterator[dict[str, Any]]:
    state = lake.tables.table_state(f"{schema}.{table}") if schema and table else None
    for place, column in enumerate(stored_key(state) if state is not None else (), 1):
        row = {"db_schema_name": schema, "table_name": table, "column_name": column.name}
        yield {**row, "key_name": None, "key_sequence": place}


def _is_given(command: Any, field: str) -> bool:
    return field in command.DESCRIPTOR.fields_by_name and bool(command.HasField(field))


def _matches(command: Any, field: str, name: str) -> bool:
    """Return whether a name is like the pattern in a field, if the field is given: `%` is any text, `_` any character."""
    if not command.HasField(field):
        return True
    escaped = re.sub(
        r"\\?(.)", lambda part: {"%": ".*", "_": "."}.get(part[0], re.escape(part[1])), getattr(command, field)
    )
    return re.fullmatch(escaped, name, re.DOTALL) is not None
