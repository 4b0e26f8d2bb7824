"""Tables without a key of MariaDB: a snapshot that the connector repeats at one position replaces what it sent before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import LakeFactory
from tests.debezium_messages import Topic
from tests.debezium_shop import COLUMNS, Shop, few_and_many, row
from tests.debezium_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.spark.test_keyless_tables import send_what_stops

pytestmark = pytest.mark.spark


def of_mariadb() -> Topic:
    return Topic("t", dict(COLUMNS), key=(), connector="mariadb", committed_ms=1_000_000, has_keys=False)


@few_and_many
def test_a_life_of_equal_rows_of_mariadb(make_lake: LakeFactory, tmp_path: Path, settings: dict[str, int]) -> None:
    shop, topic = Shop(make_lake(**settings), tmp_path / "topics"), of_mariadb()
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1), row(1), row(2, None, None)])
    topic.create(row(1), row(1), row(3), row(3))
    topic.update(row(3), row(1))
    topic.delete(row(2, None, None))
    topic.resend(4)
    assert shop.stopped(topic) == {}
    assert shop.rows() == [(1, "a", 0)] * 5 + [(3, "a", 0)]
    topic.lsn += 100
    topic.snapshot([row(1), row(4), row(4)])
    topic.create(row(4))
    assert shop.stopped(topic) == {}
    assert shop.rows() == [(1, "a", 0)] + [(4, "a", 0)] * 3


@pytest.mark.parametrize("batches", ["one", "several"])
@few_and_many
def test_a_snapshot_that_mariadbs_connector_repeats_at_its_position_replaces_the_interrupted_one(
    make_lake: LakeFactory, tmp_path: Path, batches: str, settings: dict[str, int]
) -> None:
    shop, topic = Shop(make_lake(**settings), tmp_path / "topics"), of_mariadb()
    shop.table(topic, "DEBEZIUM")
    rows = [row(1), row(1), row(2, None, None), row(2, None, None), row(3)]

    def arrive() -> None:
        if batches == "several":
            assert shop.stopped(topic) == {}

    topic.snapshot(rows[:3], ended=False)
    arrive()
    topic.committed_ms = 1_007_000
    topic.snapshot(rows, ended=False)
    arrive()
    topic.committed_ms = 1_009_000
    topic.snapshot(rows[:4], ended=False)
    arrive()
    topic.snapshot([rows[4]])
    arrive()
    topic.committed_ms = 1_010_000
    topic.create(row(3))
    assert shop.stopped(topic) == {}
    assert shop.rows() == [(1, "a", 0)] * 2 + [(2, None, None)] * 2 + [(3, "a", 0)] * 2


def test_a_complete_snapshot_that_begins_again_at_its_position_replaces_the_rows_once_more(shop: Shop) -> None:
    topic = of_mariadb()
    shop.table(topic, "DEBEZIUM")
    for committed_ms, rows in [(1_000_000, [row(1), row(1)]), (1_001_000, [row(1), row(1)]), (1_002_000, [row(1)])]:
        topic.committed_ms = committed_ms
        topic.snapshot(rows)
        assert shop.stopped(topic) == {}
        assert shop.rows() == [(1, "a", 0)] * len(rows)


@pytest.mark.parametrize("batches", ["one", "several"])
@pytest.mark.parametrize(("rows", "is_ended"), [(1, True), (3, True), (3, False)])
@pytest.mark.parametrize("later_ms", [0, -3_600_000])
def test_an_attempt_that_is_not_later_than_the_one_before_stops_the_table(
    shop: Shop, batches: str, rows: int, is_ended: bool, later_ms: int
) -> None:
    topic = of_mariadb()
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1)] * rows, ended=is_ended)
    if batches == "several":
        assert shop.stopped(topic) == {}
    assert topic.committed_ms is not None
    topic.committed_ms += later_ms
    topic.snapshot([row(1)] * rows)
    (stop,) = shop.stopped(topic).values()
    assert stop.code == "snapshot-restarted"
    assert f"at offset {rows} of topic t begins the snapshot again" in stop.detail
    assert "ALTER SOURCE … RESNAPSHOT" in stop.hint


@pytest.mark.parametrize("code", ["keyless-partitions", "keyless-snapshot", "before-missing"])
def test_events_of_mariadb_that_a_table_without_a_key_cannot_follow_stop_it(shop: Shop, code: str) -> None:
    topic = of_mariadb()
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1)])
    send_what_stops(topic, code)
    (stop,) = shop.stopped(topic).values()
    assert stop.code == code
