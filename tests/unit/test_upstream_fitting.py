"""The configuration of a connector, which follows the columns of its tables, and keeps the types of existing tables."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from pyiceberg.types import DecimalType, IcebergType, LongType, StringType

from lakehold.definitions import Capture
from lakehold.upstream.found.columns import FoundColumn, FoundType
from lakehold.upstream.plan.capture_plan import plan
from lakehold.upstream.plan.capture_steps import ConfigureConnector, CreateConnector
from tests.upstream_world import CAPTURE, OF_MARIADB, World, reconcile, target

_UNSIGNED = "bigint.unsigned.handling.mode"
_INTERVALS = "interval.handling.mode"
_DURATION = FoundColumn("took", "interval", FoundType("interval", "interval"))
_OUT = FoundColumn("to.day", "interval[]", FoundType("interval", "interval"), is_array=True, dimensions=1)
_DOMAIN = FoundColumn("body", "raw", FoundType("bytea", "bytea"), domain="raw")
_LARGE = FoundColumn("n", "bigint(20) unsigned", FoundType("bigint", "bigint(20) unsigned"))


def test_an_added_column_that_is_never_sent_is_skipped() -> None:
    world = World(frozenset({"public.a"}))
    goal = target({"a": "public.a"})
    assert reconcile(world, goal)
    assert world.config is not None
    assert "column.exclude.list" not in world.config
    world.columns = {"public.a": (_OUT, _DOMAIN)}
    planned = plan(goal, world.inspect(goal))
    assert any(isinstance(step, ConfigureConnector) for step in planned.steps)
    assert "column public.a.to.day (interval[]) is left out: Debezium sends no arrays of this type" in planned.hints
    assert reconcile(world, goal)
    assert world.config["column.exclude.list"] == r"(?-i:public\.a\.to\.day)"


def test_the_connector_reads_invisible_columns_by_their_names() -> None:
    seen, hidden = (FoundColumn(name, "int(11)", FoundType("int", "int(11)")) for name in ("seen", "hidden"))
    world = World(frozenset({"shop.t"}), is_mariadb=True, columns={"shop.t": (seen, hidden)})
    goal = target({"a": "shop.t"}, capture=OF_MARIADB)
    assert reconcile(world, goal)
    assert world.config is not None
    assert "column.exclude.list" not in world.config
    world.columns = {"shop.t": (seen, replace(hidden, is_invisible=True))}
    assert reconcile(world, goal)
    assert world.config["column.exclude.list"] == r"(?-i:lakehold\.no\.column)"


def test_an_added_column_with_the_avro_name_of_another_is_skipped() -> None:
    a_b, added = (FoundColumn(name, "integer", FoundType("int4", "integer")) for name in ("a-b", "a_b"))
    world = World(frozenset({"public.a"}), columns={"public.a": (a_b,)})
    goal = target({"a": "public.a"})
    avro = {"value.converter": "io.confluent.connect.avro.AvroConverter"}
    goal = replace(goal, config={**goal.config, **avro})
    assert reconcile(world, goal)
    world.columns = {"public.a": (a_b, added)}
    (message,) = [hint for hint in plan(goal, world.inspect(goal)).hints if "a_b" in hint]
    assert message.startswith(
        "column public.a.a_b (integer) is left out: in Avro Debezium calls it a_b, as it does a-b"
    )
    assert "ALTER TABLE public.a RENAME COLUMN a_b TO …" in message
    assert reconcile(world, goal)
    assert world.config is not None
    assert world.config["column.exclude.list"] == r"(?-i:public\.a\.a_b)"
    world.columns = {"public.a": (replace(a_b, is_key=False), replace(added, is_key=True))}
    assert reconcile(world, goal)
    assert world.config["column.exclude.list"] == r"(?-i:public\.a\.a\-b)"
    world.columns = {"public.a": (a_b,)}
    assert reconcile(world, goal)
    assert "column.exclude.list" not in world.config


@pytest.mark.parametrize(
    ("type_name", "is_typed"),
    [("PAIR", True), ('"pair"', True), ("int4range_own", True), ("BYTEA", False), ("_bytea", False), ("INT4", False)],
)
def test_columns_carry_the_name_of_a_type_that_debezium_does_not_know(type_name: str, is_typed: bool) -> None:
    for columns in ((), (_DOMAIN,)):
        world = World(frozenset({"public.a"}), columns={"public.a": columns})
        goal = target({"a": "public.a"})
        (made,) = [step for step in plan(goal, world.inspect(goal)).steps if isinstance(step, CreateConnector)]
        typed = re.compile(made.config["datatype.propagate.source.type"], re.IGNORECASE)
        assert (typed.fullmatch(f"public.a.{type_name}") is not None) == is_typed
        assert (typed.fullmatch('public.a."public"."raw"') is None) == bool(columns)


def test_unsigned_numbers_are_exact_except_for_an_older_connector() -> None:
    world = World(frozenset({"shop.a"}), is_mariadb=True, columns={"shop.a": (_LARGE,)})
    goal = target({"a": "shop.a"}, capture=OF_MARIADB)
    assert reconcile(world, goal)
    assert world.config is not None
    assert world.config[_UNSIGNED] == "precise"
    assert not any("negative" in hint for hint in plan(goal, world.inspect(goal)).hints)

    del world.config[_UNSIGNED]
    planned = plan(goal, replace(world.inspect(goal)))
    assert planned.steps == ()
    (message,) = [hint for hint in planned.hints if "negative" in hint]
    assert message.startswith("column shop.a.n (bigint(20) unsigned): numbers from 9223372036854775808 on")


def test_intervals_are_exact_except_for_an_older_connector() -> None:
    world = World(frozenset({"public.a"}), columns={"public.a": (_DURATION,)})
    goal = target({"a": "public.a"})
    assert reconcile(world, goal)
    assert world.config is not None
    assert world.config[_INTERVALS] == "string"
    assert not any("30.4375" in hint for hint in plan(goal, world.inspect(goal)).hints)

    del world.config[_INTERVALS]
    planned = plan(goal, world.inspect(goal))
    assert planned.steps == ()
    (message,) = [hint for hint in planned.hints if "30.4375" in hint]
    assert message.startswith("column public.a.took (interval): a month comes as 30.4375 days")


@pytest.mark.parametrize(
    ("column", "capture", "option", "in_lake", "listed", "is_set"),
    [
        (_LARGE, OF_MARIADB, _UNSIGNED, LongType(), (), False),
        (_LARGE, OF_MARIADB, _UNSIGNED, LongType(), ("n",), True),
        (_LARGE, OF_MARIADB, _UNSIGNED, DecimalType(20, 0), (), True),
        (_LARGE, OF_MARIADB, _UNSIGNED, None, (), True),
        (_DURATION, CAPTURE, _INTERVALS, LongType(), (), False),
        (_DURATION, CAPTURE, _INTERVALS, LongType(), ("took",), False),
        (_DURATION, CAPTURE, _INTERVALS, StringType(), (), True),
    ],
)
def test_a_lost_connector_is_recreated_with_the_types_of_the_lake(
    column: FoundColumn,
    capture: Capture,
    option: str,
    in_lake: IcebergType | None,
    listed: tuple[str, ...],
    is_set: bool,
) -> None:
    name = "shop.a" if capture is OF_MARIADB else "public.a"
    world = World(frozenset({name}), is_mariadb=capture is OF_MARIADB, columns={name: (column,)})
    goal = target({"a": name}, capture=capture)
    goal = replace(goal, tables=tuple(replace(table, columns=listed) for table in goal.tables))
    types = {column.name: in_lake} if in_lake is not None else {}
    planned = plan(goal, replace(world.inspect(goal), lake_types={"a": types}))
    (made,) = [step for step in planned.steps if isinstance(step, CreateConnector)]
    assert (option in made.config) == is_set
