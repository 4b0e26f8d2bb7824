"""Rows of a durable client, or of a follower, that are read late or twice: they come, or an error says that they do not.

A program may collect several deliveries before it writes them, hand them to another thread, or acknowledge the last one when its
loop is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from lakehold.errors import DefinitionError, LeaseLost, SubscriberBusy
from lakehold.lake import Lake
from lakehold.publish.deliveries import Delivery
from lakehold.publish.durable import DurableClient
from lakehold.subscribe.subscription import Subscription
from lakehold.times import now_ms
from tests.conftest import LakeFactory
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([("id", pa.int64())])
Row = tuple[Any, ...]


@pytest.fixture
def lake(make_lake: LakeFactory) -> Lake:
    """Return a lake with a table of two rows, to which commits add 3, 4 and 5."""
    made = make_lake(foreign_lag_ms=0)
    made.catalog.create_namespace("shop")
    made.catalog.create_table("shop.t", COLUMNS)
    add(made, 1, 2)
    made.durable("app", "SUBSCRIBE shop.t").run(lambda _: None, lambda *_: None)
    for id_ in (3, 4, 5):
        add(made, id_)
    return made


@pytest.fixture
def client(lake: Lake) -> DurableClient:
    return lake.durable("app", "SUBSCRIBE shop.t")


def add(lake: Lake, *ids: int) -> None:
    table = lake.catalog.load_table("shop.t")
    table.append(pa.table({"id": list(ids)}, COLUMNS))
    wait_for(lambda: now_ms() > table.metadata.last_updated_ms)


def ids(delivery: Delivery) -> list[int]:
    return [row[-1] for row in delivery]


def test_deliveries_that_are_collected_have_their_rows_and_the_last_is_acknowledged_after_the_loop(
    client: DurableClient,
) -> None:
    collected = list(client.deliveries())
    assert [ids(delivery) for delivery in collected] == [[3], [4], [5]]
    collected[-1].acknowledge()
    collected[0].acknowledge()
    assert client.position == collected[-1].timestamp + 1
    assert list(client.deliveries()) == []


def test_another_thread_reads_and_acknowledges_deliveries(client: DurableClient) -> None:
    def handle(delivery: Delivery) -> list[int]:
        found = ids(delivery)
        delivery.acknowledge()
        return found

    with ThreadPoolExecutor(2) as threads:
        assert [*threads.map(handle, client.deliveries())] == [[3], [4], [5]]
    assert list(client.deliveries()) == []


def test_a_later_run_decides_about_a_delivery_that_was_not_acknowledged(client: DurableClient) -> None:
    (*_, last) = client.deliveries()
    later = client.deliveries()
    assert ids(next(later)) == [3]
    with pytest.raises(SubscriberBusy):
        last.acknowledge()
    later.close()
    with pytest.raises(LeaseLost, match="run again before this delivery was acknowledged"):
        last.acknowledge()
    (first, *_) = client.deliveries()
    assert ids(first) == [3]


def test_rows_that_a_callback_leaves_unread_are_acknowledged_and_reading_them_later_is_an_error(
    client: DurableClient,
) -> None:
    kept: list[Iterator[Row]] = []
    client.run(lambda _: None, lambda _, rows: kept.append(rows))
    assert list(client.deliveries()) == []
    for rows in kept:
        with pytest.raises(DefinitionError) as passed:
            list(rows)
        assert passed.value.code == "delivery-passed"


def test_rows_are_read_once(lake: Lake, client: DurableClient) -> None:
    for delivery in (next(client.deliveries()), next(lake.follow("SUBSCRIBE shop.t"))):
        assert len(list(delivery)) in (1, 5)
        with pytest.raises(DefinitionError) as again:
            list(delivery)
        assert again.value.code == "rows-read"
        with pytest.raises(DefinitionError):
            delivery.tables()


def test_tables_of_a_follower_are_kept_without_their_batch(lake: Lake) -> None:
    follower = lake.follow("SUBSCRIBE shop.t")
    tables = next(follower).tables()
    add(lake, 6)
    assert [row[-1] for row in next(follower)] == [6]
    assert sum(table.num_rows for table in tables) == 5


def test_an_output_that_failed_does_not_seem_to_end(
    lake: Lake, client: DurableClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let a program go on after an error in a delivery's rows, as one that logs every error does."""
    read = Subscription.chunks

    def failing(self: Subscription, *arguments: Any) -> Iterator[Any]:
        yield next(read(self, *arguments))
        raise OSError("a file could not be read")

    monkeypatch.setattr(Subscription, "chunks", failing)
    every: list[Iterator[Iterable[Row]]] = [client.deliveries(), lake.follow("SUBSCRIBE shop.t")]
    for outputs in every:
        for _ in range(2):
            with pytest.raises(OSError, match="could not be read"):
                list(next(outputs))
    monkeypatch.undo()
    assert [ids(delivery) for delivery in client.deliveries()] == [[3], [4], [5]]
