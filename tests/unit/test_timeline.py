"""Timelines: readable windows and versions, for tables of sources and of foreign writers, without Spark.

PyIceberg writes real tables under a clock that the test moves; times in assertions count from `START_MS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakehold.errors import DefinitionError, NotReadable
from lakehold.settings import load_settings
from lakehold.state.catalog_opening import open_catalog
from lakehold.timeline.timelines import check_readable, common_window
from lakehold.timeline.versions import versions
from tests.dated_tables import FED, FOREIGN, LAG_MS, SCHEMA, START_MS, Shop, at, shown, window


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    catalog = open_catalog(load_settings(warehouse=str(tmp_path)))
    catalog.create_namespace("shop")
    shop = Shop(catalog)
    monkeypatch.setattr("pyiceberg.table.snapshots.time", shop.clock)
    monkeypatch.setattr("pyiceberg.table.update.datetime", shop.clock)
    yield shop
    catalog.close()


def test_a_foreign_snapshot_counts_at_its_commit(shop: Shop) -> None:
    made = [shop.write(FOREIGN, 100), shop.write(FOREIGN, 250)]
    assert shop.versions(FOREIGN) == [(100, made[0]), (250, made[1])]


def test_timestamps_increase_even_if_a_writers_clock_does_not(shop: Shop) -> None:
    made = [shop.write(FOREIGN, ms) for ms in (100, 100, 90, 102, 103)]
    assert shop.versions(FOREIGN) == list(zip((100, 101, 102, 103, 104), made, strict=True))


def test_a_batch_counts_at_its_own_timestamp(shop: Shop) -> None:
    shop.feed()
    (first,), (second,) = shop.batch(100), shop.batch(200)
    assert shop.versions(FED) == [(100, first), (200, second)]
    table = shop.catalog.load_table(FED)
    assert [v.mz_timestamp - START_MS for v in versions(table, None)] == [110, 210]


def test_the_steps_of_a_batch_are_one_version(shop: Shop) -> None:
    shop.feed()
    shop.batch(100)
    _, last = shop.batch(200, steps=2)
    assert shop.versions(FED)[1:] == [(200, last)]


def test_a_foreign_write_between_batches_has_its_own_timestamp(shop: Shop) -> None:
    shop.feed()
    (first,) = shop.batch(100)
    between = shop.write(FED, 150)
    behind = shop.write(FED, 90)
    (second,) = shop.batch(200)
    assert shop.versions(FED) == [(100, first), (150, between), (151, behind), (200, second)]


def test_a_foreign_write_while_a_batch_is_open_counts_with_the_batch(shop: Shop) -> None:
    shop.feed()
    (first,) = shop.batch(100)
    intent = shop.begin(200)
    shop.write(FED, 250)
    own = shop.write(FED, 300, source="feed", timestamp=intent.mz_timestamp)
    shop.commit(intent, 100)
    assert shop.versions(FED) == [(100, first), (200, own)]


def test_a_batch_of_another_source_counts_as_a_foreign_write(shop: Shop) -> None:
    shop.feed()
    (first,) = shop.batch(100)
    other = shop.write(FED, 150, source="other", timestamp=START_MS + 5)
    assert shop.versions(FED) == [(100, first), (150, other)]


def test_a_rollback_is_a_version_and_is_reported(shop: Shop) -> None:
    made = [shop.write(FOREIGN, 100), shop.write(FOREIGN, 200)]
    shop.set_back(FOREIGN, made[0], 300)
    shop.clock.ms = 5_000
    timeline = shop.timeline(FOREIGN)
    assert shown(timeline) == [(100, made[0]), (200, made[1]), (300, made[0])]
    assert [at(timeline, ms) for ms in (199, 200, 300)] == [made[0], made[1], made[0]]
    (notice,) = timeline.rollbacks(START_MS, START_MS + 1_000)
    assert f'"{FOREIGN}" was set to snapshot {made[0]} at {START_MS + 300}' in notice
    assert timeline.rollbacks(START_MS + 300, START_MS + 1_000) == []
    assert timeline.rollbacks(START_MS, START_MS + 300) == []


def test_a_rollback_to_a_batch_does_not_count_at_the_batchs_timestamp(shop: Shop) -> None:
    shop.feed()
    (first,), (second,) = shop.batch(100), shop.batch(200)
    shop.set_back(FED, first, 300)
    assert shop.versions(FED) == [(100, first), (200, second), (300, first)]


def test_branches_and_staged_snapshots_are_not_versions(shop: Shop) -> None:
    made = shop.write(FOREIGN, 100)
    table = shop.catalog.load_table(FOREIGN)
    table.manage_snapshots().create_branch(made, "audit").commit()
    shop.clock.ms = 200
    shop.catalog.load_table(FOREIGN).append(pa.table({"id": [2]}, SCHEMA), branch="audit")
    assert shop.versions(FOREIGN) == [(100, made)]


def test_an_expired_version_is_not_readable_but_later_ones_are(shop: Shop) -> None:
    made = [shop.write(FOREIGN, ms) for ms in (100, 200, 300)]
    shop.expire(FOREIGN, made[1])
    timeline = shop.timelines.reaching(shop.timeline(FOREIGN), START_MS + 150)
    assert shown(timeline) == [(100, made[0]), (300, made[2])]
    assert at(timeline, 199) == made[0]
    assert at(timeline, 300) == made[2]
    with pytest.raises(NotReadable) as error:
        timeline.at(START_MS + 250)
    assert error.value.message == f'"{FOREIGN}" is no longer readable at {START_MS + 250}'
    assert f"Snapshot {made[1]} of 2023-11-14 22:13:20.200 UTC has been expired." in error.value.detail
    assert f"The next one is of {START_MS + 300}" in error.value.detail
    assert [v.snapshot_id for v in timeline.between(START_MS + 100, START_MS + 301)] == [made[2]]


def test_an_expired_version_is_known_whatever_time_is_requested(shop: Shop) -> None:
    made = [shop.write(FOREIGN, ms) for ms in (100, 200, 300, 400)]
    shop.expire(FOREIGN, made[1])
    timeline = shop.timelines.reaching(shop.timeline(FOREIGN), START_MS + 250)
    with pytest.raises(NotReadable):
        timeline.at(START_MS + 250)


def test_a_version_that_was_rolled_back_and_expired_is_not_readable(shop: Shop) -> None:
    made = [shop.write(FOREIGN, 100), shop.write(FOREIGN, 200)]
    shop.set_back(FOREIGN, made[0], 300)
    last = shop.write(FOREIGN, 400)
    shop.expire(FOREIGN, made[1])
    timeline = shop.timelines.reaching(shop.timeline(FOREIGN), START_MS + 250)
    assert shown(timeline) == [(100, made[0]), (300, made[0]), (400, last)]
    with pytest.raises(NotReadable):
        timeline.at(START_MS + 250)


def test_since_moves_when_the_first_version_is_expired(shop: Shop) -> None:
    made = [shop.write(FOREIGN, ms) for ms in (100, 200, 300)]
    shop.expire(FOREIGN, made[0])
    assert shop.timeline(FOREIGN).since_ms == START_MS + 200
    shop.expire(FOREIGN, made[1])
    assert shop.timeline(FOREIGN).since_ms == START_MS + 300


def test_since_of_a_fed_table_moves_when_its_first_version_is_expired(shop: Shop) -> None:
    shop.feed()
    (first,), (second,), _ = shop.batch(100), shop.batch(200), shop.batch(300)
    shop.expire(FED, first)
    assert window(shop.timeline(FED)) == (200, 301)
    assert at(shop.timeline(FED), 200) == second


def test_a_foreign_table_is_readable_from_its_first_snapshot_to_the_clock_less_the_lag(shop: Shop) -> None:
    shop.write(FOREIGN, 100)
    shop.clock.ms = 5_000
    assert window(shop.timeline(FOREIGN)) == (100, 4_000)


def test_a_table_without_snapshots_is_readable_from_its_creation(shop: Shop) -> None:
    table = shop.catalog.create_table(FOREIGN, SCHEMA)
    timeline = shop.timeline(FOREIGN)
    assert timeline.versions == ()
    assert timeline.since_ms == table.metadata.last_updated_ms
    assert timeline.at(timeline.since_ms) is None


def test_a_fed_table_is_readable_from_its_first_snapshot_to_the_last_batch(shop: Shop) -> None:
    """Check that the window reaches to the last batch, even if that batch did not change the table."""
    shop.feed()
    shop.batch(100, since=None)
    shop.batch(200, since=200)
    assert window(shop.timeline(FED)) == (200, 201)
    shop.batch(300, steps=0, since=200)
    assert window(shop.timeline(FED)) == (200, 301)
    intent = shop.begin(400)
    shop.write(FED, 410, source="feed", timestamp=intent.mz_timestamp)
    assert window(shop.timeline(FED)) == (200, 301)
    shop.commit(intent, 200)
    assert window(shop.timeline(FED)) == (200, 401)


def test_a_fed_table_without_rows_yet_is_readable_as_empty(shop: Shop) -> None:
    shop.feed()
    shop.catalog.create_table(FED, SCHEMA)
    shop.batch(100, steps=0)
    (first,) = shop.batch(200)
    timeline = shop.timeline(FED)
    assert window(timeline) == (100, 201)
    assert [at(timeline, ms) for ms in (100, 199, 200)] == [None, None, first]


def test_between_excludes_both_ends(shop: Shop) -> None:
    for ms in (100, 200, 300):
        shop.write(FOREIGN, ms)
    timeline = shop.timeline(FOREIGN)

    def times(after: int, until: int) -> list[int]:
        return [v.mz_timestamp - START_MS for v in timeline.between(START_MS + after, START_MS + until)]

    assert times(99, 301) == [100, 200, 300]
    assert times(100, 300) == [200]
    assert times(200, 201) == []


def test_tables_are_readable_together_where_each_is(shop: Shop) -> None:
    shop.feed()
    shop.batch(100)
    shop.batch(3_000)
    shop.write(FOREIGN, 500)
    shop.clock.ms = 3_500
    lines = list(shop.timelines.of([FED, FOREIGN, FED]).values())
    assert [timeline.full_name for timeline in lines] == [FED, FOREIGN]
    assert common_window(lines) == (START_MS + 500, START_MS + 2_500)
    check_readable(lines, START_MS + 500)
    check_readable(lines, START_MS + 2_499)


@pytest.mark.parametrize(("ms", "failing"), [(499, FOREIGN), (2_500, FOREIGN), (99, FED), (3_001, FED)])
def test_outside_the_window_the_error_names_the_readable_times(shop: Shop, ms: int, failing: str) -> None:
    shop.feed()
    shop.batch(100)
    shop.batch(3_000)
    shop.write(FOREIGN, 500)
    shop.clock.ms = 3_500
    lines = list(shop.timelines.of([FED, FOREIGN]).values())
    with pytest.raises(NotReadable) as error:
        check_readable(lines, START_MS + ms)
    assert error.value.message == f'"{failing}" is not readable at {START_MS + ms}'
    assert f'"{FED}" on [{START_MS + 100}, {START_MS + 3_001})' in error.value.detail
    assert f'"{FOREIGN}" on [{START_MS + 500}, {START_MS + 2_500})' in error.value.detail
    assert "2023-11-14 22:13:20.500 to 2023-11-14 22:13:22.500 UTC" in error.value.detail
    assert error.value.hint == f"Choose a time from {START_MS + 500} to {START_MS + 2_499}."


def test_windows_that_do_not_overlap_are_reported(shop: Shop) -> None:
    shop.feed()
    shop.batch(100)
    shop.write(FOREIGN, 500)
    with pytest.raises(NotReadable) as error:
        check_readable(list(shop.timelines.of([FED, FOREIGN]).values()), START_MS + 100)
    assert error.value.hint == "There is no time at which all of them are readable yet."


def test_after_the_foreign_lag_everything_committed_before_the_call_is_shown(shop: Shop) -> None:
    shop.write(FOREIGN, 100)
    made = shop.write(FOREIGN, 5_000)
    timeline = shop.timelines.after_foreign_lag([FOREIGN])[FOREIGN]
    assert at(timeline, 5_000) == made
    assert timeline.upper_ms == START_MS + 5_001
    assert shop.clock.waited_ms == [LAG_MS + 1]
    shop.timelines.after_foreign_lag([FOREIGN])
    assert shop.clock.waited_ms == [LAG_MS + 1]


def test_the_foreign_lag_is_not_awaited_for_times_in_the_future(shop: Shop) -> None:
    shop.write(FOREIGN, 100)
    shop.clock.ms = 5_000
    assert shop.timelines.after_foreign_lag([FOREIGN], [START_MS + 3_999])[FOREIGN].upper_ms == START_MS + 4_000
    assert shop.clock.waited_ms == []
    assert shop.timelines.after_foreign_lag([FOREIGN], [START_MS + 4_500])[FOREIGN].upper_ms == START_MS + 4_501
    assert shop.clock.waited_ms == [501]
    now_ms = shop.clock.ms
    shop.timelines.after_foreign_lag([FOREIGN], [START_MS + 1_000_000])
    assert shop.clock.ms - now_ms == LAG_MS + 1


def test_the_foreign_lag_is_not_awaited_for_a_writers_clock_that_is_ahead(shop: Shop) -> None:
    shop.write(FOREIGN, 100)
    shop.write(FOREIGN, 60_000)
    shop.clock.ms = 200
    shop.timelines.after_foreign_lag([FOREIGN])
    assert sum(shop.clock.waited_ms) <= LAG_MS + 1


def test_the_foreign_lag_is_never_awaited_for_a_source(shop: Shop) -> None:
    shop.feed()
    shop.batch(100)
    shop.timelines.after_foreign_lag([FED], [START_MS + 1_000_000])
    assert shop.clock.waited_ms == []


def test_a_fed_table_is_not_readable_before_its_first_snapshot_is_complete(shop: Shop) -> None:
    shop.feed()
    shop.batch(100, since=None)
    with pytest.raises(NotReadable) as error:
        shop.timeline(FED)
    assert error.value.message == f'"{FED}" is not readable yet'
    assert error.value.hint == "lakehold ingest feed"


def test_a_recreated_fed_table_does_not_inherit_progress_of_its_namesake(shop: Shop) -> None:
    shop.feed()
    shop.batch(100)
    defined = shop.definitions.definitions().table(FED)
    shop.definitions.change(lambda d: d.with_entry(replace(defined, object_id="another")))
    with pytest.raises(NotReadable, match="not readable yet"):
        shop.timeline(FED)


def test_a_fed_table_that_was_readable_and_is_gone_is_missing(shop: Shop) -> None:
    shop.feed()
    shop.batch(100, steps=0)
    with pytest.raises(DefinitionError, match="does not exist any more") as error:
        shop.timeline(FED)
    assert error.value.code == "table-missing"


@pytest.mark.parametrize("name", ["shop.nothing", "nowhere.orders", "a.b.c"])
def test_a_missing_table_is_an_error(shop: Shop, name: str) -> None:
    with pytest.raises(DefinitionError, match=f'table "{name}" does not exist') as error:
        shop.timeline(name)
    assert error.value.code == "table-missing"


@pytest.mark.parametrize("part", ["branch_audit", "tag_v1", "snapshots"])
def test_branches_and_metadata_of_a_table_have_no_history(shop: Shop, part: str) -> None:
    """Refuse `shop.rates.branch_audit`, which Spark reads: SUBSCRIBE reads only main."""
    shop.write(FOREIGN, 100)
    with pytest.raises(DefinitionError) as error:
        shop.timeline(f"{FOREIGN}.{part}")
    assert error.value.code == "table-missing"
    assert "main" in error.value.detail
    assert error.value.hint == f"Read {FOREIGN}."
