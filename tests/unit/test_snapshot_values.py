"""Tables that cannot find rows of a snapshot, as it has other values than changes, are named when they are declared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakehold.definitions import ConnectionType
from lakehold.upstream.found.columns import FoundColumn, FoundType
from lakehold.upstream.plan.capture_plan import plan
from lakehold.upstream.types.captured_columns import lost_hints
from lakehold.upstream.wanted.wanted import CapturedTable
from tests.upstream_world import OF_MARIADB, World, target

_ID = FoundColumn("id", "int(11)", FoundType("int", "int(11)"), is_nullable=False, is_key=True)
_LOOSE = replace(_ID, is_key=False)
_WEIGHT = FoundColumn("Weight", "float", FoundType("float", "float"))
_DOCUMENT = FoundColumn("Document", "json", FoundType("json", "json"))
_FIXED = FoundColumn("Weight", "float(7,2)", FoundType("float", "float(7,2)"))


def _hints(*columns: FoundColumn, key: tuple[str, ...] = (), listed: tuple[str, ...] = ()) -> list[str]:
    world = World(frozenset({"shop.boxes"}), is_mariadb=True, columns={"shop.boxes": columns})
    goal = target({"boxes": "shop.boxes"}, capture=OF_MARIADB, new=["boxes"])
    table: CapturedTable = replace(goal.tables[0], key=key, columns=listed)
    goal = replace(goal, tables=(table,))
    return [hint for hint in plan(goal, world.inspect(goal)).hints if "finds rows by them" in hint]


def test_a_table_without_a_key_is_named_with_the_way_out() -> None:
    assert _hints(_LOOSE, _WEIGHT) == [
        "a snapshot has values of Weight (float) in another form than changes, and shop.boxes finds rows by them: a change of a "
        "row that came in a snapshot stops the table (row-missing). Drop shop.boxes and create it again with KEY (…) of other "
        "columns, unless such rows never change"
    ]


def test_documents_of_mysql_are_named_only_where_rows_are_found_by_them() -> None:
    (hint,) = _hints(_LOOSE, _WEIGHT, _DOCUMENT)
    assert hint.startswith("a snapshot has values of Weight (float), Document (json) in another form than changes")
    assert _hints(_ID, _DOCUMENT) == []
    assert list(lost_hints(["t"], {"t": (_ID, _DOCUMENT)}, ConnectionType.MYSQL)) == [], "its meaning is the same"


def test_a_key_with_such_values_is_named() -> None:
    for hints in (_hints(_ID, replace(_WEIGHT, is_key=True)), _hints(_LOOSE, _WEIGHT, key=("Weight",))):
        (hint,) = hints
        assert "a change of a row that came in a snapshot leaves the row as it was" in hint


@pytest.mark.parametrize(
    ("columns", "key", "listed"),
    [
        ((_ID, _WEIGHT), (), ()),
        ((_LOOSE, _WEIGHT), ("id",), ()),
        ((_LOOSE, _WEIGHT), (), ("id",)),
        ((_LOOSE, _FIXED), (), ()),
    ],
)
def test_a_table_that_finds_rows_by_other_values_is_not_named(
    columns: tuple[FoundColumn, ...], key: tuple[str, ...], listed: tuple[str, ...]
) -> None:
    assert _hints(*columns, key=key, listed=listed) == []
