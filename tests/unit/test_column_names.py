"""Column names that no table can have, found before a table is created."""

from __future__ import annotations

import pytest
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StringType, StructType

from lakehold.tables.column_names import name_fault
from lakehold.tables.column_types import ColumnType

TEXT = StringType()


def _struct(*names: str) -> StructType:
    return StructType(*(NestedField(i, name, TEXT, required=False) for i, name in enumerate(names, 1)))


def _fault(*columns: str | tuple[str, IcebergType]) -> tuple[str, str] | None:
    typed = [ColumnType(*c) if isinstance(c, tuple) else ColumnType(c, TEXT) for c in columns]
    fault = name_fault(typed, "table t")
    return None if fault is None else (fault.code, fault.message)


@pytest.mark.parametrize(
    "name",
    [
        *("_file", "_pos", "_partition", "_deleted", "_row_id", "_spec_id", "_last_updated_sequence_number"),
        *("__row_operation", "__row_id", "__row_from_source", "__row_from_target", "__original_row_id__file"),
        *("_lh_op", "_lh_"),
    ],
)
def test_a_reserved_name_is_found_whatever_its_case(name: str) -> None:
    for written in (name, name.upper()):
        assert _fault("id", written) == ("column-reserved", f'column "{written}" of table t has a reserved name')
    assert _fault("id", ("s", _struct(name))) is None


@pytest.mark.parametrize(
    "name",
    [
        *("_change_type", "_change_ordinal", "_commit_snapshot_id", "file_path", "pos", "row", "_metadata", "_files"),
        *("mz_timestamp", "mz_diff", "mz_state", "mz_progressed", "op", "key", "value", "before", "after", "source"),
        *("a.b", "a`b", "a-b", " ", "\u00a0", "x" * 300, "é", "_", "__", "1", "${env:HOME}"),
    ],
)
def test_any_other_name_is_taken(name: str) -> None:
    assert _fault("id", name, ("s", _struct(name, "other"))) is None


@pytest.mark.parametrize(
    ("columns", "code", "named"),
    [
        (("Name", "name"), "column-case", '"Name" and "name"'),
        (("É", "é"), "column-case", '"É" and "é"'),
        (("\u017f", "S"), "column-case", '"\u017f" and "S"'),
        (("Σ", "ς"), "column-case", '"Σ" and "ς"'),
        ((("s", _struct("x", "X")),), "column-case", '"s"."x" and "s"."X"'),
        ((("l", ListType(1, _struct("x", "X"), False)),), "column-case", '"l"."element"."x" and "l"."element"."X"'),
        ((("m", MapType(1, TEXT, 2, _struct("x", "X"), False)),), "column-case", '"m"."value"."x" and "m"."value"."X"'),
        ((("a", _struct("b")), "A.b"), "column-collision", '"a"."b" and "A.b"'),
        ((("l", ListType(1, TEXT, False)), "l.element"), "column-collision", '"l"."element" and "l.element"'),
        ((("m", MapType(1, TEXT, 2, TEXT, False)), "m.key"), "column-collision", '"m"."key" and "m.key"'),
        (("a-b", "a_x2Db"), "column-collision", '"a-b" and "a_x2Db"'),
        (("1", "_1"), "column-collision", '"1" and "_1"'),
        (("😀", "_xD83D_xDE00"), "column-collision", '"😀" and "_xD83D_xDE00"'),
    ],
)
def test_names_that_meet_are_both_named(
    columns: tuple[str | tuple[str, IcebergType], ...], code: str, named: str
) -> None:
    fault = _fault("id", *columns)
    assert fault is not None
    assert (fault[0], named in fault[1]) == (code, True), fault


def test_a_column_without_a_name_is_found() -> None:
    assert _fault("id", "") == ("column-unnamed", "a column of table t has no name")
    assert _fault(("s", _struct(""))) == ("column-unnamed", 'a column in column "s" of table t has no name')


def test_names_that_differ_in_more_than_case_are_distinguished() -> None:
    assert _fault("a-b", "a_b", "ab", "straße", "STRASSE", ("s", _struct("ab", "a.b"))) is None
