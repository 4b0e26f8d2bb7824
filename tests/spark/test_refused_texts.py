"""Subscriptions and views whose stored text this version refuses: they are listed and dropped, and stop alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakehold.errors import StatementError
from lakehold.overview.gather import gather
from tests.conftest import LakeFactory
from tests.published_shop import Shop

pytestmark = pytest.mark.spark

CREATED = (
    "SUBSCRIPTION s INTO bi.out AS SUBSCRIBE shop.t",
    "SUBSCRIPTION s INTO bi.out AS SUBSCRIBE shop.t ENVELOPE HISTORY (KEY (id))",
    "MATERIALIZED VIEW bi.out AS SELECT id, v FROM shop.t",
)


def an_earlier_version_took(shop: Shop, query: str) -> None:
    """Store `query` as that of everything that is published."""
    defined = shop.lake.definitions.definitions()
    for subscription in defined.subscriptions.values():
        subscribe = replace(subscription.definition, subscribe=f"SUBSCRIBE ({query})")
        shop.lake.definitions.change(lambda now: now.with_entry(replace(subscription, definition=subscribe)))  # noqa: B023
    for view in defined.views.values():
        selects = replace(view.definition, query=query)
        shop.lake.definitions.change(lambda now: now.with_entry(replace(view, definition=selects)))  # noqa: B023


def rows(shop: Shop, kind: str) -> list[tuple[object, ...]]:
    return shop.lake.sql(f"SHOW {kind}S").rows


@pytest.mark.parametrize("create", CREATED)
def test_a_text_that_is_refused_now_stops_its_publisher_alone_and_is_dropped_with_its_output(
    make_lake: LakeFactory, create: str
) -> None:
    shop = Shop(make_lake)
    shop.write((1, "a"))
    shop.lake.sql(f"CREATE {create}")
    kind, name = ("MATERIALIZED VIEW", "bi.out") if "VIEW" in create else ("SUBSCRIPTION", "s")
    shop.lake.publish(name)
    listed = rows(shop, kind)
    an_earlier_version_took(shop, 'SELECT * FROM "shop"."t"')
    with pytest.raises(StatementError):
        shop.lake.publish(name)
    assert rows(shop, kind) == listed
    assert [follower.name for follower in gather(shop.lake).followers] == [name]
    shop.lake.sql(f"DROP {kind} {name} CASCADE")
    assert not shop.lake.catalog.table_exists("bi.out")
    assert shop.lake.holds.all() == ()
    shop.lake.sql(f"CREATE {create}")
    shop.lake.publish(name)
