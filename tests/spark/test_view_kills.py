"""A publisher that dies while a view starts over, or merges many timestamps as one: the view equals its query afterwards."""

from __future__ import annotations

from types import ModuleType

import pytest

from lakehold.failpoints import Point
from lakehold.lake import Lake
from lakehold.model.summary_keys import RESTARTED_PROPERTY
from lakehold.publish import view_publisher
from lakehold.tables import write_audit_publish
from tests.conftest import LakeFactory
from tests.materialized_views import shown
from tests.published_shop import Shop, publish_and_die

pytestmark = pytest.mark.spark

QUERY = "SELECT v, id FROM shop.t"
POINTS: list[tuple[ModuleType, Point]] = [
    (view_publisher, "before-publication"),
    (write_audit_publish, "before-publish"),
    (view_publisher, "after-publication"),
]


@pytest.fixture
def shop(make_lake: LakeFactory) -> Shop:
    made = Shop(make_lake)
    made.write((1, "a"), (2, "b"))
    return made


def restarts(lake: Lake) -> int:
    """Count the timestamps at which the view's table started over, without branches that were never published."""
    table = lake.catalog.load_table("bi.v")
    found, snapshot = set[str](), table.current_snapshot()
    while snapshot is not None:
        if snapshot.summary is not None and RESTARTED_PROPERTY in snapshot.summary.additional_properties:
            found.add(snapshot.summary.additional_properties[RESTARTED_PROPERTY])
        parent = snapshot.parent_snapshot_id
        snapshot = table.snapshot_by_id(parent) if parent is not None else None
    return len(found)


@pytest.mark.parametrize("key", [pytest.param("", marks=pytest.mark.soak), "KEY (id)"])
def test_a_view_killed_while_it_starts_over_shows_its_query_afterwards(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    lake = shop.lake
    lake.sql(f"CREATE MATERIALIZED VIEW bi.v {key} WITH (ON LAPSE = 'resnapshot') AS {QUERY}")
    lake.publish("bi.v")
    for number, (module, point) in enumerate(POINTS):
        shop.write((10 + number, "new"), (9 + number, None))
        shop.write((1, f"value {number}"))
        shop.lapse()
        publish_and_die(lake, "bi.v", monkeypatch, point, module)
    shop.write((3, "c"))
    lake.publish("bi.v")
    assert restarts(lake) == 1, "only the death after the commit left a restart, and it was not repeated"
    assert lake.verify("bi.v").is_equal
    assert shown(lake, "SELECT * FROM bi.v", upper_ms(lake) - 1) == shown(lake, QUERY, upper_ms(lake) - 1)
    assert list(lake.catalog.load_table("bi.v").metadata.refs) == ["main"]


@pytest.mark.parametrize(
    "made",
    [
        pytest.param("WITH (REFRESH = 'latest')", marks=pytest.mark.soak),
        "KEY (id) WITH (REFRESH = 'latest')",
        pytest.param("KEY (v)", marks=pytest.mark.soak),
    ],
)
def test_a_view_killed_while_it_merges_timestamps_as_one_shows_its_query_afterwards(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    """Kill the merge of timestamps of which the first ones violate `KEY (v)`, so that this view merges them as one, too."""
    lake = shop.lake
    lake.sql(f"CREATE MATERIALIZED VIEW bi.v {made} AS {QUERY}")
    lake.publish("bi.v")
    for number, (module, point) in enumerate(POINTS):
        shop.write((10, "b"), (1, f"value {number}"))
        shop.write((20 + number, f"new {number}"))
        shop.write((10, f"other {number}"), (19 + number, None))
        publish_and_die(lake, "bi.v", monkeypatch, point, module)
    shop.write((3, "c"))
    lake.publish("bi.v")
    times = [version.mz_timestamp for version in lake.timelines.of(["bi.v"])["bi.v"].versions]
    assert 3 <= len(times) <= 4, "the first rows, the merge whose death came after it, and the rest"
    for at_ms in [*times, upper_ms(lake) - 1]:
        assert shown(lake, "SELECT * FROM bi.v", at_ms) == shown(lake, QUERY, at_ms)
    assert lake.verify("bi.v").is_equal
    assert list(lake.catalog.load_table("bi.v").metadata.refs) == ["main"]


def upper_ms(lake: Lake) -> int:
    return lake.timelines.of(["bi.v"])["bi.v"].upper_ms
