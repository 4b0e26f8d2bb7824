"""Holds with CHECK = 'require' are at times until which all rows have come: the check sees exactly the rows that are kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakehold.errors import NotReadable
from lakehold.holds.commands import HoldCommands, NewHold
from lakehold.holds.tags import TableTags
from lakehold.settings import load_settings
from lakehold.state.catalog_opening import open_catalog
from lakehold.state.holds import Check, Hold, HoldStore
from lakehold.state.store import MemoryState
from tests.dated_tables import FED, FOREIGN, LAG_MS, START_MS, Shop


class CheckedShop(Shop):
    """A shop with a fed and a foreign table, and commands on holds that note which snapshot of the fed one is checked."""

    def __init__(self, warehouse: Path) -> None:
        settings = load_settings(warehouse=str(warehouse))
        super().__init__(open_catalog(settings))
        self.checked: list[int] = []
        store = HoldStore(MemoryState())
        tags = TableTags(self.catalog, self.timelines, store)
        self.holds = HoldCommands(store, self.timelines, self.definitions, settings, tags.put, self.check)

    def check(self, hold: Hold) -> None:
        assert hold.at_ms is not None
        timeline = self.timeline(FED)
        version = timeline.at(min(hold.at_ms, timeline.upper_ms - 1))
        assert version is not None
        self.checked.append(version.snapshot_id)

    def held(self) -> int | None:
        return self.catalog.load_table(FED).metadata.refs["hold_h"].snapshot_id

    def new(self, at: int, check: Check = Check.REQUIRE, name: str = "h") -> NewHold:
        return NewHold(name, None, (FED, FOREIGN), START_MS + at, check=check)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CheckedShop]:
    made = CheckedShop(tmp_path)
    made.catalog.create_namespace("shop")
    monkeypatch.setattr("pyiceberg.table.snapshots.time", made.clock)
    monkeypatch.setattr("pyiceberg.table.update.datetime", made.clock)
    made.feed()
    made.write(FOREIGN, 50)
    made.batch(100)
    yield made
    made.catalog.close()


def test_a_hold_waits_for_a_batch_that_may_still_bring_rows_of_its_time(shop: CheckedShop) -> None:
    batch = shop.begin(200)
    shop.clock.ms = 5_000
    with pytest.raises(NotReadable, match="yet: its CHECK would not see all rows") as refused:
        shop.holds.create(shop.new(at=200))
    assert f"Choose {START_MS + 100}" in refused.value.hint
    assert (shop.checked, shop.holds.all()) == ([], ())
    late = shop.write(FED, 5_000, source="feed", timestamp=batch.mz_timestamp, step=1)
    shop.commit(batch, since=100)
    shop.holds.create(shop.new(at=200))
    assert shop.checked == [late] == [shop.held()]


def test_a_hold_does_not_advance_to_the_future_but_waits_for_a_foreign_commit(shop: CheckedShop) -> None:
    shop.holds.create(shop.new(at=100))
    with pytest.raises(NotReadable, match="yet: its CHECK would not see all rows"):
        shop.holds.advance("h", START_MS + 60_000)
    assert shop.holds.hold("h").at_ms == START_MS + 100
    (newest,) = shop.batch(8_000)
    shop.clock.waited_ms.clear()
    shop.holds.advance("h", START_MS + 8_000)
    assert 0 < sum(shop.clock.waited_ms) <= LAG_MS
    assert shop.checked[-1] == newest == shop.held()


def test_a_check_that_is_only_recorded_may_be_of_a_hold_in_the_future(shop: CheckedShop) -> None:
    shop.holds.create(shop.new(at=60_000, check=Check.RECORD))
    assert len(shop.checked) == 1
