"""Rows of state tables: each field of a frozen dataclass is a column, as JSON if no column type can hold it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cached_property, partial
from types import MappingProxyType, NoneType
from typing import Any, Generic, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter
from pyiceberg.types import NestedField, StringType

from lakehold.state.schema_files import system_tables

Row = Mapping[str, Any]
"""A row of a state table: column name to value; a column that is null, or was added later, may be missing."""

Value = TypeVar("Value")

Text = tuple[Callable[[Any], str], Callable[[str], Any]]
"""Writes a value as text, and reads it."""

_NONE: Mapping[Any, Any] = MappingProxyType({})


class Rows(Generic[Value]):
    """A mapping between values of a dataclass and rows of a table.

    A field is in the column of its name. None is null, and so is a field's default if the column may be null. A field that is a
    dataclass and has no column is spread over columns of its own fields; if a mandatory one of them is null, the field is None.

    Args:
        table: Full name of the table.
        of: The dataclass.
        columns: Columns that are named differently; the field `b` inside of `a` is called `a.b`.
        texts: Types that text columns hold in another form than pydantic's JSON.
    """

    def __init__(
        self, table: str, of: type[Value], columns: Mapping[str, str] = _NONE, texts: Mapping[Any, Text] = _NONE
    ) -> None:
        self.table = table
        self._of = of
        self._columns = columns
        self._texts = texts

    def to_row(self, value: Value) -> Row:
        """Convert `value` to its row."""
        row: dict[str, Any] = {}
        for name, field in self._fields.items():
            row |= field.to_row(getattr(value, name))
        return row

    def from_row(self, row: Row) -> Value:
        """Convert `row` to its value."""
        return self._of(**{name: field.from_row(row) for name, field in self._fields.items()})

    def is_in(self, row: Row) -> bool:
        """Return whether `row` has all mandatory fields of a value."""
        needed = (field for field in self._fields.values() if isinstance(field, _Column) and field.is_needed)
        return all(row.get(field.name) is not None for field in needed)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that have the fields of a value."""
        return tuple(
            name
            for field in self._fields.values()
            for name in ((field.name,) if isinstance(field, _Column) else field.rows.columns)
        )

    @cached_property
    def _fields(self) -> dict[str, _Column | _Inner]:
        # Made at the first use, so that a process loads only the tables it uses.
        schema = next(known.schema for known in system_tables() if known.table == self.table)
        columns, hints = {column.name: column for column in schema.fields}, get_type_hints(self._of)
        made: dict[str, _Column | _Inner] = {}
        for field in fields(self._of):  # type: ignore[arg-type] # a dataclass
            name, inside = field.name, f"{field.name}."
            column = columns.get(self._columns.get(name, name))
            if column is not None:
                made[name] = _column(field, hints[name], column, self._texts)
            else:
                inner = {k.removeprefix(inside): of for k, of in self._columns.items() if k.startswith(inside)}
                made[name] = _Inner(Rows(self.table, _without_none(hints[name]), inner, self._texts))
        return made


@dataclass(frozen=True)
class _Column:
    """A field in a column of its own."""

    name: str
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]
    default: Any
    is_needed: bool
    is_nullable: bool

    def to_row(self, value: Any) -> Row:
        is_null = value is None or (self.is_nullable and value == self.default)
        return {self.name: None if is_null else self.write(value)}

    def from_row(self, row: Row) -> Any:
        kept = row.get(self.name)
        return self.default if kept is None else self.read(kept)


@dataclass(frozen=True)
class _Inner:
    """A field that is spread over columns of its own fields."""

    rows: Rows[Any]

    def to_row(self, value: Any) -> Row:
        return {} if value is None else self.rows.to_row(value)

    def from_row(self, row: Row) -> Any:
        return self.rows.from_row(row) if self.rows.is_in(row) else None


def _column(field: Field[Any], hint: Any, column: NestedField, texts: Mapping[Any, Text]) -> _Column:
    of = _without_none(hint)
    write, read = _codec(of, texts, is_text=isinstance(column.field_type, StringType))
    default = field.default_factory() if field.default_factory is not MISSING else field.default
    is_needed = default is MISSING and of == hint
    return _Column(column.name, write, read, None if default is MISSING else default, is_needed, not column.required)


def _codec(of: Any, texts: Mapping[Any, Text], *, is_text: bool) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    if isinstance(of, type) and issubclass(of, (str, int)):
        return lambda value: value, of
    if of in texts:
        return texts[of]
    adapter: TypeAdapter[Any] = TypeAdapter(of)
    if is_text:
        return lambda value: adapter.dump_json(value).decode(), adapter.validate_json
    return partial(adapter.dump_python, mode="json"), adapter.validate_python


def _without_none(hint: Any) -> Any:
    """Return `X` of `X | None`."""
    others = [each for each in get_args(hint) if each is not NoneType]
    return others[0] if len(others) < len(get_args(hint)) else hint
