"""Names that columns of a table cannot have, alone or together. Pure.

CREATE TABLE refuses such names in a column list; names that only messages show stop the table before anything is written to it.
Upper and lower case do not matter here, because Spark and Iceberg find a column whatever its case.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pyiceberg.types import IcebergType, ListType, MapType, StructType

from lakehold.definitions import Table
from lakehold.errors import TableStopped
from lakehold.tables.column_types import ColumnType

METADATA_COLUMNS = frozenset(
    {"_deleted", "_file", "_last_updated_sequence_number", "_partition", "_pos", "_row_id", "_spec_id"}
)
"""Metadata columns that every Iceberg table has in Spark: with a column of such a name it cannot be read or merged into."""

_OF_MERGE = frozenset({"__row_from_source", "__row_from_target", "__row_id", "__row_operation"})
_RESERVED = (
    (re.compile("|".join(METADATA_COLUMNS)), "Every Iceberg table has a metadata column of this name."),
    (re.compile(f"{'|'.join(_OF_MERGE)}|__original_row_id_.*"), "Spark's MERGE has a column of this name for itself."),
    (re.compile("_lh_.*"), "lakehold has columns with names that begin with _lh_ for itself."),
)

_CASE = " Case does not matter."

Path = tuple[str, ...]


@dataclass(frozen=True)
class NameFault:
    """A fault in the names of columns.

    Attributes:
        code: The error's code.
        message: The error's message, which names the columns.
        detail: The reason.
        can_be_left_out: Whether a column list that leaves one of them out helps: messages with both can be decoded.
    """

    code: str
    message: str
    detail: str
    can_be_left_out: bool = True


def name_fault(columns: Iterable[ColumnType], table: str) -> NameFault | None:
    """Return the first fault in the names of columns and of their fields; None if there is none.

    Args:
        columns: All columns of the table.
        table: The table in words, such as `table "shop.orders"`.
    """
    return next(_faults(columns, table), None)


def require_names(table: Table, columns: Sequence[ColumnType], partitions: Collection[str] = ()) -> None:
    """Raise `TableStopped` if the table cannot have columns of these names; `partitions` are names of its partition fields."""
    fault = name_fault(columns, f'table "{table.full_name}"') or _of_partition(table, columns, partitions)
    if fault is not None:
        raise _stopped(table, fault)


def require_case(table: Table, columns: Iterable[ColumnType]) -> None:
    """Raise `TableStopped` if messages have names that differ in case only, so that no column list makes them readable."""
    faults = _faults(columns, f'table "{table.full_name}"')
    fault = next((each for each in faults if each.code == "column-case"), None)
    if fault is not None:
        raise _stopped(table, replace(fault, can_be_left_out=False))


def _stopped(table: Table, fault: NameFault) -> TableStopped:
    return TableStopped(
        fault.message,
        table=table.full_name,
        code=fault.code,
        detail=f"{fault.detail} Nothing of this batch was written to the table.",
        hint=_way_out(table, fault),
    )


def _of_partition(table: Table, columns: Iterable[ColumnType], partitions: Collection[str]) -> NameFault | None:
    """Find a column with the name of a partition field; a new table gets other names for these."""
    name = next((c.name for c in columns if c.name in partitions), None)
    if name is None:
        return None
    message = f'column "{name}" of table "{table.full_name}" has the name of a partition field'
    return NameFault(code="column-collision", message=message, detail="Iceberg does not allow it.")


def _faults(columns: Iterable[ColumnType], table: str) -> Iterator[NameFault]:
    seen: dict[str, Path] = {}
    in_files: dict[Path, Path] = {}
    for path, is_name in _paths(columns):
        name, of = path[-1], f"of {table}" if len(path) == 1 else f"in column {_shown(path[:-1])} of {table}"
        if not name:
            yield NameFault(code="column-unnamed", message=f"a column {of} has no name", detail="Iceberg needs one.")
            continue
        reason = next((why for names, why in _RESERVED if names.fullmatch(name.lower())), "")
        if len(path) == 1 and reason:
            yield NameFault(
                code="column-reserved", message=f'column "{name}" {of} has a reserved name', detail=f"{reason}{_CASE}"
            )
        earlier = seen.setdefault(folded(".".join(path)), path)
        if earlier != path:
            yield _meeting(earlier, path, table)
        written = (*path[:-1], _in_files(name)) if is_name else path
        earlier = in_files.setdefault(written, path)
        if earlier != path:
            yield NameFault(
                code="column-collision",
                message=f"columns {_shown(earlier)} and {_shown(path)} of {table} have one name",
                detail=f"Iceberg calls both {_in_files(name)} in the table's files.",
            )


def _way_out(table: Table, fault: NameFault) -> str:
    if table.upstream is not None:
        hint = (
            "Rename one upstream, unless the database has only one of them by now. Drop the table and create it again: its topic "
            "goes with it."
        )
    else:
        hint = (
            "Rename one upstream, or leave it out with Debezium's column.exclude.list; drop the table, have the connector write "
            "the topic again, and create the table again."
        )
    if fault.can_be_left_out:
        hint = f"Drop the table, and create it again with a column list that leaves one out. Or: {hint[0].lower()}{hint[1:]}"
    return hint


def folded(name: str) -> str:
    """Return the form that a name shares with all names that differ from it in case only, character by character."""
    upper = [_one(c, c.upper()) for c in name]
    return "".join(_one(c, c.lower()) for c in upper)


def _one(character: str, changed: str) -> str:
    """Return the character that Java maps a character to, which is never several."""
    return changed if len(changed) == 1 else character


def _meeting(one: Path, other: Path, table: str) -> NameFault:
    pair = f"columns {_shown(one)} and {_shown(other)} of {table}"
    if one[:-1] == other[:-1]:
        return NameFault(
            code="column-case",
            message=f"{pair} differ in case only",
            detail="Spark does not distinguish them.",
            can_be_left_out=len(one) > 1,
        )
    return NameFault(
        code="column-collision",
        message=f"{pair} have one name",
        detail=f"Iceberg calls both {'.'.join(one)}: it joins the names of a column and of its fields by dots.",
    )


def _shown(path: Path) -> str:
    return ".".join(f'"{part}"' for part in path)


def _paths(columns: Iterable[ColumnType]) -> Iterator[tuple[Path, bool]]:
    """Yield the path of each column and of everything in it as Iceberg names it, and whether its last part is a given name."""
    for column in columns:
        yield (column.name,), True
        yield from _within((column.name,), column.type)


def _within(path: Path, of: IcebergType) -> Iterator[tuple[Path, bool]]:
    match of:
        case StructType():
            for field in of.fields:
                yield (*path, field.name), True
                yield from _within((*path, field.name), field.field_type)
        case ListType():
            yield (*path, "element"), False
            yield from _within((*path, "element"), of.element_type)
        case MapType():
            yield (*path, "key"), False
            yield (*path, "value"), False
            yield from _within((*path, "value"), of.value_type)


def _in_files(name: str) -> str:
    """Return the name as Iceberg writes it to Parquet: characters that Avro does not allow are escaped."""
    first = name[0] if _is_letter(name[0]) else f"_{name[0]}" if name[0].isdecimal() else _escaped(name[0])
    return first + "".join(c if _is_letter(c) or c.isdecimal() else _escaped(c) for c in name[1:])


def _is_letter(character: str) -> bool:
    return character == "_" or (character.isalpha() and ord(character) <= 0xFFFF)  # noqa: PLR2004 - one char of Java


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"_x{int.from_bytes(units[i : i + 2]):X}" for i in range(0, len(units), 2))
