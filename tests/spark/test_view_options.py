"""Options of materialized views: what happens to keys that are not unique, after a lapse, and which timestamps are shown."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from lakehold.errors import LakeholdError, SubscriberLapsed
from lakehold.lake import Lake
from lakehold.overview.gather import gather
from lakehold.overview.table_problems import problems_of
from lakehold.overview.table_status import State
from lakehold.publish.subscriptions import VIEW_COLUMNS
from lakehold.status import status_of
from tests.conftest import LakeFactory
from tests.materialized_views import assert_equal_at_every_timestamp, shown
from tests.published_shop import Shop

pytestmark = pytest.mark.spark

QUERY = "SELECT v, id FROM shop.t"


@pytest.fixture
def shop(make_lake: LakeFactory) -> Shop:
    # Settings about what people may write switch nothing off that lakehold does.
    made = Shop(partial(make_lake, enable_envelope_debezium_in_subscribe=False))
    made.write((1, "a"), (2, "b"))
    return made


def view_row(lake: Lake, name: str = "bi.v") -> dict[str, object]:
    rows = (dict(zip(VIEW_COLUMNS, row, strict=True)) for row in lake.sql("SHOW MATERIALIZED VIEWS").rows)
    return next(row for row in rows if row["name"] == name)


def problems(lake: Lake) -> list[str]:
    facts = {table.name: table for table in gather(lake).tables}["bi.v"]
    return [problem.text for problem in problems_of(facts)]


def test_a_view_whose_keys_are_not_unique_stops_alone_and_continues_when_they_are(shop: Shop) -> None:
    lake = shop.lake
    lake.sql(f"CREATE MATERIALIZED VIEW bi.v KEY (v) AS {QUERY}")
    lake.publish("bi.v")
    shop.write((3, "b"), (4, "c"))
    shop.write((5, "c"))
    with pytest.raises(LakeholdError, match="1 key of") as refused:
        lake.publish("bi.v")
    assert refused.value.code == "view-key"
    found = view_row(lake)
    assert (found["state"], found["key_violations"]) == ("stopped", 0)
    assert str(found["stopped_by"]).startswith("view-key: ")
    assert status_of(lake).rows[-1][2] == "stopped"
    assert status_of(lake).rows[-1][7] == found["stopped_by"]
    assert problems(lake) == [f"stopped: {refused.value.message}"]
    assert {table.name: table.state for table in gather(lake).tables}["bi.v"] is State.STOPPED
    shop.write((3, None), (2, "d"), (4, None))
    (report,) = lake.publish("bi.v")
    assert report.rows == 3
    assert view_row(lake)["state"] == "idle"
    assert problems(lake) == []
    at_ms = report.position_ms - 1
    assert shown(lake, "SELECT * FROM bi.v", at_ms) == Counter({("a", 1): 1, ("d", 2): 1, ("c", 5): 1})
    assert lake.verify("bi.v").is_equal
    shop.write((6, "e"))
    shop.write((7, "f"))
    assert len(lake.publish("bi.v")) > 1, "each timestamp is shown again"


def test_a_view_keeps_and_counts_rows_whose_keys_are_equal(shop: Shop) -> None:
    lake = shop.lake
    lake.sql(f"CREATE MATERIALIZED VIEW bi.v KEY (v) WITH (ON KEY VIOLATION = 'keep') AS {QUERY}")
    counts = []
    for rows in ([(3, "a")], [(4, "b"), (5, "c")], [(3, None), (6, "c")], [(6, "d"), (2, None), (4, None), (1, "d")]):
        shop.write(*rows)
        lake.publish("bi.v")
        counts.append(view_row(lake)["key_violations"])
    assert counts == [1, 2, 2, 1]
    assert assert_equal_at_every_timestamp(lake, "bi.v", QUERY) >= 5
    assert status_of(lake).rows[-1][5:7] == (3, 1)
    assert problems(lake) == ["1 key with several rows"]
    assert lake.verify("bi.v").is_equal
    with pytest.raises(LakeholdError, match="needs a key"):
        lake.sql(f"CREATE MATERIALIZED VIEW bi.w WITH (ON KEY VIOLATION = 'keep') AS {QUERY}")


def test_a_view_that_stopped_can_keep_equal_keys_and_stop_again_when_there_are_none(shop: Shop) -> None:
    lake = shop.lake
    lake.sql(f"CREATE MATERIALIZED VIEW bi.v KEY (v) AS {QUERY}")
    lake.publish("bi.v")
    shop.write((3, "b"))
    shop.write((4, "b"))
    with pytest.raises(LakeholdError, match=r"SET \(ON KEY VIOLATION = 'keep'\)"):
        lake.publish("bi.v")
    lake.sql("ALTER MATERIALIZED VIEW bi.v SET (ON KEY VIOLATION = 'keep')")
    assert len(lake.publish("bi.v")) > 1, "no timestamp is skipped"
    assert (view_row(lake)["state"], view_row(lake)["key_violations"]) == ("idle", 1)
    assert lake.catalog.load_table("bi.v").properties["lakehold.key"] == "[]"
    lake.sql("ALTER MATERIALIZED VIEW bi.v RESET (ON KEY VIOLATION)")
    shop.write((4, None))
    with pytest.raises(LakeholdError, match=r"1 key of .* have more than one row") as refused:
        lake.publish("bi.v")
    assert refused.value.code == "view-key"
    lake.sql("ALTER MATERIALIZED VIEW bi.v SET (ON KEY VIOLATION = 'keep')")
    shop.write((3, None))
    lake.publish("bi.v")
    lake.sql("ALTER MATERIALIZED VIEW bi.v SET (ON KEY VIOLATION = 'stop')")
    shop.write((5, "e"))
    lake.publish("bi.v")
    assert lake.catalog.load_table("bi.v").properties["lakehold.key"] == "v"
    assert assert_equal_at_every_timestamp(lake, "bi.v", QUERY) >= 6
    shop.write((6, "e"))
    with pytest.raises(LakeholdError, match="would have more than one row"):
        lake.publish("bi.v")


@pytest.mark.parametrize("made", ["", "KEY (v) WITH (FORMAT VERSION = 2)"])
def test_a_view_that_cannot_tell_equal_rows_apart_refuses_to_keep_them(shop: Shop, made: str) -> None:
    shop.lake.sql(f"CREATE MATERIALIZED VIEW bi.v {made} AS {QUERY}")
    with pytest.raises(LakeholdError) as refused:
        shop.lake.sql("ALTER MATERIALIZED VIEW bi.v SET (ON KEY VIOLATION = 'keep')")
    assert refused.value.code == "view-keep"


@pytest.mark.parametrize("key", ["", "KEY (id)", "KEY (v)"])
def test_a_view_that_fell_behind_starts_over_if_it_says_so(shop: Shop, key: str) -> None:
    lake = shop.lake
    options = "ON KEY VIOLATION = 'keep', ON LAPSE = 'resnapshot'" if "v" in key else "ON LAPSE = 'resnapshot'"
    lake.sql(f"CREATE MATERIALIZED VIEW bi.v {key} WITH ({options}) AS {QUERY}")
    lake.sql(f"CREATE MATERIALIZED VIEW bi.stops AS {QUERY}")
    for view in ("bi.v", "bi.stops"):
        lake.publish(view)
    lake.sql("CREATE SUBSCRIPTION s INTO bi.out AS SUBSCRIBE bi.v")
    lake.publish("s")
    shop.write((3, "a"), (1, None))
    shop.write((2, "a"))
    for hold in lake.holds.all():
        if "shop.t" in [table.full_name for table in hold.tables]:
            lake.subscriptions.holds.advance(hold.name, lake.timelines.of(["shop.t"])["shop.t"].upper_ms - 1)
    with pytest.raises(SubscriberLapsed) as lapsed:
        lake.publish("bi.stops")
    assert "ON LAPSE = 'resnapshot'" in lapsed.value.hint
    assert view_row(lake, "bi.stops")["state"] == "lapsed"
    assert view_row(lake)["state"] == "lapsed"
    (report,) = lake.publish("bi.v")
    assert (report.restarted, report.rows) == (True, 2)
    assert view_row(lake)["state"] == "idle"
    assert lake.verify("bi.v").is_equal
    assert view_row(lake)["key_violations"] == (1 if "v" in key else 0)
    shop.write((4, "d"))
    assert not any(report.restarted for report in lake.publish("bi.v"))
    # Those that read the view lose nothing: they see the rows of before go, and the others come.
    lake.publish("s")
    net = Counter[tuple[object, ...]]()
    for row in shop.output():
        net[row["v"], row["id"]] += row["mz_diff"]
    assert +net == Counter({("a", 3): 1, ("a", 2): 1, ("d", 4): 1})


def test_a_view_of_the_latest_timestamp_merges_all_changes_at_once(shop: Shop) -> None:
    lake = shop.lake
    lake.catalog.create_table("shop.u", lake.catalog.load_table("shop.t").schema())
    shop.write((1, "one"), name="shop.u")
    query = "SELECT t.id, t.v, u.v AS other FROM shop.t JOIN shop.u ON t.id = u.id"
    lake.sql(f"CREATE MATERIALIZED VIEW bi.v KEY (id) WITH (REFRESH = 'latest') AS {query}")
    ((_, text),) = lake.sql("SHOW CREATE MATERIALIZED VIEW bi.v").rows
    assert "WITH (REFRESH 'latest')" in text
    shop.write((2, "c"))
    (first,) = lake.publish("bi.v")
    shop.write((2, "two"), name="shop.u")
    shop.write((1, "d"))
    shop.write((1, "e"))
    shop.write((1, None), name="shop.u")
    (second,) = lake.publish("bi.v")
    assert (first.rows, second.rows) == (1, 2)
    assert lake.publish("bi.v") == []
    timelines = lake.timelines.of(["bi.v", "shop.u"])
    assert second.position_ms - 1 == timelines["shop.u"].versions[-1].mz_timestamp
    assert shown(lake, "SELECT * FROM bi.v", second.position_ms - 1) == Counter({(2, "c", "two"): 1})
    assert lake.verify("bi.v").is_equal
    assert len(timelines["bi.v"].versions) == 2
