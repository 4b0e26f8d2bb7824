"""A refresh commits to system tables only what no other commit says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakehold.lake import Lake
from lakehold.publish import input_hold
from tests import published_shop
from tests.conftest import LakeFactory
from tests.counted_lake import ALONE
from tests.debezium_messages import Topic
from tests.debezium_shop import Shop, row
from tests.debezium_shop import topic as topic  # noqa: PLC0414 - pytest finds fixtures by name

pytestmark = pytest.mark.spark


@contextmanager
def commits(lake: Lake) -> Iterator[dict[str, int]]:
    """Count the commits of the block to the tables of subscribers and of holds."""
    found = {"mz_subscribers": 0, "mz_holds": 0}

    def numbers() -> dict[str, int]:
        return {name: _commits_so_far(lake, f"mz_catalog.{name}") for name in found}

    before = numbers()
    yield found
    found.update({name: number - before[name] for name, number in numbers().items()})


def _commits_so_far(lake: Lake, table: str) -> int:
    snapshot = lake.catalog.load_table(table).current_snapshot()
    assert snapshot is not None
    assert snapshot.sequence_number is not None
    return snapshot.sequence_number


def test_a_refresh_stores_its_position_with_its_rows_alone(
    make_lake: LakeFactory, tmp_path: Path, topic: Topic
) -> None:
    lake = make_lake(**ALONE)
    shop = Shop(lake, tmp_path / "topics")
    lake.sql("CREATE TABLE s.t FROM SOURCE shop (TOPIC 't') ENVELOPE DEBEZIUM")
    topic.snapshot([row(1), row(2)])
    shop.ingest(topic)
    lake.sql("CREATE MATERIALIZED VIEW bi.v KEY (id) AS SELECT id, n FROM s.t")
    lake.publish("bi.v")
    topic.update(row(1), row(1, n=5))
    shop.ingest(topic)
    with commits(lake) as found:
        (report,) = lake.publish("bi.v")
    # The subscriber's row changes with the lease alone: a process takes it and releases it.
    assert found == {"mz_subscribers": 2, "mz_holds": 1}
    upper_ms = lake.timelines.of(["s.t"])["s.t"].upper_ms
    assert report.position_ms == lake.subscriptions.published_below("bi.v") == upper_ms


def test_a_short_refresh_moves_its_hold_once_when_it_ends(
    make_lake: LakeFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_hold, "_PAUSE_S", 3_600.0)
    shop = published_shop.Shop(make_lake, lease_renew_ms=50_000)
    shop.write((1, "a"))
    shop.lake.sql("CREATE MATERIALIZED VIEW bi.v KEY (id) AS SELECT id, v FROM shop.t")
    shop.lake.publish("bi.v")
    shop.write((2, "b"))
    shop.write((3, "c"))
    with commits(shop.lake) as found:
        assert len(shop.lake.publish("bi.v")) > 1
    assert found["mz_holds"] == 1
    (hold,) = shop.lake.holds.all()
    assert hold.at_ms is not None
    assert hold.at_ms >= shop.lake.timelines.of(["shop.t"])["shop.t"].versions[-1].mz_timestamp
