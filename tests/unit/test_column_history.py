"""The history of columns that no message shows: what lakehold asks the database, and what it makes of the answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.types import IcebergType, IntegerType, LongType, NestedField, StringType

from lakehold.definitions import DeclaredColumn, Envelope, Included, Metadata, Table
from lakehold.errors import TableStopped, UpstreamUnavailable
from lakehold.iceberg.data_tables import TableState
from lakehold.ingest.decode.decoded import Decoded
from lakehold.ingest.envelope.column_history import NUMBERS, RENAMED, ColumnHistory, column_history
from lakehold.ingest.envelope.upstream_columns import InitialValues, UpstreamColumns
from lakehold.tables.column_types import ColumnType

TABLE = Table("shop", "orders", "app", "app.public.orders", Envelope.DEBEZIUM)
Types = Mapping[str, IcebergType]
ORDERS: Types = {"id": IntegerType(), "note": StringType()}
OF_ORDERS = {"id": 1, "note": 2}


def messages(*versions: Types) -> Decoded:
    """Build messages of some versions of a row."""
    columns = {name: of for version in reversed(versions) for name, of in version.items()}
    listed = tuple(ColumnType(name, of) for name, of in columns.items())
    frame: Any = None
    return Decoded(frame, (ColumnType("id", IntegerType()),), listed, versions=tuple(map(frozenset, versions)))


def stored(
    columns: Types = ORDERS, *, rows: int = 3, version: int = 3, properties: Mapping[str, Any] | None = None
) -> TableState:
    """Return a table with the key `id`; the names of properties are those of constants."""
    fields = (NestedField(number, name, of, required=False) for number, (name, of) in enumerate(columns.items(), 1))
    texts = {"lakehold.key": "id", **{name: json.dumps(value) for name, value in (properties or {}).items()}}
    snapshot = Snapshot(
        snapshot_id=1,
        sequence_number=1,
        timestamp_ms=1,
        manifest_list="",
        summary=Summary(Operation.APPEND, **{"total-records": str(rows)}),
    )
    table: Any = SimpleNamespace(current_snapshot=lambda: snapshot)
    return TableState("shop.orders", version, Schema(*fields), texts, table)


def upstream(
    columns: Types, known: Mapping[str, Any] | None = None, unknown: str = "", **numbers: int
) -> Callable[[Table], UpstreamColumns]:
    """Return a database with these columns."""
    listed = tuple(ColumnType(name, of) for name, of in columns.items())
    initial = InitialValues(known or {}, frozenset(unknown.split()))
    return lambda _: UpstreamColumns(listed, ("id",), initial, numbers)


def never_called(_: Table) -> UpstreamColumns:
    raise AssertionError("the database was asked")


WITH_C = {**ORDERS, "c": IntegerType()}


def test_the_database_is_asked_only_when_a_column_appears() -> None:
    assert column_history(messages(ORDERS, {"id": IntegerType()}), TABLE, stored(), never_called) == ColumnHistory()
    later = stored(WITH_C)
    field = later.schema.find_field("c").model_copy(update={"initial_default": 5})
    later = replace(later, schema=Schema(*later.schema.fields[:2], field))
    assert column_history(messages(ORDERS), TABLE, later, never_called).initial == InitialValues({"c": 5})


def test_a_new_column_has_the_value_that_the_database_says() -> None:
    found = column_history(messages(ORDERS, WITH_C), TABLE, stored(), upstream(WITH_C, {"c": 5}, id=1, note=2, c=3))
    assert found == ColumnHistory(InitialValues({"c": 5}), {}, {"id": 1, "note": 2, "c": 3})
    nothing = column_history(messages(WITH_C), TABLE, stored(), upstream(WITH_C))
    assert nothing == ColumnHistory()


@pytest.mark.parametrize(
    ("state", "columns_of"),
    [
        (stored(), upstream(WITH_C, unknown="c")),
        (stored(version=2), upstream(WITH_C, {"c": 5})),
        (stored(), upstream({**ORDERS, "c": LongType()}, {"c": 5})),
        (stored(properties={NUMBERS: {**OF_ORDERS, "gone": 3}}), upstream(WITH_C, {"c": 5}, id=1, note=2, c=3)),
        (stored({**ORDERS, "gone": IntegerType()}), upstream(WITH_C, {"c": 5}, id=1, note=2, c=3)),
    ],
    ids=["only in rows", "no defaults in its format", "other type by now", "older number", "perhaps renamed"],
)
def test_values_are_unknown(state: TableState, columns_of: Callable[[Table], UpstreamColumns]) -> None:
    assert column_history(messages(WITH_C), TABLE, state, columns_of).initial == InitialValues({}, frozenset({"c"}))


def test_columns_that_include_adds_are_not_gone_from_the_database() -> None:
    table = replace(TABLE, include=(Included(Metadata.OFFSET),))
    state = stored({**ORDERS, "offset": LongType()})
    assert column_history(messages(WITH_C), table, state, upstream(WITH_C)).initial == InitialValues()


@pytest.mark.parametrize(
    "table",
    [replace(TABLE, envelope=Envelope.NONE), replace(TABLE, columns=(DeclaredColumn("id", "INT"),))],
    ids=["all messages", "a column list"],
)
def test_some_tables_have_no_new_columns_with_older_rows(table: Table) -> None:
    assert column_history(messages(WITH_C), table, stored(), never_called) == ColumnHistory()


def test_a_database_that_does_not_answer_stops_the_table_only_if_rows_need_the_answer() -> None:
    def down(_: Table) -> UpstreamColumns:
        raise UpstreamUnavailable("no answer")

    with pytest.raises(TableStopped, match='new columns "c" in older rows') as stop:
        column_history(messages(WITH_C), TABLE, stored(), down)
    assert stop.value.code == "initial-unknown"
    with pytest.raises(TableStopped):
        column_history(messages(ORDERS, WITH_C), TABLE, None, down)
    assert column_history(messages(WITH_C), TABLE, None, down) == ColumnHistory()
    assert column_history(messages(WITH_C), TABLE, stored(rows=0), down) == ColumnHistory()


RENAMED_ONCE = {"id": IntegerType(), "remark": StringType()}


def test_a_column_with_the_number_of_one_that_is_gone_is_that_column() -> None:
    state = stored(properties={NUMBERS: OF_ORDERS})
    found = column_history(messages(ORDERS, RENAMED_ONCE), TABLE, state, upstream(RENAMED_ONCE, id=1, remark=2))
    assert (found.renamed, found.initial) == ({"note": "remark"}, InitialValues())
    again = stored(RENAMED_ONCE, properties={NUMBERS: {"id": 1, "remark": 2}, RENAMED: {"note": "remark"}})
    found = column_history(messages(ORDERS), TABLE, again, upstream(RENAMED_ONCE, id=1, remark=2))
    assert (found.renamed, found.initial) == ({"note": "remark"}, InitialValues())
    third = {"id": IntegerType(), "memo": StringType()}
    found = column_history(messages(ORDERS, third), TABLE, again, upstream(third, id=1, memo=2))
    assert found.renamed == {"note": "memo", "remark": "memo"}


def test_a_crash_between_the_earlier_name_and_the_rename_changes_nothing() -> None:
    interrupted = stored(properties={NUMBERS: OF_ORDERS, RENAMED: {"note": "remark"}})
    found = column_history(messages(ORDERS, RENAMED_ONCE), TABLE, interrupted, upstream(RENAMED_ONCE, id=1, remark=2))
    assert found.renamed == {"note": "remark"}
    done = stored(RENAMED_ONCE, properties={NUMBERS: OF_ORDERS, RENAMED: {"note": "remark"}})
    found = column_history(messages(ORDERS, RENAMED_ONCE), TABLE, done, upstream(RENAMED_ONCE, id=1, remark=2))
    assert found.renamed == {"note": "remark"}


def test_a_column_that_gets_its_name_back_is_renamed_back() -> None:
    state = stored(RENAMED_ONCE, properties={NUMBERS: {"id": 1, "remark": 2}, RENAMED: {"note": "remark"}})
    for decoded in (messages(ORDERS), messages(RENAMED_ONCE, ORDERS)):
        found = column_history(decoded, TABLE, state, upstream(ORDERS, id=1, note=2))
        assert (found.renamed, found.initial) == ({"remark": "note"}, InitialValues())


def test_another_column_that_gets_an_earlier_name_of_a_dropped_one_does_not_fill_that_one() -> None:
    state = stored(RENAMED_ONCE, properties={NUMBERS: {"id": 1, "remark": 2}, RENAMED: {"note": "remark"}})
    found = column_history(messages(ORDERS), TABLE, state, upstream(ORDERS, {"note": "new"}, id=1, note=3))
    assert (found.renamed, found.initial) == ({}, InitialValues({"note": "new"}))


def test_the_database_says_whether_a_column_has_its_name_back_before_a_row_is_written() -> None:
    def down(_: Table) -> UpstreamColumns:
        raise UpstreamUnavailable("no answer")

    state = stored(RENAMED_ONCE, properties={NUMBERS: {"id": 1, "remark": 2}, RENAMED: {"note": "remark"}})
    with pytest.raises(TableStopped, match='new columns "note"'):
        column_history(messages(ORDERS), TABLE, state, down)
    assert column_history(messages(RENAMED_ONCE), TABLE, state, never_called).renamed == {"note": "remark"}


def test_a_column_that_is_added_under_an_earlier_name_of_another_is_one_of_its_own() -> None:
    both = {**RENAMED_ONCE, "note": StringType()}
    state = stored(RENAMED_ONCE, properties={NUMBERS: {"id": 1, "remark": 2}, RENAMED: {"note": "remark"}})
    columns = upstream(both, {"note": "new"}, id=1, remark=2, note=3)
    for decoded in (messages(RENAMED_ONCE, both), messages(both)):
        found = column_history(decoded, TABLE, state, columns)
        assert (found.renamed, found.initial) == ({}, InitialValues({"note": "new"}))


def test_a_rename_that_messages_saw_twice_has_its_table_snapshotted() -> None:
    second, third = ({"id": IntegerType(), name: StringType()} for name in ("remark", "memo"))
    state = stored(properties={NUMBERS: OF_ORDERS})
    found = column_history(messages(ORDERS, second, third), TABLE, state, upstream(third, id=1, memo=2))
    assert (found.renamed, found.initial.unknown) == ({"note": "memo"}, frozenset({"memo", "remark"}))


def test_a_name_that_a_column_had_for_a_while_has_its_table_snapshotted() -> None:
    state = stored(properties={NUMBERS: OF_ORDERS})
    found = column_history(messages(RENAMED_ONCE), TABLE, state, upstream(ORDERS, id=1, note=2))
    assert (found.renamed, found.initial.unknown) == ({}, frozenset({"remark"}))


def test_a_column_that_was_added_and_dropped_again_has_no_table_snapshotted() -> None:
    state = stored(properties={NUMBERS: OF_ORDERS})
    found = column_history(messages(ORDERS, WITH_C), TABLE, state, upstream(ORDERS, id=1, note=2))
    assert found.initial == InitialValues()


def test_a_key_and_a_column_of_another_type_are_not_renamed() -> None:
    key = {"number": IntegerType(), "note": StringType()}
    state = stored(properties={NUMBERS: OF_ORDERS})
    assert column_history(messages(key), TABLE, state, upstream(key, number=1, note=2)).renamed == {}
    other = {"id": IntegerType(), "remark": IntegerType()}
    found = column_history(messages(other), TABLE, state, upstream(other, id=1, remark=2))
    assert (found.renamed, found.initial.unknown) == ({}, frozenset({"remark"}))


def test_a_column_that_was_dropped_and_added_again_under_its_name_has_its_table_snapshotted() -> None:
    state = stored(WITH_C, properties={NUMBERS: {**OF_ORDERS, "c": 3}})
    more = {**WITH_C, "d": IntegerType()}
    found = column_history(messages(more), TABLE, state, upstream(more, {"c": 7, "d": 5}, id=1, note=2, c=4, d=5))
    assert found.initial == InitialValues({"d": 5}, frozenset({"c"}))
