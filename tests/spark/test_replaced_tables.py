"""A reader that follows a table ends when another table has its name: the changes of that one do not continue the first.

Each reader has read the table's rows before the table is replaced, and is asked for the next changes afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event

import pyarrow as pa
import pytest

from lakehold.errors import NotReadable, SubscriberLapsed
from lakehold.lake import Lake
from lakehold.publish.deliveries import Delivery
from lakehold.publish.durable import DurableClient
from lakehold.subscribe.query_columns import QUERY_COLUMNS, from_text, to_text, without_tables
from lakehold.times import now_ms
from tests.conftest import LakeFactory
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([("id", pa.int64())])


@pytest.fixture
def lake(make_lake: LakeFactory) -> Lake:
    made = make_lake(foreign_lag_ms=0)
    made.catalog.create_namespace("shop")
    create(made, "shop.t", 1, 2)
    return made


def create(lake: Lake, name: str, *ids: int) -> None:
    lake.catalog.create_table(name, COLUMNS)
    add(lake, *ids, name=name)


def add(lake: Lake, *ids: int, name: str = "shop.t") -> None:
    table = lake.catalog.load_table(name)
    table.append(pa.table({"id": list(ids)}, COLUMNS))
    wait_for(lambda: now_ms() > table.metadata.last_updated_ms)


def recreate(lake: Lake) -> None:
    """Drop the table, and create it again with the same columns."""
    lake.catalog.drop_table("shop.t")
    create(lake, "shop.t", 3)


def swap(lake: Lake) -> None:
    """Put the table `shop.next`, which is as old as the first one, in its place."""
    lake.catalog.rename_table("shop.t", "shop.last")
    lake.catalog.rename_table("shop.next", "shop.t")
    add(lake, 4)


def followed(lake: Lake) -> Iterator[object]:
    return lake.follow("SUBSCRIBE shop.t")


def read_to_the_end(lake: Lake) -> Iterator[object]:
    return iter(lake.read("SUBSCRIBE shop.t", timeout=None))


def delivered(lake: Lake) -> Iterator[object]:
    for delivery in lake.durable("app", "SUBSCRIBE shop.t").deliveries(Event()):
        delivery.acknowledge()
        yield delivery


def published(lake: Lake) -> Iterator[object]:
    lake.sql("CREATE SUBSCRIPTION s INTO bi.out AS SUBSCRIBE shop.t")
    return lake.subscriptions.publisher("s").publish(Event())


def refreshed(lake: Lake) -> Iterator[object]:
    lake.sql("CREATE MATERIALIZED VIEW bi.v AS SELECT count(*) AS n FROM shop.t")
    return lake.subscriptions.publisher("bi.v").publish(Event())


READERS = (followed, read_to_the_end, delivered, published, refreshed)
CASES = ((recreate, "not-readable"), (swap, "table-replaced"))


@pytest.mark.parametrize(("replace", "code"), CASES, ids=["recreated", "swapped"])
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_ends_when_another_table_has_the_name(
    lake: Lake, reader: Callable[[Lake], Iterator[object]], replace: Callable[[Lake], None], code: str
) -> None:
    create(lake, "shop.next", 1, 2)
    given = reader(lake)
    next(given)
    replace(lake)
    with pytest.raises(NotReadable) as ended:
        next(given)
    assert ended.value.code == code


def test_a_reader_reads_on_in_a_table_that_was_empty_replaced_or_emptied(lake: Lake) -> None:
    """Insert the first rows, then replace the table by a statement of Iceberg's, which keeps the table and its history."""
    lake.catalog.create_table("shop.u", COLUMNS)
    follower = lake.follow("SUBSCRIBE shop.u")
    assert next(follower).rows == []
    add(lake, 1, name="shop.u")
    assert [row[1:] for row in next(follower).rows] == [(1, 1)]
    lake.sql("CREATE OR REPLACE TABLE shop.u USING iceberg AS SELECT 2L AS id")
    assert [row[1:] for row in next(follower).rows] == [(-1, 1), (1, 2)]
    lake.sql("TRUNCATE TABLE shop.u")
    assert [row[1:] for row in next(follower).rows] == [(-1, 2)]


def runs_client(lake: Lake, on_lapse: str) -> Iterator[object]:
    """Yield the ids that each run of a durable client has."""
    client = lake.durable("app", "SUBSCRIBE shop.t", on_lapse=on_lapse)
    while True:
        yield sorted(row[-1] for delivery in acknowledged(client) for row in delivery)


def acknowledged(client: DurableClient) -> Iterator[Delivery]:
    for delivery in client.deliveries():
        yield delivery
        delivery.acknowledge()


def publishes(lake: Lake, on_lapse: str, declared: str = "SUBSCRIBE shop.t") -> Iterator[object]:
    """Yield the ids that a subscription's table has after each run."""
    lake.sql(f"CREATE SUBSCRIPTION s INTO bi.out WITH (ON LAPSE = '{on_lapse}') AS {declared}")
    return runs(lake, "s")


def keeps_history(lake: Lake, on_lapse: str) -> Iterator[object]:
    return publishes(lake, on_lapse, "SUBSCRIBE shop.t ENVELOPE HISTORY (KEY (id))")


def refreshes(lake: Lake, on_lapse: str) -> Iterator[object]:
    lake.sql(f"CREATE MATERIALIZED VIEW bi.out WITH (ON LAPSE = '{on_lapse}') AS SELECT id FROM shop.t")
    return runs(lake, "bi.out")


def runs(lake: Lake, name: str) -> Iterator[object]:
    while True:
        lake.publish(name)
        rows = lake.catalog.load_table("bi.out").scan().to_arrow()
        current = rows.filter(rows["is_current"]) if "is_current" in rows.column_names else rows
        yield sorted(current["id"].to_pylist())


RESUMING = (runs_client, publishes, keeps_history, refreshes)
WAYS = ((recreate, [3]), (swap, [1, 3, 4]))


@pytest.mark.parametrize(("replace", "_"), WAYS, ids=["recreated", "swapped"])
@pytest.mark.parametrize("reader", RESUMING)
def test_a_reader_that_resumes_notices_that_another_table_has_the_name(
    lake: Lake, reader: Callable[[Lake, str], Iterator[object]], replace: Callable[[Lake], None], _: object
) -> None:
    create(lake, "shop.next", 1, 3)
    read = reader(lake, "stop")
    assert next(read) == [1, 2]
    replace(lake)
    with pytest.raises(SubscriberLapsed) as lapsed:
        next(read)
    assert (lapsed.value.code, "shop.t" in lapsed.value.detail) == ("table-replaced", True)


@pytest.mark.parametrize(("replace", "rows"), WAYS, ids=["recreated", "swapped"])
@pytest.mark.parametrize("reader", RESUMING)
def test_a_reader_that_resumes_starts_over_with_the_rows_of_the_other_table(
    lake: Lake, reader: Callable[[Lake, str], Iterator[object]], replace: Callable[[Lake], None], rows: list[int]
) -> None:
    create(lake, "shop.next", 1, 3)
    read = reader(lake, "resnapshot")
    assert next(read) == [1, 2]
    replace(lake)
    assert next(read) == rows
    assert held_tables(lake) == [table_id(lake)]


def held_tables(lake: Lake) -> list[str]:
    return [table.object_id for hold in lake.holds.all() for table in hold.tables]


def table_id(lake: Lake) -> str:
    return str(lake.catalog.load_table("shop.t").metadata.table_uuid)


def test_a_reader_that_starts_over_because_of_its_columns_holds_the_table_that_it_reads_now(lake: Lake) -> None:
    """Earlier versions stored no ids of tables: then only the columns show that something has changed."""
    lake.catalog.create_table("shop.next", pa.schema([("other", pa.int64()), *COLUMNS]))
    add(lake, 1, 3, name="shop.next")
    read = publishes(lake, "resnapshot")
    assert next(read) == [1, 2]
    with lake.catalog.load_table("bi.out").transaction() as transaction:
        columns = from_text(transaction.table_metadata.properties[QUERY_COLUMNS])
        transaction.set_properties({QUERY_COLUMNS: to_text(without_tables(columns))})
    swap(lake)
    assert next(read) == [1, 3, 4]
    assert held_tables(lake) == [table_id(lake)]


def test_a_token_is_refused_once_another_table_has_the_name(lake: Lake) -> None:
    create(lake, "shop.next", 1, 3)
    read = lake.read("SUBSCRIBE shop.t", timeout=0)
    assert sum(len(batch.rows) for batch in read) == 2
    swap(lake)
    with pytest.raises(NotReadable) as refused:
        list(lake.read("SUBSCRIBE shop.t", timeout=0, resume=read.token))
    assert refused.value.code == "table-replaced"
