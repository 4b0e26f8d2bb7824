"""Subscribers that read on after a name of their tables came to belong to another column: no diff shows that values are gone."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest

from lakehold.definitions import OnLapse
from lakehold.errors import DefinitionError, SubscriberLapsed
from tests.conftest import LakeFactory
from tests.history_tables import ranges
from tests.published_shop import Shop

pytestmark = pytest.mark.spark

ADDED_AGAIN = "ALTER TABLE shop.t DROP COLUMN v; ALTER TABLE shop.t ADD COLUMN V STRING"
SWAPPED = """
    ALTER TABLE shop.t RENAME COLUMN v TO x; ALTER TABLE shop.t RENAME COLUMN w TO v; ALTER TABLE shop.t RENAME COLUMN x TO w
"""
NOW = [(1, None), (3, "c")]
"""The rows after `move`."""


@pytest.fixture
def shop(make_lake: LakeFactory) -> Shop:
    made = Shop(make_lake)
    made.write((1, "a"), (2, "b"))
    return made


def move(shop: Shop) -> None:
    """Drop `v` and add it again, as another column; then change rows."""
    shop.lake.sql(ADDED_AGAIN)
    shop.lake.sql("DELETE FROM shop.t WHERE id = 2")
    shop.lake.sql("INSERT INTO shop.t VALUES (3, 'c')")


@pytest.mark.parametrize("shape", ["", "ENVELOPE UPSERT (KEY (id))", "ENVELOPE HISTORY (KEY (id))"])
def test_a_subscription_stops_or_starts_over(shop: Shop, shape: str) -> None:
    lake = shop.lake

    def shown() -> list[tuple[Any, ...]]:
        if "HISTORY" in shape:
            return [row[:2] for row in ranges(lake, "bi.out") if row[-1] is None]
        key = {"mz_diff": 1} if not shape else {"mz_state": "upsert"}
        rows = [row for row in shop.output() if key.items() <= row.items()]
        return [(row["id"], row["v"]) for row in rows]

    shop.subscribe(shape)
    lake.publish("s")
    assert shown() == [(1, "a"), (2, "b")]
    move(shop)
    for _ in range(2):
        with pytest.raises(SubscriberLapsed) as stopped:
            lake.publish("s")
        assert stopped.value.code == "subscriber-columns"
        assert "shop.t.v" in stopped.value.detail
        assert "ON LAPSE = 'resnapshot'" in stopped.value.hint
        assert shown() == [(1, "a"), (2, "b")]
    lake.sql("ALTER SUBSCRIPTION s SET (ON LAPSE = 'resnapshot')")
    (report,) = lake.publish("s")
    assert report.restarted
    assert shown() == NOW
    lake.sql("INSERT INTO shop.t VALUES (4, 'd')")
    (report,) = lake.publish("s")
    assert not report.restarted
    assert shown() == [*NOW, (4, "d")]


def test_a_running_subscription_starts_over_at_once(shop: Shop) -> None:
    shop.subscribe(options="WITH (ON LAPSE = 'resnapshot')")
    stop = Event()
    running = shop.lake.publications("s", stop)
    next(running)
    move(shop)
    assert next(running).restarted
    assert [(row["id"], row["v"]) for row in shop.output()] == NOW
    stop.set()
    running.close()


def test_columns_that_a_query_does_not_name_and_new_ones_stop_nothing(shop: Shop) -> None:
    lake = shop.lake
    lake.sql("CREATE SUBSCRIPTION s INTO bi.out AS SUBSCRIBE (SELECT id FROM shop.t)")
    lake.publish("s")
    move(shop)
    lake.publish("s")
    assert [(row["mz_diff"], row["id"]) for row in shop.output()] == [(1, 1), (1, 2), (-1, 2), (1, 3)]


def test_a_column_is_remembered_while_it_is_dropped(shop: Shop) -> None:
    shop.subscribe()
    shop.lake.publish("s")
    shop.lake.sql("ALTER TABLE shop.t DROP COLUMN v; INSERT INTO shop.t VALUES (3)")
    shop.lake.publish("s")
    assert [(row["id"], row["v"]) for row in shop.output()] == [(1, "a"), (2, "b"), (3, None)]
    shop.lake.sql("ALTER TABLE shop.t ADD COLUMN v STRING; INSERT INTO shop.t VALUES (4, 'd')")
    with pytest.raises(SubscriberLapsed) as stopped:
        shop.lake.publish("s")
    assert stopped.value.code == "subscriber-columns"


@pytest.mark.parametrize("follows", [False, True])
def test_a_durable_client_stops_or_gets_a_snapshot(shop: Shop, *, follows: bool) -> None:
    lake, stop, copy = shop.lake, Event(), dict[int, Any]()

    def run(on_lapse: OnLapse = OnLapse.STOP, stop: Event | None = None) -> None:
        client = lake.durable("app", "SUBSCRIBE shop.t ENVELOPE UPSERT (KEY (id))", on_lapse=on_lapse)
        for delivery in client.deliveries(stop):
            if delivery.is_snapshot:
                copy.clear()
            for _, state, id_, v in delivery:
                copy[id_] = v
                if state == "delete":
                    del copy[id_]
            delivery.acknowledge()
            if stop is not None and copy == {1: "a", 2: "b"}:
                move(shop)

    if follows:
        with pytest.raises(SubscriberLapsed):
            run(stop=stop)
    else:
        run()
        move(shop)
    for _ in range(2):
        with pytest.raises(SubscriberLapsed) as stopped:
            run()
        assert stopped.value.code == "subscriber-columns"
        assert copy == {1: "a", 2: "b"}
    run(OnLapse.RESNAPSHOT)
    assert copy == dict(NOW)
    lake.sql("INSERT INTO shop.t VALUES (4, 'd')")
    run()
    assert copy == {**dict(NOW), 4: "d"}


@pytest.mark.parametrize("change", [ADDED_AGAIN, SWAPPED])
def test_a_resume_token_is_refused(shop: Shop, change: str) -> None:
    lake, text = shop.lake, "SUBSCRIBE (SELECT id, v FROM shop.t)"
    lake.sql("ALTER TABLE shop.t ADD COLUMN w STRING")
    reading = lake.read(text)
    assert [row[1:] for batch in reading for row in batch.rows] == [(1, 1, "a"), (1, 2, "b")]
    lake.sql("ALTER TABLE shop.t ADD COLUMN another STRING")
    assert list(lake.read(text, resume=reading.token)) == []
    lake.sql(change)
    with pytest.raises(DefinitionError) as refused:
        lake.read(text, resume=reading.token)
    assert refused.value.code == "token-columns"
