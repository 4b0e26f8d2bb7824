"""AS OF AT LEAST: the first time from the wanted one on at which all tables are readable; times count from `START_MS`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakehold.errors import NotReadable
from lakehold.settings import load_settings
from lakehold.state.catalog_opening import open_catalog
from lakehold.timeline.as_of import EARLIEST, LATEST, AsOf
from lakehold.timeline.timelines import check_readable
from tests.dated_tables import FED, FOREIGN, LAG_MS, START_MS, Shop


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    catalog = open_catalog(load_settings(warehouse=str(tmp_path)))
    catalog.create_namespace("shop")
    shop = Shop(catalog)
    monkeypatch.setattr("pyiceberg.table.snapshots.time", shop.clock)
    monkeypatch.setattr("pyiceberg.table.update.datetime", shop.clock)
    yield shop
    catalog.close()


def resolved(shop: Shop, as_of: AsOf, *names: str) -> int:
    found = list(as_of.load(shop.timelines, names).values())
    at_ms = as_of.resolve(found)
    check_readable(found, at_ms)
    assert all(timeline.at(at_ms) is not None for timeline in found)
    return at_ms - START_MS


def at_least(ms: int) -> AsOf:
    return AsOf(START_MS + ms, at_least=True)


def test_a_readable_time_stays_and_an_earlier_one_becomes_the_first(shop: Shop) -> None:
    shop.write(FOREIGN, 100)
    shop.write(FOREIGN, 200)
    shop.clock.ms = 10_000
    assert [resolved(shop, at_least(ms), FOREIGN) for ms in (50, 100, 150, 300)] == [100, 100, 150, 300]
    assert resolved(shop, EARLIEST, FOREIGN) == 100
    assert resolved(shop, LATEST, FOREIGN) == 10_000 - LAG_MS - 1


def test_a_time_in_the_future_is_refused(shop: Shop) -> None:
    shop.write(FOREIGN, 100)
    with pytest.raises(NotReadable):
        resolved(shop, at_least(100_000), FOREIGN)


def test_the_version_after_a_gap_replaces_an_expired_one(shop: Shop) -> None:
    _, second, _ = [shop.write(FOREIGN, ms) for ms in (100, 200, 300)]
    shop.expire(FOREIGN, second)
    shop.clock.ms = 10_000
    assert [resolved(shop, at_least(ms), FOREIGN) for ms in (150, 200, 250, 300)] == [150, 300, 300, 300]


def test_the_end_of_a_stop_replaces_a_time_in_it_for_all_tables(shop: Shop) -> None:
    shop.feed()
    for ms in (100, 200, 400):
        shop.batch(ms)
    shop.record_stop(150, 400)
    shop.write(FOREIGN, 120)
    shop.clock.ms = 10_000
    assert [resolved(shop, at_least(ms), FED, FOREIGN) for ms in (50, 149, 150, 399, 400)] == [120, 149, 400, 400, 400]


def test_a_gap_of_one_table_that_ends_in_a_stop_of_another_moves_past_both(shop: Shop) -> None:
    shop.feed()
    for ms in (100, 200, 400):
        shop.batch(ms)
    shop.record_stop(250, 400)
    _, second, _ = [shop.write(FOREIGN, ms) for ms in (120, 180, 300)]
    shop.expire(FOREIGN, second)
    shop.clock.ms = 10_000
    assert resolved(shop, at_least(190), FED, FOREIGN) == 400
