"""A table stops while the others of its source go on, and joins them again: every readable time shows consistent tables.

Each transaction upstream sets `v` to the same value in both tables.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakehold.errors import DefinitionError, NotReadable
from lakehold.ingest.batch_report import BatchReport
from lakehold.lake import Lake
from lakehold.status import COLUMNS, status_of
from lakehold.times import iso
from tests.conftest import LakeFactory
from tests.numbered_shop import BATCH, NumberedShop
from tests.stopped_tables import make_foreign, make_own
from tests.transaction_files import Connector, define

pytestmark = pytest.mark.spark

UPPER = COLUMNS.index("upper")
JOINED = "SELECT a.v AS of_a, b.v AS of_b FROM shop.a a JOIN shop.b b ON a.id = b.id"


class Shop:
    """A lake with tables `a` and `b`, which both have the row `(1, v)`."""

    def __init__(self, lake: Lake, directory: Path) -> None:
        self.lake = lake
        define(lake, directory, {"a": "DEBEZIUM UPSERT", "b": "DEBEZIUM UPSERT"}, "WITH (MAX RECORDS = 4)")
        self.connector = Connector(directory)

    def write(self, *values: int) -> list[BatchReport]:
        """Commit a transaction for each value and ingest them."""
        for v in values:
            self.connector.transaction(("a", 1, v), ("b", 1, v))
        return self.lake.ingest("shop")

    def stop(self, *values: int) -> None:
        """Stop `b`, and write `values` that only `a` gets."""
        make_foreign(self.lake, "shop.b")
        reports = self.write(*values)
        assert {name for report in reports for name in report.stopped} == {"shop.b"}

    def recover(self, *values: int) -> None:
        make_own(self.lake, "shop.b")
        reports = self.write(*values)
        assert not any(report.stopped for report in reports)
        assert set(self.lake.batches.readers("shop")) == {"main"}

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        return self.lake.sql(text).rows

    def refused(self, text: str) -> str:
        with pytest.raises(DefinitionError) as refused:
            self.lake.sql(text)
        return refused.value.code

    @property
    def upper_ms(self) -> int:
        """Return the upper of `b`, which readers and `lakehold status` agree on."""
        (text,) = [row[UPPER] for row in status_of(self.lake).rows if row[0] == "shop.b"]
        upper_ms = self.lake.timelines.of(["shop.b"])["shop.b"].upper_ms
        assert text == iso(upper_ms)
        return upper_ms

    @property
    def stops(self) -> list[tuple[int, int]]:
        return [(stop.from_ms, stop.until_ms) for stop in self.lake.timelines.of(["shop.b"])["shop.b"].stops]

    def timestamps(self) -> list[int]:
        return [batch.mz_timestamp for batch in self.lake.batches.history("shop")]


@pytest.fixture
def shop(lake: Lake, tmp_path: Path) -> Shop:
    made = Shop(lake, tmp_path / "topics")
    made.write(1, 2)
    return made


def test_times_of_a_stop_are_unreadable_and_all_others_show_consistent_tables(shop: Shop) -> None:
    for first in (10, 20):
        shop.stop(first + 1, first + 2)
        shop.write(first + 3)
        for v in range(first + 4, first + 8):
            shop.connector.transaction(("a", 1, v), ("b", 1, v))
        shop.recover(first + 8)
        assert shop.sql(f"{JOINED} AS OF {shop.timestamps()[-1]}") == [(first + 8, first + 8)]
        shop.write(first + 9)
    assert len(shop.stops) == 2
    stops, timestamps = shop.stops, shop.timestamps()
    for begin, end in stops:
        stopped = [at_ms for at_ms in timestamps if begin <= at_ms < end]
        assert len(stopped) > 2
        for at_ms in (stopped[0], stopped[len(stopped) // 2], stopped[-1]):
            assert shop.refused(f"{JOINED} AS OF {at_ms}") == "table-was-stopped"
            assert shop.refused(f"SELECT * FROM shop.b AS OF {at_ms}") == "table-was-stopped"
            assert len(shop.sql(f"SELECT * FROM shop.a AS OF {at_ms}")) == 1
    for at_ms in timestamps:
        if not any(begin <= at_ms < end for begin, end in stops):
            ((of_a, of_b),) = shop.sql(f"{JOINED} AS OF {at_ms}")
            assert of_a == of_b
    for begin, end in stops:
        (before,), (later,) = (shop.sql(f"{JOINED} AS OF {at_ms}") for at_ms in (begin - 1, end))
        assert before[0] == before[1] < later[0] == later[1]


def test_stops_before_all_remaining_history_are_forgotten(make_lake: LakeFactory, tmp_path: Path) -> None:
    shop = Shop(make_lake(retain_history_ms=0, expire_grace_ms=0), tmp_path / "topics")
    shop.write(1, 2)
    for first in (10, 20):
        shop.stop(first + 1)
        shop.recover(first + 2)
    shop.write(30)
    assert len(shop.stops) == 2
    assert {report.error for report in shop.lake.maintain()} == {None}
    shop.stop(31)
    shop.recover(32)
    ((begin, end),) = shop.stops
    since_ms = shop.lake.timelines.of(["shop.b"])["shop.b"].since_ms
    assert since_ms < begin
    assert shop.sql(f"{JOINED} AS OF {since_ms}") == [(30, 30)]
    assert shop.refused(f"SELECT * FROM shop.b AS OF {begin}") == "table-was-stopped"
    assert shop.sql(f"{JOINED} AS OF {end}") == [(32, 32)]


def test_a_stopped_table_is_readable_up_to_its_stop_while_it_catches_up(shop: Shop) -> None:
    shop.stop(*range(11, 16))
    upper_ms = shop.upper_ms
    assert shop.sql(f"SELECT v FROM shop.b AS OF {upper_ms - 1}") == [(2,)]
    make_own(shop.lake, "shop.b")
    later = 0
    for report in shop.lake.batches_of("shop"):
        if "shop.b" in shop.lake.batches.readers("shop"):
            later += report.reader == "shop.b"
            assert shop.upper_ms == upper_ms
            assert shop.refused(f"SELECT v FROM shop.b AS OF {report.timestamp_ms}") == "not-readable"
    assert later
    ((begin, end),) = shop.stops
    assert begin == upper_ms
    assert end < shop.upper_ms


def test_a_subscribe_shows_only_the_end_of_a_stop(shop: Shop) -> None:
    since_ms = shop.lake.timelines.of(["shop.b"])["shop.b"].since_ms
    shop.stop(11, 12)
    shop.recover(13, 14)
    shop.write(15)
    ((begin, end),) = shop.stops
    for query in ("shop.a", "shop.b", f"({JOINED})", "(SELECT v FROM shop.b WHERE v > 0)"):
        rows = shop.sql(f"SUBSCRIBE {query} WITH (PROGRESS) AS OF {since_ms}")
        shown = {at_ms for at_ms, is_progress, *_ in rows if not is_progress}
        frontiers = {at_ms for at_ms, is_progress, *_ in rows if is_progress}
        assert any(begin <= at_ms < end for at_ms in shown) == (query == "shop.a")
        assert end in shown or query == "shop.a"
        assert query == "shop.a" or not any(begin <= frontier - 1 < end for frontier in frontiers)

    state: dict[tuple[int, int], int] = {}
    changes = shop.sql(f"SUBSCRIBE ({JOINED}) AS OF {since_ms}")
    for at_ms in sorted({row[0] for row in changes}):
        for _, diff, *row in (change for change in changes if change[0] == at_ms):
            state[row[0], row[1]] = state.get((row[0], row[1]), 0) + diff
        assert {row for row, count in state.items() if count} == {
            (of_a, of_a) for (of_a, _), count in state.items() if count
        }
    assert shop.sql(f"SUBSCRIBE shop.b WITH (SNAPSHOT = false) AS OF {begin - 1} UP TO {end + 1}") == [
        (end, -1, 1, 2),
        (end, 1, 1, shop.sql(f"SELECT v FROM shop.b AS OF {end}")[0][0]),
    ]
    options = f"WITH (SNAPSHOT = false, PROGRESS) AS OF {begin - 2} UP TO {end}"
    assert [row[:2] for row in shop.sql(f"SUBSCRIBE shop.b {options}")] == [(begin - 2, True), (begin, True)]


def test_times_of_a_stop_cannot_be_subscribed_to_or_held(shop: Shop) -> None:
    shop.stop(11)
    shop.recover(12)
    ((begin, end),) = shop.stops
    shop.sql(f"CREATE HOLD h ON shop.a, shop.b AT {begin - 1}")
    for text in (
        "SUBSCRIBE shop.b AS OF {}",
        f"SUBSCRIBE ({JOINED}) AS OF {{}}",
        "CREATE SUBSCRIPTION s INTO bi.out AS SUBSCRIBE shop.b AS OF {}",
        "CREATE HOLD i ON shop.a, shop.b AT {}",
        "ALTER HOLD h ADVANCE TO {}",
    ):
        for at_ms in (begin, end - 1):
            assert shop.refused(text.format(at_ms)) == "table-was-stopped"
    with pytest.raises(NotReadable):
        shop.lake.check("shop.b", at_ms=begin)
    shop.sql(f"ALTER HOLD h ADVANCE TO {end}")
    shop.sql(f"SUBSCRIBE shop.b AS OF {end}")


def test_followers_go_on_over_a_stop_wherever_they_were(shop: Shop) -> None:
    """Run a durable client, a subscription and a follower of both tables from time to time."""
    shop.sql(f"CREATE SUBSCRIPTION s INTO bi.out AS SUBSCRIBE ({JOINED})")
    updates: list[tuple[int, list[tuple[Any, ...]]]] = []
    first_ms = shop.timestamps()[-1]
    followed = shop.lake.follow(f"SUBSCRIBE ({JOINED})")
    assert [row[1:] for row in next(followed)] == [(1, 2, 2)]

    def run() -> None:
        client = shop.lake.durable("app", f"SUBSCRIBE ({JOINED})")
        client.run(lambda _: None, lambda at_ms, rows: updates.append((at_ms, [row[1:] for row in rows])))
        shop.lake.publish("s")

    run()
    shop.stop(11)
    run()
    shop.write(12)
    run()
    shop.recover(13)
    run()
    ((_, end),) = shop.stops
    v = shop.sql(f"SELECT v FROM shop.a AS OF {end}")[0][0]
    assert next((at_ms, rows) for at_ms, rows in updates if at_ms > first_ms) == (end, [(-1, 2, 2), (1, v, v)])
    batch = next(followed)
    assert (batch.timestamp, [row[1:] for row in batch]) == (end, [(-1, 2, 2), (1, v, v)])
    shop.write(14)
    run()
    assert updates[-1][1][-1] == (1, 14, 14)
    published = shop.lake.catalog.load_table("bi.out").scan().to_arrow().to_pylist()
    since_ms = min(row["mz_timestamp"] for row in published)
    expected = shop.sql(f"SUBSCRIBE ({JOINED}) AS OF {since_ms}")
    assert sorted(tuple(row.values()) for row in published) == sorted(expected)


def test_a_table_of_a_source_without_transactions_stops_and_catches_up(make_lake: LakeFactory, tmp_path: Path) -> None:
    """Stop a table of a source without transactions: batches of its own read its topic to the end."""
    shop = NumberedShop(make_lake(max_batch_records=BATCH), tmp_path / "topics")
    shop.table("orders", "orders")
    shop.table("items", "items")

    def write(count: int) -> set[str]:
        shop.write("orders", count)
        shop.write("items", count)
        return {name for report in shop.lake.ingest("shop") for name in report.stopped}

    def rows(name: str, at_ms: int) -> int:
        return len(shop.lake.sql(f"SELECT k FROM s.{name} AS OF {at_ms}").rows)

    write(2)
    make_foreign(shop.lake, "s.items")
    assert write(3 * BATCH) == {"s.items"}
    make_own(shop.lake, "s.items")
    assert write(1) == set()
    line = shop.lake.timelines.of(["s.items"])["s.items"]
    (stop,) = line.stops
    assert (rows("orders", stop.from_ms - 1), rows("items", stop.from_ms - 1)) == (2, 2)
    assert rows("orders", stop.until_ms) == rows("items", stop.until_ms) >= 2 + 3 * BATCH
    assert stop.until_ms < line.upper_ms


def test_a_new_table_was_never_stopped(shop: Shop) -> None:
    shop.stop(3)
    shop.lake.sql(
        "CREATE TABLE shop.again (id BIGINT, v BIGINT) FROM SOURCE shop (TOPIC 'shop.public.a') ENVELOPE DEBEZIUM UPSERT"
    )
    shop.recover(4)
    line = shop.lake.timelines.of(["shop.again"])["shop.again"]
    assert line.stops == ()
    assert shop.sql(f"SELECT v FROM shop.again AS OF {line.since_ms}") == shop.sql(
        f"SELECT v FROM shop.a AS OF {line.since_ms}"
    )


def test_a_client_of_several_statements_sees_both_tables_in_sync_over_a_stop(shop: Shop) -> None:
    """Stop `shop.b` alone: changes of `shop.a` meanwhile come with those of `shop.b`, at the end of the stop."""
    statements = {name: f"SUBSCRIBE shop.{name} ENVELOPE UPSERT (KEY (id))" for name in "ab"}
    now: dict[str, dict[Any, Any]] = {"a": {}, "b": {}}
    seen: list[int] = []

    def run() -> None:
        for delivery in shop.lake.durable("app", statements).deliveries():
            for name, rows in delivery.by_statement.items():
                now[name] |= {row[2]: row[-1] for row in rows}
            delivery.acknowledge()
            seen.append(delivery.timestamp)
            for name in "ab":
                assert [*now[name].items()] == shop.sql(f"SELECT id, v FROM shop.{name} AS OF {delivery.timestamp}")

    run()
    shop.stop(11)
    run()
    shop.write(12)
    run()
    shop.recover(13)
    shop.write(14)
    run()
    ((begin, end),) = shop.stops
    assert seen[-2] == end
    assert not any(begin <= at_ms < end for at_ms in seen)
    assert now == {"a": {1: 14}, "b": {1: 14}}
