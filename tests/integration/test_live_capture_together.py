"""Statements on a source while it is ingested: upstream objects equal the definitions, created or dropped exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from lakehold.ingest.several_sources import SourceFailed
from lakehold.lake import Lake
from lakehold.stack import ConnectClient
from lakehold.upstream import sources
from tests.captured_shop import Shop
from tests.captured_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.conftest import LakeFactory
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]


@pytest.fixture(autouse=True)
def _inspects_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each ingest inspect the connector."""
    monkeypatch.setattr(sources, "INSPECT_EVERY_S", 0.0)
    monkeypatch.setattr(sources, "WHILE_BUSY_S", 0.0)


def codes(failed: Iterable[SourceFailed]) -> set[str]:
    return {failure.error.code for failure in failed}


@contextmanager
def followed(lake: Lake) -> Iterator[list[SourceFailed]]:
    """Ingest the shop again and again, as `ingest --follow` of another process does; yield its failures."""
    closed = Event()
    failed: list[SourceFailed] = []

    def follow() -> None:
        while not closed.is_set():
            for report in lake.batches_together(["shop"]):
                if isinstance(report, SourceFailed):
                    failed.append(report)
                else:
                    assert report.stopped == {}
            if "source-missing" in codes(failed):
                return

    with ThreadPoolExecutor(1) as threads:
        following = threads.submit(follow)
        try:
            yield failed
        finally:
            closed.set()
            following.result()


def beside(shop: Shop, make_lake: LakeFactory) -> Lake:
    """Open the lake once more, as another process does."""
    settings = shop.lake.settings
    return make_lake(Path(settings.warehouse), catalog_name=settings.catalog_name)


def test_nothing_is_left_of_a_source_dropped_while_it_is_followed(shop: Shop, make_lake: LakeFactory) -> None:
    shop.upstream("orders", "items")
    lake = beside(shop, make_lake)
    creating = shop.lake.sql("SHOW CREATE SOURCE shop").rows[0][1]
    for _ in range(3):
        shop.lake.sql(f"BEGIN; {shop.creating('orders')}; {shop.creating('items')}; COMMIT")
        shop.follow_until_equal("orders", "items")
        with followed(lake) as failed:
            shop.lake.sql("DROP SOURCE shop CASCADE")
            wait_for(lambda: "source-missing" in codes(failed), "the ingest reports the missing source")
        assert all(failure.error.retryable for failure in failed[:-1]), (
            "no error names its topics, which are deleted first"
        )
        with ConnectClient(shop.database.addresses.connect) as worker:
            assert worker.config(shop.database.name) is None
        assert (shop.topics(), shop.slots(), shop.publications(), shop.signal_schemas()) == (set(), 0, {}, 0)
        shop.lake.sql(creating)


def test_one_snapshot_is_requested_for_a_table_created_while_its_source_is_followed(
    shop: Shop, make_lake: LakeFactory
) -> None:
    shop.upstream("orders", "items", "customers")
    lake = beside(shop, make_lake)
    with followed(lake) as failed:
        shop.lake.sql(shop.creating("orders"))
        wait_for(lambda: shop.since("orders") is not None, "the first table is readable")
        for number, table in enumerate(["items", "customers"], start=1):
            shop.lake.sql(shop.creating(table))
            wait_for(lambda: shop.since(table) is not None, "the new table is readable")  # noqa: B023 - called at once
            assert shop.rows(table) == shop.wanted(table), "the table is readable only after its snapshot"
            assert shop.connector.requested_snapshots() == number
    assert codes(failed) <= {"source-without-tables"}, "the source has no table yet"
    shop.follow_until_equal("orders", "items", "customers")
