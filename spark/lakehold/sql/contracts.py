"""Contracts in files: `<namespace.table>.json` names the columns of a fed table whose statement names none.

A fed table is one that a source fills (CREATE TABLE … FROM SOURCE).

A file has `table`, `doc`, `key` and `schema`, which is Iceberg's JSON (specification, "Appendix C: JSON serialization"). The
files of the system tables have this form, too, with further fields that lakehold decides for a fed table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pyiceberg.exceptions import ValidationError as IcebergValidationError
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from lakehold.definitions import DeclaredColumn, Table
from lakehold.errors import DefinitionError, bad_byte
from lakehold.file_names import file_name_of
from lakehold.sql.text.column_types import struct_field
from lakehold.state.schema_files import SYSTEM_NAMESPACE
from lakehold.tables.column_names import name_fault
from lakehold.tables.column_types import ColumnType, spark_text

_LEAVES = (
    BooleanType,
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
    DateType,
    TimestampType,
    TimestamptzType,
    StringType,
    BinaryType,
)
"""Iceberg's types that a declared column may have. Messages carry a `uuid` or `time` as text and a `fixed` as binary, so no
column gets one of these types."""


class _ContractFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    table: str
    doc: str = ""
    key: tuple[str, ...] = ()
    iceberg_schema: Schema = Field(alias="schema")


class _InvalidContract(Exception):
    """A reason why a file cannot be the contract of its table, in sentences."""


def with_contract(table: Table, directory: Path | None) -> Table:
    """Add the columns and the key of the contract of `table` in `directory`, as if the statement had named them.

    The statement's own column list and KEY take precedence. Without a file the table stays as it is. System tables have
    no contract.

    Raises:
        DefinitionError: The file cannot be read, or a fed table cannot have its columns.
    """
    if directory is None or table.columns or table.namespace == SYSTEM_NAMESPACE:
        return table
    path = _path(directory, table.full_name)
    try:
        file = _read(path)
        return table if file is None else _with_columns(table, file)
    except _InvalidContract as invalid:
        raise DefinitionError(
            f'the contract of table "{table.full_name}" cannot be used',
            code="contract-invalid",
            detail=f'The file is "{path}". {invalid}',
            hint="Correct the file, or remove it: a column list in the statement takes its place.",
        ) from invalid


def column_docs(full_name: str, directory: Path | None) -> dict[str, str]:
    """Read the description of each column from the contract of a table in `directory`; none without a usable contract."""
    try:
        file = _read(_path(directory, full_name)) if directory is not None else None
    except _InvalidContract:
        return {}
    return {field.name: field.doc for field in file.iceberg_schema.fields if field.doc} if file is not None else {}


def declared_type(of: IcebergType, path: str) -> str:
    """Write the type of a declared column as in a column list; `path` names the column in the error.

    Raises:
        _InvalidContract: A declared column cannot have this type, or a part of it is required.
    """
    match of:
        case DecimalType():
            if of.scale > of.precision:
                raise _InvalidContract(f'Column "{path}" has type {of}: a scale is at most the precision.')
            return f"decimal({of.precision},{of.scale})"
        case ListType():
            _refuse_required(of.element_field, f"{path}.element")
            return f"array<{declared_type(of.element_type, f'{path}.element')}>"
        case MapType():
            _refuse_required(of.value_field, f"{path}.value")
            key, value = declared_type(of.key_type, f"{path}.key"), declared_type(of.value_type, f"{path}.value")
            return f"map<{key},{value}>"
        case StructType() if of.fields:
            return f"struct<{','.join(_field(f, f'{path}.{f.name}') for f in of.fields)}>"
        case _ if isinstance(of, _LEAVES):
            return spark_text(of)
        case _:
            raise _InvalidContract(
                f'Column "{path}" has type {of}, which a fed table cannot have. Expected is boolean, int, long, float, '
                "double, decimal, string (also for uuid and time), binary (also for fixed), date, timestamp, "
                "timestamptz, list, map or a struct of fields."
            )


def _path(directory: Path, full_name: str) -> Path:
    return directory / f"{file_name_of(full_name)}.json"


def _read(path: Path) -> _ContractFile | None:
    try:
        return _ContractFile.model_validate_json(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise _InvalidContract(_first_reason(error)) from error
    except KeyError as error:  # PyIceberg does not check that lists, maps and structs have all their parts.
        raise _InvalidContract(f"A nested type in it lacks {error}.") from error
    except UnicodeDecodeError as error:
        raise _InvalidContract(f"It is not UTF-8. {bad_byte(error)}") from error
    except (OSError, ValueError, IcebergValidationError) as error:
        raise _InvalidContract(f"{error}.") from error


def _first_reason(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    reason = first["msg"].removeprefix("Value error, ")
    found = f", found {first['input']!r}" if isinstance(first["input"], str | int | float) else ""
    return f'At "{place}": {reason}{found}.' if place else f"{reason}."


def _with_columns(table: Table, file: _ContractFile) -> Table:
    if file.table != table.full_name:
        raise _InvalidContract(f'It is the contract of table "{file.table}".')
    fields = file.iceberg_schema.fields
    if not fields:
        raise _InvalidContract("It names no columns.")
    _refuse_repeated(field.name for field in fields)
    fault = name_fault([ColumnType(field.name, field.field_type) for field in fields], "the table")
    if fault is not None:
        raise _InvalidContract(f"{fault.message[0].upper()}{fault.message[1:]}. {fault.detail}")
    key = _key(table.key or _key_of(file), fields)
    for field in fields:
        # Iceberg requires the columns of a key to be `required`. For other columns `required` would be a promise.
        if field.name not in key:
            _refuse_required(field, field.name)
    columns = tuple(DeclaredColumn(field.name, declared_type(field.field_type, field.name)) for field in fields)
    return replace(table, columns=columns, key=key if table.envelope.has_keys else ())


def _key_of(file: _ContractFile) -> tuple[str, ...]:
    names = {field.field_id: field.name for field in file.iceberg_schema.fields}
    identifiers = tuple(names.get(i, f"field {i}") for i in file.iceberg_schema.identifier_field_ids)
    if file.key and identifiers and set(file.key) != set(identifiers):
        raise _InvalidContract(
            f"Its key is {', '.join(file.key)}, its identifier-field-ids are those of {', '.join(identifiers)}."
        )
    return file.key or identifiers


def _key(names: tuple[str, ...], fields: Iterable[NestedField]) -> tuple[str, ...]:
    """Return the columns of the key as the file spells them, after checking that it has them."""
    spelt = {field.name.lower(): field.name for field in fields}
    for name in names:
        if name.lower() not in spelt:
            raise _InvalidContract(f'Key column "{name}" is not one of its columns: {", ".join(spelt.values())}.')
    _refuse_repeated(names)
    return tuple(spelt[name.lower()] for name in names)


def _field(field: NestedField, path: str) -> str:
    _refuse_required(field, path)
    return struct_field(field.name, declared_type(field.field_type, path))


def _refuse_required(field: NestedField, path: str) -> None:
    if field.required:
        raise _InvalidContract(f'Column "{path}" is required, but a fed table has null where a message lacks a value.')


def _refuse_repeated(names: Iterable[str]) -> None:
    """Refuse names that differ only in case: Spark matches names in any case."""
    repeated = [name for name, count in Counter(name.lower() for name in names).items() if count > 1]
    if repeated:
        raise _InvalidContract(f'Column "{repeated[0]}" is given twice.')
