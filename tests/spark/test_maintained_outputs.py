"""Maintenance keeps the output tables of subscriptions small, and their publishers go on exactly where they were."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest

from lakehold.errors import SubscriberLapsed
from lakehold.maintenance.file_layout import SMALL_FILES_MOST
from lakehold.maintenance.maintain import MaintenanceReport
from lakehold.maintenance.survey import ORPHANS_EVERY_MS
from lakehold.publish import history_publisher, publisher
from lakehold.times import now_ms
from tests.conftest import LakeFactory
from tests.history_tables import assert_shows
from tests.published_shop import Shop, publish_and_die

pytestmark = pytest.mark.spark

OUTPUT = "bi.out"
OLD_S = 10 * ORPHANS_EVERY_MS // 1000


@pytest.fixture
def shop(make_lake: LakeFactory) -> Shop:
    """Make a shop whose tables keep only the history that somebody needs."""
    made = Shop(make_lake, retain_history_ms=0, expire_grace_ms=0)
    made.write((1, "a"), (2, "b"))
    (first,) = made.lake.timelines.of(["shop.t"])["shop.t"].versions
    made.lake.sql(f"CREATE HOLD all_of_it ON shop.t AT {first.mz_timestamp}")
    return made


def published_often(shop: Shop) -> None:
    """Publish single changes until there are enough small files for a compaction."""
    published(shop, SMALL_FILES_MOST + 1)


def published(shop: Shop, times: int) -> None:
    for number in range(times):
        shop.write((1, f"a{number}"))
        shop.lake.publish("s")


def maintained(shop: Shop, *, orphans: bool = False) -> MaintenanceReport:
    (report,) = [each for each in shop.lake.maintain(orphans=orphans) if each.table == OUTPUT]
    assert report.error is report.skipped is None
    return report


def snapshots(shop: Shop) -> int:
    return len(shop.lake.catalog.load_table(OUTPUT).metadata.snapshots)


def data_files(shop: Shop) -> int:
    return len(list(shop.lake.catalog.load_table(OUTPUT).scan().plan_files()))


def test_an_output_loses_old_snapshots_and_small_files_and_no_row(shop: Shop) -> None:
    shop.subscribe("AS OF EARLIEST")
    published_often(shop)
    report = maintained(shop)
    assert report.snapshots >= SMALL_FILES_MOST
    assert report.rewritten > SMALL_FILES_MOST
    assert (snapshots(shop), data_files(shop)) == (2, 1)
    assert shop.output() == shop.expected()

    compacted = shop.lake.catalog.load_table(OUTPUT).current_snapshot()
    assert compacted is not None
    shop.write((2, "later"))
    shop.lake.publish("s")
    assert shop.output() == shop.expected(), "the publisher goes on after the last row that it had published"

    # The compaction is the oldest snapshot that is needed. Without its parent nothing would show how far it is complete.
    kept_ms = now_ms() - compacted.timestamp_ms - 1
    shop.lake.sql(f"ALTER TABLE {OUTPUT} SET (RETAIN HISTORY = '{kept_ms} ms')")
    maintained(shop)
    shop.lake.sql(f"CALL system.rollback_to_snapshot('{OUTPUT}', {compacted.snapshot_id}L)")
    with pytest.raises(SubscriberLapsed):  # else it would go on after the rows that are gone
        shop.lake.publish("s")


def test_files_of_a_killed_publisher_are_searched_for(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.subscribe()
    shop.lake.publish("s")
    shop.write((3, "c"))
    publish_and_die(shop.lake, "s", monkeypatch, "before-publication")
    location = Path(shop.lake.catalog.load_table(OUTPUT).location().removeprefix("file:"))
    for file in location.rglob("*.parquet"):
        os.utime(file, times=(file.stat().st_mtime - OLD_S,) * 2)
    assert maintained(shop, orphans=True).orphans == 1
    shop.lake.publish("s")
    assert shop.output() == shop.expected()


@pytest.mark.parametrize(
    ("envelope", "module"),
    [("", publisher), ("ENVELOPE HISTORY (KEY (id))", history_publisher)],
    ids=["raw", "history"],
)
def test_an_output_is_maintained_whose_first_publisher_died_before_its_first_commit(
    make_lake: LakeFactory, monkeypatch: pytest.MonkeyPatch, envelope: str, module: ModuleType
) -> None:
    shop = Shop(make_lake)
    shop.write((1, "a"))
    shop.subscribe(envelope)
    publish_and_die(shop.lake, "s", monkeypatch, "before-publication", module)
    maintained(shop)
    shop.lake.publish("s")
    assert shop.lake.catalog.load_table(OUTPUT).scan().to_arrow().num_rows == 1


def test_an_output_may_say_how_much_of_its_history_it_keeps(shop: Shop) -> None:
    shop.subscribe()
    published(shop, 2)
    shop.lake.sql(f"ALTER TABLE {OUTPUT} SET (RETAIN HISTORY = '1 day')")
    assert maintained(shop).snapshots == 0
    shop.lake.sql(f"ALTER TABLE {OUTPUT} RESET (RETAIN HISTORY)")
    assert maintained(shop).snapshots > 0


def test_a_history_is_maintained_and_shows_what_it_did(shop: Shop) -> None:
    shop.subscribe("ENVELOPE HISTORY (KEY (id)) AS OF EARLIEST")
    published_often(shop)
    report = maintained(shop)
    assert report.snapshots >= SMALL_FILES_MOST
    assert report.rewritten > SMALL_FILES_MOST
    shop.write((2, None), (3, "c"))
    shop.lake.publish("s")
    times = [version.mz_timestamp for version in shop.lake.timelines.of(["shop.t"])["shop.t"].versions]
    assert assert_shows(shop.lake, OUTPUT, "SELECT * FROM shop.t", times) > SMALL_FILES_MOST


def test_an_output_is_left_to_its_new_owner_when_its_subscription_is_dropped(shop: Shop) -> None:
    shop.subscribe()
    published(shop, 2)
    assert OUTPUT in {report.table for report in shop.lake.maintain()}
    shop.lake.sql("DROP SUBSCRIPTION s")
    assert OUTPUT not in {report.table for report in shop.lake.maintain()}
