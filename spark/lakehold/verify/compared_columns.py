"""Decides which columns of a captured table are compared, and how the database writes them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, IntegerType, ListType, LongType, StringType

from lakehold.definitions import ConnectionType
from lakehold.errors import DefinitionError
from lakehold.upstream.found.columns import FoundColumn
from lakehold.upstream.types.captured_columns import columns_of, sent_type
from lakehold.verify.database_texts import TIMES, ColumnText, text_of
from lakehold.verify.text_values import TextForm, can_be_text


@dataclass(frozen=True)
class ComparedColumn:
    """A column that both sides have, or that only the database has.

    Attributes:
        name: Its name in the lake.
        type: Its type in the lake, or the one that it would have there.
        text: The expression by which the database writes its values as texts.
        found: The column in the database.
        is_missing: Whether the lake's table does not have it, and so shows a null in each row.
        has_free_zeros: Whether the lake has texts of numbers, whose trailing zeros do not count.
    """

    name: str
    type: IcebergType
    text: ColumnText
    found: FoundColumn
    is_missing: bool = False
    has_free_zeros: bool = False


@dataclass(frozen=True)
class SkippedColumn:
    """A column that is not compared, and the reason: a clause without a full stop."""

    name: str
    reason: str


@dataclass(frozen=True)
class ComparedColumns:
    """The columns of a table, compared and skipped.

    Attributes:
        key: The key's columns, which are compared.
        others: The other compared columns.
        skipped: The columns that are not compared, with the reason.
    """

    key: tuple[ComparedColumn, ...]
    others: tuple[ComparedColumn, ...]
    skipped: tuple[SkippedColumn, ...]

    @property
    def all(self) -> tuple[ComparedColumn, ...]:
        """Return the compared columns, the key's first."""
        return self.key + self.others


def compared_columns(  # noqa: PLR0913 - both sides, and what the statement says about them
    full_name: str,
    found: Sequence[FoundColumn],
    name_of: Callable[[str], str],
    schema: Schema,
    key: Sequence[str],
    included: Collection[str],
    database: ConnectionType,
    *,
    is_captured: bool = True,
    is_whole: bool = False,
) -> ComparedColumns:
    """Pair the columns of a table in the database with those of the lake.

    If the lake should have all columns, one that it lacks counts as null there. So the table differs as soon as a row of the
    database has a value in it, but not because of a new column that is null everywhere.

    Args:
        full_name: Full name of the lake's table.
        found: The columns in the database.
        name_of: Returns the name that the connector gives a column, which the lake's column has.
        schema: The columns in the lake.
        key: The lake's columns that identify rows. Empty: the table has no key; a captured one is compared by all columns that
            the lake has.
        included: The lake's columns that hold parts of messages, from INCLUDE of CREATE TABLE; the database has no such columns.
        database: The kind of database.
        is_captured: Whether a connector of lakehold fills the table: then columns that the connector does not send are skipped.
        is_whole: Whether the lake should have all columns that the connector sends, as no column list leaves any out.

    Raises:
        DefinitionError: The table has no key, or the key cannot be compared.
    """
    in_database = _by_sent_name(found, name_of)
    in_lake = {column.name: column.field_type for column in schema.fields}
    types = {**(_sent_types(in_database, database) if is_whole else {}), **in_lake}
    skipped = {column.name: column for column in _skipped(in_database, types, included, database, is_captured)}
    paired = [
        ComparedColumn(
            name,
            types[name],
            text,
            column,
            is_missing=name not in in_lake,
            # A connector of somebody else may send all digits (`decimal.handling.mode = string`), as another program may.
            has_free_zeros=not is_captured and text.is_trimmed and isinstance(types[name], StringType),
        )
        for name, column in in_database.items()
        if name not in skipped and (text := text_of(column, database)) is not None
    ]
    if not key and is_captured:
        key = [column.name for column in paired if not column.is_missing]
    if not key:
        raise DefinitionError(
            f'"{full_name}" has no key',
            code="key-missing",
            detail="Rows of the lake and of the database are paired by their key.",
            hint="Drop the lake's table and create it again with KEY (column, …), or with a primary key in the database.",
        )
    by_name = {column.name: column for column in paired}
    missing = next((name for name in key if name not in by_name), None)
    if missing is not None:
        reason = skipped[missing].reason if missing in skipped else "the database does not have it"
        raise DefinitionError(
            f'the key of "{full_name}" cannot be compared',
            code="not-comparable",
            detail=f'Its column "{missing}" is skipped: {reason}.',
        )
    return ComparedColumns(
        tuple(by_name[name] for name in key),
        tuple(column for column in paired if column.name not in key),
        (*skipped.values(), *_colliding(found, in_database)),
    )


def _by_sent_name(found: Sequence[FoundColumn], name_of: Callable[[str], str]) -> dict[str, FoundColumn]:
    """Return the columns by their names in messages. If two columns share a name, a column of the key has it, else the first."""
    named: dict[str, FoundColumn] = {}
    for column in sorted(found, key=lambda column: not column.is_key):
        named.setdefault(name_of(column.name), column)
    return named


def _sent_types(in_database: Mapping[str, FoundColumn], database: ConnectionType) -> dict[str, IcebergType]:
    """Return the types that the lake has for columns that are sent, and whose values can be compared."""
    sent = {name: columns_of([column], database) for name, column in in_database.items()}
    return {name: found[0].type for name, found in sent.items() if found and can_be_text(found[0].type)}


def _colliding(found: Sequence[FoundColumn], in_database: Mapping[str, FoundColumn]) -> Iterator[SkippedColumn]:
    for column in found:
        if column not in in_database.values():
            yield SkippedColumn(column.name, "the connector gives another column the same name")


def _skipped(
    in_database: Mapping[str, FoundColumn],
    types: dict[str, IcebergType],
    included: Collection[str],
    database: ConnectionType,
    is_captured: bool,
) -> Iterator[SkippedColumn]:
    for name, column in in_database.items():
        sent = sent_type(column, database)
        if is_captured and sent.schema is None:
            yield SkippedColumn(name, sent.lost)
        elif name not in types:
            yield SkippedColumn(name, "the lake's table does not have it")
        elif column.type.name in TIMES and _are_numbers(types[name]):
            yield SkippedColumn(name, f"the lake's table has values of {column.text} as numbers")
        elif _is_hex(column, database) and isinstance(_of_element(types[name]), StringType):
            yield SkippedColumn(
                name, f"the lake's table has values of {column.text} as texts, which may be hex or base64"
            )
        elif not is_captured and _may_be_written_otherwise(column, database, types[name]):
            yield SkippedColumn(
                name, f"the lake's table has values of {column.text} as texts, which may have other zeros"
            )
        elif text_of(column, database) is None or not can_be_text(types[name]):
            yield SkippedColumn(name, f"values of {column.text} cannot be compared")
    for name in sorted(types.keys() - in_database.keys() - set(included)):
        yield SkippedColumn(name, "the database does not have it")


def _are_numbers(kind: IcebergType) -> bool:
    return isinstance(_of_element(kind), IntegerType | LongType)


def _may_be_written_otherwise(column: FoundColumn, database: ConnectionType, in_lake: IcebergType) -> bool:
    """Return whether texts of bits or of arrays of numbers may have zeros that the database's texts lack, or the reverse."""
    text = text_of(column, database)
    if text is None:
        return False
    is_text = isinstance(in_lake, StringType) and text.form is TextForm.BITS
    return is_text or (
        text.is_trimmed and isinstance(in_lake, ListType) and isinstance(in_lake.element_type, StringType)
    )


def _is_hex(column: FoundColumn, database: ConnectionType) -> bool:
    text = text_of(column, database)
    return text is not None and text.form is TextForm.HEX


def _of_element(kind: IcebergType) -> IcebergType:
    return kind.element_type if isinstance(kind, ListType) else kind
