"""Maintenance never changes a kept time: whatever a table's history, all kept times read as before."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from pyiceberg.table import Table

from lakehold.maintenance.history import Needs, kept_from_ms, unneeded_snapshots
from lakehold.model.summary_keys import TIMESTAMP_PROPERTY
from lakehold.settings import load_settings
from lakehold.state.catalog_opening import open_catalog
from lakehold.timeline.table_timeline import Timeline
from tests.dated_tables import START_MS, Shop

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 150)),
        st.tuples(st.just("write"), st.integers(1, 150)),
        st.tuples(st.just("set back"), st.integers(0, 9)),
        st.tuples(st.just("tag"), st.integers(0, 9)),
        st.tuples(st.just("branch"), st.integers(0, 9)),
        st.tuples(st.just("stage"), st.just(0)),
        st.tuples(st.just("maintain"), st.integers(0, 3)),
    ),
    min_size=4,
    max_size=9,
)
_names = itertools.count()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    directory: Path = tmp_path_factory.mktemp("maintained")
    catalog = open_catalog(load_settings(warehouse=str(directory)))
    catalog.create_namespace("shop")
    shop = Shop(catalog)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyiceberg.table.snapshots.time", shop.clock)
        patch.setattr("pyiceberg.table.update.datetime", shop.clock)
        yield shop
    catalog.close()


def shown(timeline: Timeline, from_ms: int) -> dict[int, int | None]:
    """Return the snapshot of each time from `from_ms` on."""
    times = {from_ms, *(v.mz_timestamp for v in timeline.versions if v.mz_timestamp >= from_ms)}
    return {ms: (found.snapshot_id if (found := timeline.at(ms)) is not None else None) for ms in times}


def change(shop: Shop, name: str, step: tuple[str, int], now: int) -> None:
    table = shop.catalog.load_table(name)
    snapshots = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    match step:
        case ("write", later):
            shop.write(name, now + later)
        case ("set back", index):
            shop.set_back(name, snapshots[index % len(snapshots)], now + 1)
        case ("tag", index):
            tag = f"tag{next(_names)}"
            table.manage_snapshots().create_tag(snapshots[index % len(snapshots)], tag).commit()
        case ("branch", index):
            branch = f"branch{next(_names)}"
            table.manage_snapshots().create_branch(snapshots[index % len(snapshots)], branch).commit()
            append_to(table, branch)
        case _:
            stage(shop, name)


def append_to(table: Table, branch: str, summary: Mapping[str, str] | None = None) -> None:
    table.append(table.scan().to_arrow().slice(0, 1), snapshot_properties=dict(summary or {}), branch=branch)


def stage(shop: Shop, name: str, summary: Mapping[str, str] | None = None) -> int:
    """Create a snapshot on no branch, like a batch that was killed before it published."""
    table = shop.catalog.load_table(name)
    before = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    current = table.current_snapshot()
    assert current is not None
    table.manage_snapshots().create_branch(current.snapshot_id, "staging").commit()
    append_to(table, "staging", summary)
    table.manage_snapshots().remove_branch("staging").commit()
    (staged,) = {snapshot.snapshot_id for snapshot in table.metadata.snapshots} - before
    return staged


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(steps=STEPS, retained=st.integers(0, 150), grace=st.integers(0, 50), held=st.none() | st.integers(0, 900))
def test_kept_times_read_as_before(
    shop: Shop, steps: list[tuple[str, int]], retained: int, grace: int, held: int | None
) -> None:
    name = f"shop.t{next(_names)}"
    for ms in (10, 20, 60):
        shop.write(name, ms)
    for step in [*steps, ("maintain", 1)]:
        now = shop.clock.ms
        if step[0] != "maintain":
            change(shop, name, step, now)
            continue
        shop.clock.ms = now + 100 * step[1]
        holds = [] if held is None else [START_MS + held]
        timeline = shop.timeline(name)
        from_ms = kept_from_ms(timeline.upper_ms, shop.clock(), retained, grace, holds)
        timeline = shop.timelines.reaching(timeline, from_ms)
        needs = Needs(from_ms, shop.clock() - grace, shop.clock(), is_written=False)
        unneeded = unneeded_snapshots(timeline, needs, ())
        before = shown(timeline, max(from_ms, timeline.since_ms))
        rows = {id_: timeline.table.scan(snapshot_id=id_).to_arrow() for id_ in {*before.values()} if id_ is not None}
        event("some go" if unneeded else "none go")
        shop.expire(name, *(snapshot.snapshot_id for snapshot in unneeded))
        after = shop.timelines.reaching(shop.timeline(name), max(from_ms, timeline.since_ms))
        assert shown(after, max(from_ms, timeline.since_ms)) == before
        for id_, was in rows.items():
            assert after.table.scan(snapshot_id=id_).to_arrow() == was


def test_a_table_ahead_of_the_clock_keeps_versions_in_the_future() -> None:
    assert kept_from_ms(5_000, 1_000, 100, 10, []) == 890


def test_a_staged_snapshot_stays_while_its_batch_may_publish_it(shop: Shop) -> None:
    name = f"shop.t{next(_names)}"
    shop.write(name, shop.clock.ms + 10)
    staged, timeline = stage(shop, name), shop.timeline(name)
    later = shop.clock() + 1
    for needs, gone in (
        (Needs(later, later, later, is_written=True), False),
        (Needs(later, shop.clock(), later, is_written=False), False),
        (Needs(later, later, later, is_written=False), True),
    ):
        assert (staged in [s.snapshot_id for s in unneeded_snapshots(timeline, needs, ())]) == gone


def test_a_snapshot_that_another_writer_staged_stays_while_it_may_be_audited(shop: Shop) -> None:
    name = f"shop.t{next(_names)}"
    shop.write(name, shop.clock.ms + 10)
    staged, later = stage(shop, name, {"wap.id": "nightly"}), shop.clock() + 1
    own = stage(shop, name, {"wap.id": "feed-1", TIMESTAMP_PROPERTY: "1"})
    timeline = shop.timeline(name)
    for before, gone in ((shop.clock(), [own]), (later, [staged, own])):
        needs = Needs(later, later, staged_before_ms=before, is_written=False)
        assert [s.snapshot_id for s in unneeded_snapshots(timeline, needs, ())] == gone


def test_a_snapshot_expires_with_its_tag(shop: Shop) -> None:
    name = f"shop.t{next(_names)}"
    old = shop.write(name, shop.clock.ms + 10)
    shop.write(name, shop.clock.ms + 10)
    shop.catalog.load_table(name).manage_snapshots().create_tag(old, "mz_1").commit()
    needs = Needs(shop.clock(), shop.clock(), shop.clock(), is_written=False)
    assert unneeded_snapshots(shop.timeline(name), needs, ()) == ()
    assert [s.snapshot_id for s in unneeded_snapshots(shop.timeline(name), needs, ("mz_1",))] == [old]
