"""The readable and holdable times of a table that was stopped from 150 to 400 and caught up with batches at 300 and 400.

PyIceberg writes real tables under a clock that the test moves; times count from `START_MS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakehold.errors import NotReadable
from lakehold.holds.commands import HoldCommands, NewHold
from lakehold.holds.guard import Guard
from lakehold.holds.tags import TableTags
from lakehold.quality.snapshot_at import snapshot_at
from lakehold.settings import load_settings
from lakehold.state.catalog_opening import open_catalog
from lakehold.state.holds import HoldStore
from lakehold.state.roles import ROLES
from lakehold.state.store import MemoryState
from lakehold.timeline.timelines import check_readable, common_window, together
from tests.dated_tables import FED, FOREIGN, START_MS, Shop, at, window


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    catalog = open_catalog(load_settings(warehouse=str(tmp_path)))
    catalog.create_namespace("shop")
    shop = Shop(catalog)
    monkeypatch.setattr("pyiceberg.table.snapshots.time", shop.clock)
    monkeypatch.setattr("pyiceberg.table.update.datetime", shop.clock)
    shop.feed()
    for ms in (100, 300, 400, 500):
        shop.batch(ms)
    shop.record_stop(150, 400)
    yield shop
    catalog.close()


def snapshots(shop: Shop) -> list[int]:
    """Return the snapshots of the batches at 100, 300, 400 and 500."""
    return [snapshot_id for _, snapshot_id in shop.versions(FED)]


def test_a_stopped_table_is_not_readable_and_the_error_names_the_nearest_times(shop: Shop) -> None:
    timeline = shop.timeline(FED)
    for ms in (100, 149, 400, 500):
        check_readable([timeline], START_MS + ms)
    for ms in (150, 300, 399):
        with pytest.raises(NotReadable) as refused:
            check_readable([timeline], START_MS + ms)
        assert refused.value.code == "table-was-stopped"
        assert refused.value.message == f'"{FED}" is not readable at {START_MS + ms}'
        assert f"It was stopped from {START_MS + 150} (2023-11-14 22:13:20.150 UTC) on" in refused.value.detail
        assert f"again at {START_MS + 400}" in refused.value.detail
        assert refused.value.hint == f"Choose {START_MS + 149} or earlier, or {START_MS + 400} or later."


def test_changes_during_a_stop_appear_at_its_end_as_one(shop: Shop) -> None:
    timeline, (first, _, caught_up, last) = shop.timeline(FED), snapshots(shop)
    assert [at(timeline, ms) for ms in (149, 400, 500)] == [first, caught_up, last]
    changes = timeline.between(START_MS + 100, START_MS + 501)
    assert [(v.mz_timestamp - START_MS, v.snapshot_id) for v in changes] == [(400, caught_up), (500, last)]
    assert timeline.between(START_MS + 100, START_MS + 400) == ()


def test_a_table_joins_at_the_last_batch_of_the_others(shop: Shop) -> None:
    """Let the table catch up at 500, while the others go on until 600 without changes for it."""
    shop.record_stop(400, 600)
    shop.commit(shop.begin(600), since=100)
    timeline, (first, _, _, last) = shop.timeline(FED), snapshots(shop)
    changes = timeline.between(START_MS + 100, START_MS + 601)
    assert [(v.mz_timestamp - START_MS, v.snapshot_id) for v in changes] == [(600, last)]
    assert at(timeline, 149) == first
    with pytest.raises(NotReadable) as refused:
        check_readable([timeline], START_MS + 400)
    assert refused.value.hint == f"Choose {START_MS + 149} or earlier, or {START_MS + 600} or later."


def test_a_table_read_with_a_stopped_one_shows_no_change_during_the_stop(shop: Shop) -> None:
    made = [shop.write(FOREIGN, ms) for ms in (90, 200, 390, 450)]
    shop.clock.ms = 5_000
    beside = together({name: shop.timeline(name) for name in (FED, FOREIGN)})[FOREIGN]
    changes = beside.between(START_MS + 100, START_MS + 501)
    assert [(v.mz_timestamp - START_MS, v.snapshot_id) for v in changes] == [(400, made[2]), (450, made[3])]
    alone = shop.timeline(FOREIGN).between(START_MS + 100, START_MS + 501)
    assert [v.mz_timestamp - START_MS for v in alone] == [200, 390, 450]


@pytest.mark.parametrize(("clock", "upper"), [(1_100, 100), (1_150, 150), (1_200, 150), (1_400, 150), (1_401, 401)])
def test_a_common_window_ends_before_the_stop_of_a_slower_table(shop: Shop, clock: int, upper: int) -> None:
    shop.write(FOREIGN, 90)
    shop.clock.ms = clock
    assert common_window([shop.timeline(FED), shop.timeline(FOREIGN)]) == (START_MS + 100, START_MS + upper)


def test_a_window_begins_after_expired_versions(shop: Shop) -> None:
    first, second, *_ = snapshots(shop)
    shop.expire(FED, first)
    assert window(shop.timeline(FED)) == (400, 501)
    shop.expire(FED, second)
    assert window(shop.timeline(FED)) == (400, 501)


def test_a_younger_table_moves_the_first_common_time_to_the_end(shop: Shop) -> None:
    shop.write(FOREIGN, 200)
    shop.clock.ms = 5_000
    lines = [shop.timeline(FED), shop.timeline(FOREIGN)]
    assert common_window(lines) == (START_MS + 400, START_MS + 501)
    with pytest.raises(NotReadable) as refused:
        check_readable(lines, START_MS + 250)
    assert refused.value.hint == f"Choose {START_MS + 400} or later."


# --- holds ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def holds(shop: Shop, tmp_path: Path) -> HoldCommands:
    settings, store = load_settings(warehouse=str(tmp_path), retain_history_ms=250), HoldStore(MemoryState())
    tags = TableTags(shop.catalog, shop.timelines, store)
    return HoldCommands(
        store, shop.timelines, shop.definitions, settings, tags.put, lambda _: None, Guard(MemoryState().store(ROLES))
    )


def new(ms: int | None) -> NewHold:
    return NewHold("h", None, (FED,), None if ms is None else START_MS + ms)


def test_a_stopped_table_cannot_be_held_during_its_stop(holds: HoldCommands) -> None:
    with pytest.raises(NotReadable) as refused:
        holds.create(new(399))
    assert refused.value.code == "table-was-stopped"
    assert holds.all() == ()
    for ms in (149, 400):
        assert holds.create(new(ms)).at_ms == START_MS + ms
        with pytest.raises(NotReadable, match="is not readable at"):
            holds.advance("h", START_MS + 200)
        holds.drop("h")


def test_a_hold_begins_and_advances_to_readable_times(shop: Shop, holds: HoldCommands) -> None:
    """Hold a table that retention alone keeps from 250 onward."""
    holds.create(new(100))
    assert holds.advance("h").at_ms == START_MS + 400
    holds.drop("h")
    shop.expire(FED, snapshots(shop)[0])
    assert holds.create(new(None)).at_ms == START_MS + 400


def test_a_hold_inside_a_stop_moves_to_its_end(shop: Shop, holds: HoldCommands) -> None:
    """Create a hold for a future time before the table stops; its tag is on the version at the stop's end."""
    holds.create(new(550))
    shop.batch(600)
    shop.batch(700)
    shop.record_stop(540, 650)
    holds.rename("h", "k")
    tagged = shop.catalog.load_table(FED).metadata.refs["hold_k"].snapshot_id
    assert tagged == snapshots(shop)[-2]
    hold = holds.hold("k")
    found = snapshot_at(shop.timelines, FED, hold=hold)
    assert (found.at_ms, found.snapshot_id) == (START_MS + 650, tagged)
    (moved,) = holds.enforce_lag()
    assert (moved.at_ms, moved.forced_from_ms) == (START_MS + 650, None)
