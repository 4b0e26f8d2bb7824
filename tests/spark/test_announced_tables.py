"""The tables that an ingest under Airflow announces: those that can be read at the timestamp that their event names."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehold.lake import Lake
from lakehold.orchestration import ingesting
from lakehold.orchestration.assets import Announced, Changed
from lakehold.times import now_ms
from tests.conftest import LakeFactory
from tests.debezium_messages import Topic
from tests.debezium_shop import Shop, row, shop, topic

__all__ = ["shop", "topic"]

pytestmark = pytest.mark.spark


def announced(lake: Lake, known: Announced | None = None) -> list[Changed]:
    return list(ingesting.ingest(lake, ["shop"], known or Announced()).changed)


def test_a_table_whose_first_snapshot_takes_several_runs_is_announced_once_when_all_of_it_can_be_read(
    make_lake: LakeFactory, tmp_path: Path, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingesting, "TURN_S", 0)
    lake = make_lake(max_batch_records=4)
    shop = Shop(lake, tmp_path / "topics")
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(key) for key in range(10)])
    topic.write(shop.directory)
    assert (announced(lake), announced(lake)) == ([], [])
    assert len(lake.batches.history("shop")) == 2

    (change,) = announced(lake)
    assert (change.table, change.previous_snapshot_id) == ("s.t", None)
    assert lake.sql(f"SELECT count(*) FROM s.t AS OF {change.mz_timestamp}").rows == [(10,)]
    known = Announced({"s.t": (str(change.snapshot_id), change.at_ms)})
    assert announced(lake, known) == []


def test_a_table_that_becomes_readable_without_new_rows_is_announced(shop: Shop, topic: Topic) -> None:
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1)], ended=False)
    topic.write(shop.directory)
    assert announced(shop.lake) == []

    oldest_event = now_ms()
    topic.delete(row(9))
    shop.ingest(topic)
    (change,) = announced(shop.lake, Announced({}, oldest_event))
    assert (change.table, change.previous_snapshot_id) == ("s.t", None)
    assert change.at_ms <= oldest_event, "its rows were written before"
    assert shop.lake.sql(f"SELECT id FROM s.t AS OF {change.mz_timestamp}").rows == [(1,)]
