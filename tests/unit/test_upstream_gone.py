"""Captured tables that their database has no more stop, and are snapshotted once there is a table of their name again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from lakehold.definitions import Capture
from lakehold.errors import TableGone, UpstreamRefused
from lakehold.upstream.found.found import Found, FoundRelation
from lakehold.upstream.found.shapes import Shape
from lakehold.upstream.plan.capture_plan import plan, plan_resnapshot
from lakehold.upstream.plan.capture_steps import RecordFirstSnapshot, RecordMissed, RequestSnapshot, RestartConnector
from lakehold.upstream.report.hints import fault_hints
from lakehold.upstream.report.stops import Stops, stops_of
from lakehold.upstream.wanted.wanted import Wanted
from tests.upstream_world import CAPTURE, OF_MARIADB, World, reconcile, target

_NAMES = {"a": "public.a", "b": "public.b"}


def _shape(table: str) -> Shape:
    return {
        "table": table,
        "name": ["10", "700"],
        "columns": {},
        "records": {},
        "files": {},
        "partitions": {},
        "labels": {},
    }


class _Shop:
    """A captured database with the tables `public.a` and `public.b`."""

    def __init__(self, capture: Capture = CAPTURE, keyless: frozenset[str] = frozenset()) -> None:
        self.world = World(frozenset(_NAMES.values()), is_mariadb=capture is OF_MARIADB, keyless=keyless)
        self.shapes({"public.a": "1", "public.b": "2"})
        self.goal = target(_NAMES, capture=capture)
        assert reconcile(self.world, self.goal)
        self.world.ingest()

    def shapes(self, object_ids: Mapping[str, str]) -> None:
        """Let the database have tables of these names."""
        self.world.tables = frozenset(object_ids)
        self.world.shapes = {name: _shape(object_id) for name, object_id in object_ids.items()}

    def stops(self) -> Stops:
        return stops_of(self.wanted, self.found)

    @property
    def wanted(self) -> Wanted:
        return replace(self.goal, lake=self.world.lake(self.goal))

    @property
    def found(self) -> Found:
        return self.world.inspect(self.goal)


@pytest.fixture(params=[CAPTURE, OF_MARIADB], ids=["postgres", "mariadb"])
def shop(request: pytest.FixtureRequest) -> _Shop:
    return _Shop(request.param)


def test_a_dropped_table_stops_until_a_new_one_of_its_name_is_snapshotted(shop: _Shop) -> None:
    assert shop.stops() == Stops()
    shop.shapes({"public.b": "2"})
    (stop,) = shop.stops().tables.values()
    assert (stop.code, stop.table) == ("table-gone", "shop.a")
    assert stop.message == 'table "shop.a" gets no more changes: public.a is not in the database any more'
    assert stop.hint.startswith("DROP TABLE shop.a, or leave it for its history.")

    planned = plan(shop.wanted, shop.found)
    assert planned.steps == (RecordMissed("shop", {"a": "public.a"}),)
    assert list(fault_hints(shop.wanted, shop.found)) == [*planned.hints]
    assert reconcile(shop.world, shop.goal)
    assert RecordFirstSnapshot("shop", {"b": "public.b"}) in plan_resnapshot(shop.wanted, shop.found).steps

    shop.shapes({"public.a": "3", "public.b": "2"})
    stops = shop.stops()
    assert (stops.tables, [*stops.returned]) == ({}, ["a"])
    assert stops.returned["a"].message == 'table "shop.a" waits for a snapshot'
    requests = [step for step in plan(shop.wanted, shop.found).steps if isinstance(step, RequestSnapshot)]
    assert [request.upstream for request in requests] == ["public.a"]
    assert requests[0].repeat is not None, "rows that it does not bring are deleted"
    assert reconcile(shop.world, shop.goal)
    assert shop.stops() == Stops()


@pytest.mark.parametrize("is_recreated", [False, True])
def test_a_table_that_lakehold_may_not_publish_stops_alone_until_somebody_publishes_it(is_recreated: bool) -> None:
    """Take a table out of the publication as a superuser does, or create it again as another user."""
    shop = _Shop()
    shop.world.unpublish("public.a")
    if is_recreated:
        shop.shapes({"public.a": "3", "public.b": "2"})
        shop.world.foreign = frozenset({"public.a"})
    else:
        shop.world.may_publish = False
    stops = shop.stops()
    assert stops.returned == {}
    assert (stops.tables["a"].code, stops.tables["a"].hint) == (
        "table-unpublished",
        "ALTER PUBLICATION p ADD TABLE public.a, by a user who may: the table then continues after a snapshot. Or DROP TABLE "
        "shop.a.",
    )
    shop.world.state, shop.world.trace = "RUNNING", "the worker was restarted"
    planned = plan(shop.wanted, shop.found)
    assert planned.steps == (
        RecordMissed("shop", {"a": "public.a"}),
        RestartConnector("shop", "the worker was restarted"),
    )
    assert [hint for hint in planned.hints if "does not list public.a any more" in hint]
    assert reconcile(shop.world, shop.goal)
    with pytest.raises(UpstreamRefused, match=r"may not add public\.a"):
        plan(replace(shop.wanted, declared=frozenset({"a"})), shop.found)

    shop.world.publish({"public.a", "public.b"})
    stops = shop.stops()
    assert (stops.tables, [*stops.returned]) == ({}, ["a"])
    requests = [step for step in plan(shop.wanted, shop.found).steps if isinstance(step, RequestSnapshot)]
    assert [request.upstream for request in requests] == ["public.a"]
    assert requests[0].repeat is not None, "rows that it does not bring are deleted"
    assert reconcile(shop.world, shop.goal)
    assert shop.stops() == Stops()


@pytest.mark.parametrize(
    ("name", "back"),
    [("public.Sold", ', ALTER TABLE public."Sold" RENAME TO a: it'), ("old.a", ": it")],
    ids=["renamed", "moved to another schema"],
)
def test_a_renamed_table_stops_with_the_statements_that_continue_it(name: str, back: str) -> None:
    shop = _Shop()
    shop.shapes({name: "1", "public.b": "2"})
    stop = shop.stops().tables["a"]
    assert stop.detail == f"It is called {name} now, and connector shop captures tables by name."
    lake = {"public.Sold": "`Sold`", "old.a": "a"}[name]
    assert stop.hint == (
        f"CREATE TABLE shop.{lake} FROM SOURCE shop (TABLE '{name}') ENVELOPE DEBEZIUM; DROP TABLE shop.a. Or give the table "
        f"its name back in the database{back} then continues after a snapshot."
    )


def test_a_table_whose_new_name_is_captured_is_only_to_be_dropped() -> None:
    shop = _Shop()
    shop.shapes({"public.b": "1"})
    assert shop.stops().tables["a"].hint.startswith("DROP TABLE shop.a. Or give public.a its name back")


def test_a_table_without_a_key_waits_for_a_snapshot_of_all_tables() -> None:
    shop = _Shop(keyless=frozenset({"public.a"}))
    shop.shapes({"public.b": "2"})
    assert reconcile(shop.world, shop.goal)
    shop.shapes({"public.a": "3", "public.b": "2"})
    assert reconcile(shop.world, shop.goal)
    assert shop.stops().returned["a"].hint.startswith("ALTER SOURCE shop RESNAPSHOT")
    for step in plan_resnapshot(shop.wanted, shop.found).steps:
        shop.world.apply_step(step)
    assert shop.stops() == Stops()


def test_a_table_that_the_user_of_mariadb_may_not_see_any_more_does_not_stop() -> None:
    shop = _Shop(OF_MARIADB)
    hidden = replace(shop.found, relations={"public.b": shop.found.relations["public.b"]})
    assert stops_of(shop.wanted, hidden) == Stops()
    with pytest.raises(UpstreamRefused, match=r'may not read table "public\.a"') as refusal:
        plan_resnapshot(shop.wanted, hidden)
    assert refusal.value.hint == "GRANT SELECT ON public.a TO u;"
    view = replace(shop.found, relations={**shop.found.relations, "public.a": FoundRelation("view")})
    assert isinstance(stops_of(shop.wanted, view).tables["a"], TableGone), "a view has its name"
