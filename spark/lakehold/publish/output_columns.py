"""Columns of a subscription's output table: created from the columns of its output, and extended as these grow."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ValidationError
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform, TruncateTransform

from lakehold.errors import DefinitionError
from lakehold.iceberg.attempts import changing
from lakehold.iceberg.namespaces import create_namespace

TIME_COLUMN = "mz_timestamp"

DAY_MS = 24 * 60 * 60 * 1000
"""Partitions are days of `mz_timestamp` (UTC), made by truncation: Iceberg has no transform from a long to a day."""

_PROPERTIES = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    "write.parquet.compression-codec": "zstd",
}
"""Format 2, because every engine reads it: rows are only appended, and removed as whole files."""


class ColumnsUnfit(Exception):
    """Columns that a table cannot have; the text is a sentence without its full stop."""


def check_has(full_name: str, stored: Collection[str], needed: Iterable[str]) -> None:
    """Check that an output table, which was created with the columns `needed`, still has them.

    Raises:
        DefinitionError: Another program renamed or dropped one: added again, it would be null in all rows.
    """
    known = {name.lower() for name in stored}
    if lost := [name for name in needed if name.lower() not in known]:
        raise DefinitionError(
            f'table "{full_name}" no longer has the column {lost[0]}',
            code="output-column-lost",
            detail="Another program renamed or dropped it. Added again, it would be null in the rows that exist.",
            hint="Rename it back with the program that renamed it: lakehold refuses to alter this table. Or drop what publishes "
            "to it, and create it again. DROP SUBSCRIPTION without CASCADE leaves you the table; then publish INTO another one.",
        )


@contextmanager
def unfit_refused(full_name: str) -> Iterator[None]:
    """Turn `ColumnsUnfit` of the output table `full_name` into the error that users see."""
    try:
        yield
    except ColumnsUnfit as error:
        raise DefinitionError(
            f'table "{full_name}" cannot take the output of its subscription',
            code="output-columns",
            detail=f"{error}.",
            hint="Name or CAST columns: SUBSCRIBE (SELECT …). A table's columns keep their types.",
        ) from error


def create_table(catalog: Catalog, full_name: str, columns: pa.Schema, properties: Mapping[str, str]) -> Table:
    """Create a table with `columns`, partitioned by day of its first column and sorted by it.

    Raises:
        ColumnsUnfit: A type has no counterpart in Iceberg, or two columns have one name.
    """
    _check_names(columns)
    with changing(full_name):
        create_namespace(catalog, full_name.rpartition(".")[0])
        try:
            creating = catalog.create_table_transaction(
                full_name, schema=_nullable(columns), properties={**_PROPERTIES, **properties}
            )
        except (TypeError, ValueError, UnsupportedPyArrowTypeException) as error:
            raise ColumnsUnfit(_first_line(error)) from error
        with creating:
            with creating.update_spec() as spec:
                spec.add_field(TIME_COLUMN, TruncateTransform(DAY_MS), f"{TIME_COLUMN}_day")
            with creating.update_sort_order() as order:
                order.asc(TIME_COLUMN, IdentityTransform())
        return catalog.load_table(full_name)


def evolve_table(table: Table, columns: pa.Schema) -> Table:
    """Append missing `columns` to the table, and widen types where the output has wider ones.

    Raises:
        ColumnsUnfit: A column cannot change to its new type.
    """
    _check_names(columns)
    before = table.schema()
    columns = as_stored(columns, before)
    with changing(".".join(table.name())):
        try:
            with table.update_schema() as update:
                update.union_by_name(_nullable(columns))
        except (TypeError, ValueError, ValidationError, UnsupportedPyArrowTypeException) as error:
            raise ColumnsUnfit(_first_line(error)) from error
        return table if table.schema() == before else table.refresh()


def as_stored(columns: pa.Schema, schema: Schema) -> pa.Schema:
    """Name `columns` as a table spells them: Spark finds a column whatever its case, so a table has no second one.

    Raises:
        ColumnsUnfit: A field inside a column is spelt otherwise.
    """
    names = stored_names(columns.names, (field.name for field in schema.fields))
    found = pa.schema([field.with_name(name) for field, name in zip(columns, names, strict=True)])
    stored = {path.lower(): path for path in _paths(schema.as_arrow())}
    if other := [path for path in _paths(found) if stored.get(path.lower(), path) != path]:
        raise ColumnsUnfit(f"{other[0]} is {stored[other[0].lower()]} in the table")
    return found


def stored_names(names: Iterable[str], of_table: Iterable[str]) -> list[str]:
    """Return names of columns as a table with the columns `of_table` spells them."""
    stored = {name.lower(): name for name in of_table}
    return [stored.get(name.lower(), name) for name in names]


def _paths(fields: Iterable[pa.Field]) -> Iterator[str]:
    """Yield the names of columns and of the fields inside them, with what they are in."""
    for field in fields:
        yield field.name
        yield from (f"{field.name}.{path}" for path in _paths(_inside(field.type)))


def _inside(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(kind):
        return [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
    if pa.types.is_struct(kind):
        return [kind.field(place) for place in range(kind.num_fields)]
    return [kind.value_field.with_name("element")] if pa.types.is_list(kind) or pa.types.is_large_list(kind) else []


def fit_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast `rows` to the columns of a table, which may have more and wider ones."""
    rows = rows.rename_columns(stored_names(rows.column_names, schema.names))
    columns = [
        rows.column(field.name).cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _nullable(columns: pa.Schema) -> pa.Schema:
    """Make all columns nullable: envelopes omit values, and a column may be dropped from the tables that are read."""
    return pa.schema([field.with_nullable(True) for field in columns])


def _check_names(columns: pa.Schema) -> None:
    names = [name.lower() for name in columns.names]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ColumnsUnfit(f"There is more than one column {', '.join(repeated)}")


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".")
