"""Declared tables, refused when no table of the lake can have their columns, or when they have no key."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakehold.definitions import Capture
from lakehold.errors import UpstreamError
from lakehold.upstream.capture_plan import plan
from lakehold.upstream.declared_columns import refuse_columns
from lakehold.upstream.field_names import as_written, field_name
from lakehold.upstream.found_columns import FoundColumn, FoundType
from tests.upstream_world import CAPTURE, OF_MARIADB, World, target

AVRO = {"value.converter": "io.apicurio.registry.utils.converter.AvroConverter"}
CONFLUENT = {"value.converter": "io.confluent.connect.avro.AvroConverter"}
JSON = {"value.converter": "org.apache.kafka.connect.json.JsonConverter"}


def _columns(*names: str, key: str = "id") -> tuple[FoundColumn, ...]:
    return tuple(FoundColumn(name, "text", FoundType("text", "text"), is_key=name == key) for name in names)


def _refused(
    columns: tuple[FoundColumn, ...],
    config: dict[str, str],
    *,
    key: tuple[str, ...] = (),
    listed: tuple[str, ...] = (),
    capture: Capture = CAPTURE,
) -> UpstreamError | None:
    goal = target({"a": "public.a"}, capture=capture, new=["a"])
    (table,) = goal.tables
    try:
        refuse_columns(
            replace(table, key=key, columns=listed), columns, replace(goal, config={**goal.config, **config})
        )
    except UpstreamError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("name", "written"),
    [
        *(("a-b", "a_b"), ("a.b", "a_b"), ("9a", "_9a"), ("1", "_1"), ("-file", "_file"), ("é", "_"), ("a b", "a_b")),
        *(
            ("😀x", "__x"),
            ("a..b", "a__b"),
            ("a$b", "a_b"),
            ("_", "_"),
            ("A-9", "A_9"),
            ("日本", "__"),
            ("plain", "plain"),
        ),
    ],
)
def test_a_name_is_in_avro_as_debezium_writes_it(name: str, written: str) -> None:
    assert field_name(name, AVRO) == field_name(name, CONFLUENT) == written
    assert field_name(name, JSON) == field_name(name, {}) == name


@pytest.mark.parametrize(
    ("names", "config", "code", "message"),
    [
        (("id", "a-b", "a_b"), AVRO, "column-collision", 'columns "a-b" and "a_b" of table "public.a"'),
        (("id", "é", "è"), CONFLUENT, "column-collision", 'columns "é" and "è"'),
        (("i-d", "i_d", "id"), AVRO, "column-collision", 'columns "i-d" and "i_d"'),
        (("id", "Name", "name"), JSON, "column-case", 'columns "Name" and "name" of table "public.a"'),
        (("id", "N-x", "n_x"), AVRO, "column-case", 'columns "N_x" and "n_x"'),
        (("id", "_file"), JSON, "column-reserved", 'column "_file" of table "public.a"'),
        (("id", "-pos"), AVRO, "column-reserved", 'column "_pos"'),
        (("id", "__row_operation"), AVRO, "column-reserved", 'column "__row_operation"'),
        (("id", "a-b", "a_x2Db"), JSON, "column-collision", 'columns "a-b" and "a_x2Db"'),
    ],
)
@pytest.mark.parametrize("capture", [CAPTURE, OF_MARIADB])
def test_names_that_a_table_cannot_have_are_refused(
    names: tuple[str, ...], config: dict[str, str], code: str, message: str, capture: Capture
) -> None:
    refusal = _refused(_columns(*names), config, capture=capture)
    assert refusal is not None
    assert (refusal.code, message in refusal.message) == (code, True), refusal
    assert "RENAME COLUMN" in refusal.hint


def test_a_name_of_avro_is_explained() -> None:
    refusal = _refused(_columns("id", "-pos"), AVRO)
    assert refusal is not None
    assert '"-pos" is called _pos in Avro' in refusal.detail
    assert 'ALTER TABLE public.a RENAME COLUMN "-pos" TO' in refusal.hint
    meeting = _refused(_columns("a-b", "a_b", key="a_b"), AVRO)
    assert meeting is not None
    assert 'RENAME COLUMN "a-b" TO …, or create the source with FORMAT JSON' in meeting.hint


@pytest.mark.parametrize(
    ("names", "config"),
    [
        (("id", "a-b", "a_b"), JSON),
        (("id", "-pos"), JSON),
        (("id", "mz_timestamp", "op", "before"), AVRO),
        (("a-b",), AVRO),
    ],
)
def test_distinct_names_are_accepted(names: tuple[str, ...], config: dict[str, str]) -> None:
    assert _refused(_columns(*names, key=names[0]), config) is None


def test_a_column_list_skips_reserved_names() -> None:
    columns = _columns("id", "_file", "a-b", "v")
    assert _refused(columns, AVRO, listed=("id", "v")) is None
    refusal = _refused(columns, AVRO)
    assert refusal is not None
    assert "Name the table's columns without it in the statement" in refusal.hint
    # A column list does not remove columns that the connector cannot send or Spark cannot distinguish.
    assert _refused(_columns("id", "a-b", "a_b"), AVRO, listed=("id",)) is not None
    by_case = _refused(_columns("id", "v", "V"), JSON, listed=("id", "v"))
    assert by_case is not None
    assert "Name the table's columns" not in by_case.hint
    assert _refused(_columns("id", "v", "V"), JSON, listed=("id",)) is None


def test_a_table_without_rows_has_the_columns_that_messages_will_have() -> None:
    columns = _columns("a_b", "a-b", "Ä", "id", key="a-b")
    written = as_written(columns, AVRO)
    assert [(column.name, column.is_key) for column in written] == [("a_b", True), ("_", False), ("id", False)]
    assert as_written(columns, JSON) == columns


def test_a_key_is_named_as_the_messages_have_it() -> None:
    columns = _columns("id", "a-b", "Ä")
    assert _refused(columns, AVRO, key=("a_b",)) is None
    assert _refused(columns, JSON, key=("a-b",)) is None
    for key in ("a-b", "A_B"):
        refusal = _refused(columns, AVRO, key=(key,))
        assert refusal is not None
        assert (refusal.code, refusal.detail, refusal.hint) == (
            "column-missing",
            "Its columns: id, a_b, _.",
            "Did you mean a_b?",
        )


@pytest.mark.parametrize(
    ("capture", "altered"), [(CAPTURE, 'ALTER TABLE public."Odd"'), (OF_MARIADB, "ALTER TABLE public.`Odd`")]
)
def test_a_table_without_a_key_is_refused_with_the_ways_out(capture: Capture, altered: str) -> None:
    world = World(frozenset({"public.Odd", "public.b"}), is_mariadb=capture is OF_MARIADB)
    world.columns = {"public.Odd": _columns("tid", "delta"), "public.b": _columns("id")}
    goal = target({"a": "public.Odd", "b": "public.b"}, capture=capture, new=["a", "b"])
    with pytest.raises(UpstreamError, match=r'table "public\.Odd" has no primary key') as refusal:
        plan(goal, world.inspect(goal))
    assert refusal.value.code == "key-missing"
    assert "Its columns: tid, delta." in refusal.value.detail
    assert "KEY (column, …)" in refusal.value.hint
    assert f"{altered} ADD PRIMARY KEY" in refusal.value.hint
    keyed = replace(goal, tables=tuple(replace(t, key=("tid",)) if t.object_id == "a" else t for t in goal.tables))
    assert plan(keyed, world.inspect(keyed)).steps
    # Only a declaration is refused: a table that loses its key later stops alone.
    standing = target({"a": "public.Odd", "b": "public.b"}, capture=capture)
    assert plan(standing, world.inspect(standing)).steps
