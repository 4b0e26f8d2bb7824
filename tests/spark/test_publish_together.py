"""`lakehold publish` of several views: they are refreshed side by side, in sessions that do not mix, each after what it reads."""

from __future__ import annotations

import io
import itertools
import json
import threading
from contextlib import AbstractContextManager
from typing import Any

import pytest

from lakehold.cli.command_output import JsonOutput
from lakehold.cli.publish import run_publish
from lakehold.lake import Lake
from lakehold.model.summary_keys import SOURCE_PROPERTY
from lakehold.progress import NoProgress
from lakehold.state.lease import leased
from tests.conftest import LakeFactory
from tests.materialized_views import assert_equal_at_every_timestamp
from tests.published_shop import Shop

pytestmark = pytest.mark.spark

_VIEWS = {
    "bi.counts": ("KEY (v)", "SELECT v, count(*) AS n FROM shop.t GROUP BY v", "shop.t"),
    "bi.totals": ("", "SELECT sum(n) AS total FROM bi.counts", "bi.counts"),
    "bi.names": ("KEY (id)", "SELECT id, upper(v) AS name FROM shop.t", "shop.t"),
    "bi.short": ("", "SELECT id FROM shop.t WHERE length(v) = 1", "shop.t"),
    "bi.named": ("", "SELECT name, count(*) AS n FROM bi.names GROUP BY name", "bi.names"),
}


def _publish_all(lake: Lake) -> list[str]:
    """Publish as the command does; return the tables in the order of their commits."""
    shown = io.StringIO()
    assert run_publish(lake, None, JsonOutput(shown, io.StringIO()), NoProgress(), follow=False) == 0
    return [json.loads(line)["table"] for line in shown.getvalue().splitlines()]


def test_views_are_refreshed_side_by_side(make_lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(make_lake, tables_at_once=3)
    lake = shop.lake
    shop.write((1, "a"), (2, "b"), (3, "long"))
    for view, (key, query, _) in _VIEWS.items():
        lake.sql(f"CREATE MATERIALIZED VIEW {view} {key} AS {query}")
    numbers, met = itertools.count(), threading.Barrier(2)

    def meeting(*arguments: Any) -> AbstractContextManager[Any]:
        if next(numbers) < met.parties:
            met.wait(60)
        return leased(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr("lakehold.publish.publisher.leased", meeting)
        committed = _publish_all(lake)
    assert committed.index("bi.counts") < committed.index("bi.totals")
    assert committed.index("bi.names") < committed.index("bi.named")
    for changes in (((1, "b"), (4, "a")), ((2, None), (3, "c"))):
        shop.write(*changes)
        assert set(_publish_all(lake)) == {*_VIEWS}
    owners = set()
    for view, (_, query, table) in _VIEWS.items():
        assert assert_equal_at_every_timestamp(lake, view, query, [table]) >= 3
        state = lake.tables.table_state(view)
        assert state is not None
        (owner,) = {each.summary[SOURCE_PROPERTY] for each in state.history if SOURCE_PROPERTY in each.summary}
        owners.add(owner)
    assert len(owners) == len(_VIEWS), "no commit has the properties of another view's"
