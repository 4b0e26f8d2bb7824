"""Declared tables, refused when no table of the lake can have their columns, or when they have no key."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lakehold.definitions import Capture
from lakehold.errors import UpstreamError
from lakehold.upstream.found.columns import FoundColumn, FoundType
from lakehold.upstream.found.found import NOTHING, Found, FoundPublication, FoundTable
from lakehold.upstream.plan.capture_plan import plan
from lakehold.upstream.plan.capture_steps import CreatePublication, CreateTopic, RecordMissed, RequestSnapshot
from lakehold.upstream.report.declared_columns import missing_hints, refuse_columns
from lakehold.upstream.report.hints import fault_hints
from lakehold.upstream.types.field_names import as_written, field_name
from lakehold.upstream.wanted.wanted import Wanted
from tests.upstream_world import CAPTURE, OF_MARIADB, World, reconcile, target

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


def test_a_column_list_names_columns_of_the_database() -> None:
    columns = _columns("id", "a-b", "state")
    assert _refused(columns, AVRO, listed=("id", "a_b", "State")) is None
    refusal = _refused(columns, JSON, listed=("id", "status"))
    assert refusal is not None
    assert refusal.code == "column-missing"
    assert 'no column "status", which is in the column list, or the contract "shop.a.json", of' in refusal.message


def test_a_listed_column_that_is_renamed_upstream_is_reported() -> None:
    world = World(frozenset({"public.a"}))
    world.columns = {"public.a": _columns("id", "status")}
    goal = target({"a": "public.a"})
    goal = replace(goal, tables=tuple(replace(table, columns=("id", "status")) for table in goal.tables))
    assert list(missing_hints(goal, world.inspect(goal))) == []
    world.columns = {"public.a": _columns("id", "state")}
    for reported in (plan(goal, world.inspect(goal)).hints, tuple(fault_hints(goal, world.inspect(goal)))):
        (hint,) = (each for each in reported if "column list" in each)
        assert hint.startswith('column "status" is in the column list, or the contract "shop.a.json", of ')
        assert "DROP TABLE" in hint


@pytest.mark.parametrize(
    ("capture", "altered"), [(CAPTURE, 'ALTER TABLE public."Odd"'), (OF_MARIADB, "ALTER TABLE public.`Odd`")]
)
def test_a_table_without_a_key_is_refused_with_the_ways_out(capture: Capture, altered: str) -> None:
    world = World(frozenset({"public.Odd", "public.b"}), is_mariadb=capture is OF_MARIADB)
    world.columns = {"public.Odd": _columns("tid", "delta"), "public.b": _columns("id")}
    whole = target({"a": "public.Odd", "b": "public.b"}, capture=capture, new=["a", "b"])
    assert plan(whole, world.inspect(whole)).steps, "events with whole rows need no key"
    goal = replace(whole, tables=tuple(replace(table, needs_before=False) for table in whole.tables))
    with pytest.raises(UpstreamError, match=r'table "public\.Odd" has no primary key') as refusal:
        plan(goal, world.inspect(goal))
    assert refusal.value.code == "key-missing"
    assert "Its columns: tid, delta." in refusal.value.detail
    assert "KEY (column, …)" in refusal.value.hint
    assert f"{altered} ADD PRIMARY KEY" in refusal.value.hint
    assert "Or use ENVELOPE DEBEZIUM" in refusal.value.hint
    keyed = replace(goal, tables=tuple(replace(t, key=("tid",)) if t.object_id == "a" else t for t in goal.tables))
    assert plan(keyed, world.inspect(keyed)).steps
    # Only a declaration is refused: a table that loses its key later stops alone.
    standing = target({"a": "public.Odd", "b": "public.b"}, capture=capture)
    assert plan(standing, world.inspect(standing)).steps


def test_a_table_without_a_key_needs_whole_rows_in_the_log_of_mariadb() -> None:
    world = World(frozenset({"shop.log", "shop.b"}), is_mariadb=True)
    world.columns = {"shop.log": _columns("tid", "delta"), "shop.b": _columns("id")}
    goal = target({"a": "shop.log", "b": "shop.b"}, capture=OF_MARIADB, new=["a", "b"])

    def found(wanted: Wanted) -> Found:
        return replace(world.inspect(wanted), log_settings={"binlog_row_image": "MINIMAL"})

    with pytest.raises(UpstreamError, match=r'table "shop\.log" has no primary key') as refusal:
        plan(goal, found(goal))
    assert refusal.value.code == "row-image"
    assert "binlog_row_image is MINIMAL" in refusal.value.detail
    assert "SET GLOBAL binlog_row_image = FULL" in refusal.value.hint
    keyed = replace(goal, tables=tuple(replace(t, key=("tid",)) if t.object_id == "a" else t for t in goal.tables))
    assert plan(keyed, found(keyed)).steps
    # A table that is captured already goes on, with a hint.
    standing = replace(goal, declared=None)
    (hint,) = (hint for hint in plan(standing, found(standing)).hints if "binlog_row_image" in hint)
    assert hint.startswith("table shop.log has no primary key")


@pytest.mark.parametrize(
    ("setting", "value", "way_out"),
    [
        ("binlog_format", "MIXED", "SET GLOBAL binlog_format = ROW"),
        ("binlog_format", "STATEMENT", "SET GLOBAL binlog_format = ROW"),
        ("log_bin_compress", "ON", "SET GLOBAL log_bin_compress = OFF"),
        ("binlog_row_value_options", "PARTIAL_JSON", "SET GLOBAL binlog_row_value_options = ''"),
        ("binlog_transaction_compression", "ON", "SET GLOBAL binlog_transaction_compression = OFF"),
    ],
)
def test_a_setting_that_loses_changes_refuses_new_tables_and_gives_captured_ones_a_hint(
    setting: str, value: str, way_out: str
) -> None:
    world = World(frozenset({"shop.b"}), is_mariadb=True)
    goal = target({"b": "shop.b"}, capture=OF_MARIADB, new=["b"])
    found = replace(world.inspect(goal), log_settings={"binlog_row_image": "FULL", setting: value})
    with pytest.raises(UpstreamError, match="logs changes that would be lost") as refusal:
        plan(goal, found)
    assert refusal.value.code == "log-lossy"
    assert f"{setting} is {value}" in refusal.value.detail
    assert way_out in refusal.value.hint
    standing = replace(goal, declared=None)
    (hint,) = (hint for hint in plan(standing, found).hints if setting in hint)
    assert way_out in hint
    assert hint.endswith("ALTER SOURCE shop RESNAPSHOT")
    harmless = replace(found, log_settings={setting: way_out.rpartition(" = ")[2].strip("'")})
    assert plan(goal, harmless).steps
    assert not any(setting in hint for hint in plan(standing, harmless).hints)


def test_a_joining_table_of_mariadb_without_a_key_gets_the_hint_before_the_connector_refuses_its_snapshot() -> None:
    world = World(frozenset({"shop.a", "shop.b"}), is_mariadb=True)
    world.columns = {"shop.a": _columns("id"), "shop.b": _columns("v")}
    first = target({"a1": "shop.a"}, capture=OF_MARIADB)
    assert reconcile(world, first)
    goal = target({"a1": "shop.a", "b1": "shop.b"}, capture=OF_MARIADB, new=["b1"])
    (hint,) = plan(goal, world.inspect(goal)).hints
    assert "table shop.b has no primary key, so it cannot be snapshotted alone" in hint
    assert "ALTER SOURCE shop RESNAPSHOT" in hint


def _keyed_by(kind: str, text: str) -> tuple[FoundColumn, ...]:
    return FoundColumn("k", text, FoundType(kind, text), is_nullable=False, is_key=True), *_columns("v")


@pytest.mark.parametrize(
    ("kind", "text"),
    [("enum", "enum('sms','email')"), ("set", "set('x','a')"), ("bit", "bit(4)"), ("float", "float")],
)
def test_a_table_of_mariadb_that_debezium_would_read_in_part_is_never_snapshotted_alone(kind: str, text: str) -> None:
    world = World(frozenset({"shop.a", "shop.b", "shop.c"}), is_mariadb=True)
    world.columns = {"shop.a": _columns("id"), "shop.b": _keyed_by(kind, text), "shop.c": _keyed_by("bit", "bit(1)")}
    assert reconcile(world, target({"a1": "shop.a"}, capture=OF_MARIADB))
    goal = target({"a1": "shop.a", "b1": "shop.b"}, capture=OF_MARIADB, new=["b1"])
    found = plan(goal, world.inspect(goal))
    assert not any(isinstance(step, RequestSnapshot) for step in found.steps)
    assert RecordMissed(goal.capture.topic_prefix, {"b1": "shop.b"}) in found.steps
    (hint,) = [hint for hint in found.hints if "cannot be snapshotted alone" in hint]
    assert f"table shop.b has k ({text}) in its primary key" in hint
    reconcile(world, goal)
    standing = replace(goal, declared=None)
    assert plan(standing, world.inspect(standing)).steps == (), "it is recorded once"
    *_, hint = plan(standing, world.inspect(standing)).hints
    assert hint.endswith("by which Debezium would lose rows, so only ALTER SOURCE shop RESNAPSHOT brings them")

    other = target({"a1": "shop.a", "b1": "shop.b", "c1": "shop.c"}, capture=OF_MARIADB, new=["c1"])
    requested = [step.upstream for step in plan(other, world.inspect(other)).steps if isinstance(step, RequestSnapshot)]
    assert requested == ["shop.c"]


def test_a_table_of_postgres_with_an_array_in_its_key_is_never_snapshotted_alone() -> None:
    """Debezium cannot record how far it has read, and the connector would fail with all its tables."""
    world = World(frozenset({"public.a", "public.b"}))
    array = FoundColumn("k", "integer[]", FoundType("int4", "integer"), is_array=True, is_nullable=False, is_key=True)
    world.columns = {"public.a": _columns("id"), "public.b": (array, *_columns("v"))}
    assert reconcile(world, target({"a1": "public.a"}))
    goal = target({"a1": "public.a", "b1": "public.b"}, new=["b1"])
    found = plan(goal, world.inspect(goal))
    assert not any(isinstance(step, RequestSnapshot) for step in found.steps)
    assert RecordMissed(goal.capture.topic_prefix, {"b1": "public.b"}) in found.steps
    (hint,) = found.hints
    assert (
        "has k (integer[]) in its primary key, at which the connector would fail, so it cannot be snapshotted" in hint
    )


def test_a_topic_without_keys_has_one_partition() -> None:
    world = World(frozenset({"public.a", "public.b", "public.c"}))
    world.columns = {"public.a": _columns("v"), "public.b": _columns("id"), "public.c": _columns("v")}
    capture = replace(CAPTURE, partitions=4)
    goal = target({name: f"public.{name}" for name in "abc"}, capture=capture, new=["a", "b", "c"])
    goal = replace(goal, tables=tuple(replace(t, key=("v",)) if t.object_id == "c" else t for t in goal.tables))
    topics = [step.topic for step in plan(goal, world.inspect(goal)).steps if isinstance(step, CreateTopic)]
    partitions = {topic.name: topic.partitions for topic in topics}
    assert [partitions[f"shop.public.{name}"] for name in "abc"] == [1, 4, 4]


@pytest.mark.parametrize("key", [(), ("tid",)])
def test_a_table_that_nobody_could_update_is_not_published(key: tuple[str, ...]) -> None:
    world = World(frozenset({"public.Odd", "public.b"}), keyless=frozenset({"public.Odd"}))
    world.columns = {"public.Odd": _columns("tid", "delta"), "public.b": _columns("id")}
    goal = target({"a": "public.Odd", "b": "public.b"}, new=["a", "b"])
    goal = replace(goal, tables=tuple(replace(t, key=key) if t.object_id == "a" else t for t in goal.tables))

    def found(wanted: Wanted, **published: Any) -> Found:
        all_ = world.inspect(wanted)
        assert all_.database is not None
        tables = {**all_.database.tables, "public.Odd": FoundTable(NOTHING, has_key=False)}
        return replace(all_, database=replace(all_.database, tables=tables, **published))

    with pytest.raises(UpstreamError, match=r'table "public\.Odd" has no replica identity') as refusal:
        plan(goal, found(goal))
    assert refusal.value.code == "replica-identity"
    assert 'ALTER TABLE public."Odd" REPLICA IDENTITY FULL' in refusal.value.hint
    # One that lost its key later, while it was not published, is left out, and the others go on.
    standing = replace(goal, declared=None)
    steps = plan(standing, found(standing))
    published = [step.tables for step in steps.steps if isinstance(step, CreatePublication)]
    assert published == [("public.b",)]
    assert any('ALTER TABLE public."Odd" REPLICA IDENTITY FULL' in hint for hint in steps.hints)
    # Another's publication has it already: lakehold changes nothing about that.
    own = FoundPublication(is_own=False, is_for_all=True, tables=frozenset({"public.Odd", "public.b"}))
    assert plan(goal, found(goal, publication=own)).steps
