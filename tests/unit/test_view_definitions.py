"""The order in which views are refreshed and dropped, and what a statement on them would do: without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakehold.definitions import MaterializedView, Subscription, name_of
from lakehold.lake import Lake, connect
from lakehold.model.lake_definitions import AnyEntry, Entry
from lakehold.orchestration.subscription_publishing import due_subscriptions
from lakehold.sql.parse.statement import parse_script
from lakehold.sql.plan.statement_effects import EndSubscription
from lakehold.sql.plan.statement_plan import plan


def view(name: str, *tables: str) -> MaterializedView:
    return MaterializedView("bi", name, f"SELECT * FROM {tables[0]}", tables)


VIEWS = (view("z", "shop.t"), view("m", "bi.z", "shop.u"), view("a", "bi.m"), view("other", "shop.w"))
SUBSCRIPTIONS = (
    Subscription("s", "bi.s", "SUBSCRIBE bi.a", ("bi.a",)),
    Subscription("t", "bi.t", "SUBSCRIBE shop.x", ("shop.x",)),
)


ENTRIES: list[AnyEntry] = [
    *(Entry(f"id of {view.full_name}", view, "", 0) for view in VIEWS),
    *(Entry(f"id of {subscription.name}", subscription, "", 0) for subscription in SUBSCRIPTIONS),
]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with connect(str(tmp_path)) as lake:
        lake.definitions.change(lambda known: known.with_entries(ENTRIES))
        yield lake


def test_views_are_read_back_as_they_were_stored(lake: Lake) -> None:
    with connect(str(lake.settings.warehouse_path)) as again:
        assert {e.definition for e in again.definitions.definitions().views.values()} == set(VIEWS)


def test_a_view_is_refreshed_before_all_that_read_it(lake: Lake) -> None:
    groups = lake.subscriptions.together()
    assert sorted(groups) == [["bi.other"], ["bi.z", "bi.m", "bi.a", "s"], ["t"]]
    assert lake.subscriptions.together(["s", "bi.a", "t"]) == [["bi.a", "s"], ["t"]]


@pytest.mark.parametrize(
    ("changed", "due"),
    [
        (["shop.t"], ["bi.a", "bi.m", "bi.z", "s"]),
        (["shop.u"], ["bi.a", "bi.m", "s"]),
        (["shop.w"], ["bi.other"]),
        (["shop.x", "bi.a"], ["s", "t"]),
        ([], ["bi.a", "bi.m", "bi.other", "bi.z", "s", "t"]),
    ],
)
def test_a_change_makes_all_views_and_subscriptions_due_that_it_reaches(
    lake: Lake, changed: list[str], due: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = {name_of(each.definition): each for each in lake.definitions.definitions().all_derived.values()}

    class Hold:
        def __init__(self, name: str) -> None:
            self.kept_by = held[name].object_id
            self.tables = [type("Held", (), {"full_name": table}) for table in held[name].definition.tables]

    monkeypatch.setattr(type(lake.holds), "all", lambda _: [Hold(name) for name in held])
    assert due_subscriptions(lake, [], changed) == due


def test_a_drop_explains_what_it_takes_along_readers_first(lake: Lake) -> None:
    assert [row[0] for row in lake.sql("EXPLAIN DROP MATERIALIZED VIEW bi.m CASCADE").rows] == [
        "forget subscription s",
        "forget materialized view bi.a",
        "forget materialized view bi.m",
        "drop the data of table bi.a",
        "drop the data of table bi.m",
    ]
    explained = lake.sql("EXPLAIN CREATE MATERIALIZED VIEW bi.new AS SELECT id FROM shop.t").rows
    assert explained == [("declare materialized view bi.new",)]


def test_a_subscription_with_the_name_of_a_view_is_dropped_and_the_view_stays(lake: Lake) -> None:
    named = Subscription("bi.other", "bi.out", "SUBSCRIBE shop.x", ("shop.x",))
    definitions = lake.definitions.change(lambda known: known.with_entries([Entry("older", named, "", 0)]))
    (parsed,) = parse_script("DROP SUBSCRIPTION `bi.other` CASCADE")
    ended = [effect for effect in plan(parsed, definitions).effects if isinstance(effect, EndSubscription)]
    assert [effect.entry.definition for effect in ended] == [named]
