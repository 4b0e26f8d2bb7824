"""Tables of a live database change over the years: the lake's tables stay equal, or stop with a hint.

`test_live_snapshots.py` has re-snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from lakehold.errors import LakeholdError
from lakehold.servers import lifecycle
from lakehold.servers.server_directory import make_directory
from lakehold.stack import ConnectClient, StackAddresses, publication_sql
from lakehold.stack.connectors import ValueFormat
from lakehold.stack.parts.postgres import Postgres
from lakehold.status import status_of
from tests.captured_shop import Shop
from tests.conftest import LakeFactory
from tests.live_connector import forget_connector
from tests.live_source import LiveSource, execute
from tests.stack_fixtures import SourceDatabase, free_ports, open_directory
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]

_EVERY_OPERATION = {"skipped.operations": "none"}
"""Options without which Debezium skips TRUNCATE."""

_ENVELOPES = {"": "DEBEZIUM", "_upsert": "DEBEZIUM UPSERT"}


def _upstream(database: SourceDatabase, *definitions: str) -> None:
    """Create tables whose changes arrive with the whole row before."""
    for definition in definitions:
        name = definition.split("(", 1)[0].strip()
        execute(database, [f"CREATE TABLE {definition}", f"ALTER TABLE {name} REPLICA IDENTITY FULL"])


def _define(source: LiveSource, *tables: str, options: str = "") -> None:
    """Define each table under both envelopes of Debezium."""
    for table in tables:
        for suffix, envelope in _ENVELOPES.items():
            source.table(f"{table}{suffix}", table, envelope, options)


def _drop(source: LiveSource, table: str) -> None:
    for suffix in _ENVELOPES:
        source.lake.sql(f"DROP TABLE live.{table}{suffix}")


def _assert_equal(source: LiveSource, *tables: str, key: Sequence[str] = ("id",)) -> None:
    for table in tables:
        for suffix in _ENVELOPES:
            source.assert_equal(f"{table}{suffix}", table, key)


def _refused(source: LiveSource, *tables: str) -> list[LakeholdError]:
    """Ingest all changes, which must stop exactly these tables; return their errors."""
    source.wait_for_arrival()
    stopped = {name: error for report in source.lake.ingest("live") for name, error in report.stopped.items()}
    assert stopped.keys() == {f"live.{table}{suffix}" for table in tables for suffix in _ENVELOPES}
    return list(stopped.values())


def test_tables_are_truncated(make_lake: LakeFactory, database: SourceDatabase) -> None:
    _upstream(database, "one (id int PRIMARY KEY, n int)", "two (id int PRIMARY KEY, n int)")
    database.execute("INSERT INTO one VALUES (1, 1), (2, 2)", "INSERT INTO two VALUES (1, 1), (2, 2)")
    lake = make_lake()
    source = LiveSource(lake, database, "one", "two", connector_options=_EVERY_OPERATION, whole_transactions=True)
    _define(source, "one", "two", options="WITH (TRUNCATE = 'apply')")
    source.catch_up()
    _assert_equal(source, "one", "two")

    database.execute("TRUNCATE one")
    source.catch_up()
    assert source.rows("one") == source.rows("one_upsert") == []
    database.execute("INSERT INTO one VALUES (1, 1)")
    database.execute("INSERT INTO one VALUES (2, 2)", "TRUNCATE one", "INSERT INTO one VALUES (1, 3), (4, 4)")
    database.execute("INSERT INTO two VALUES (3, 3)", "TRUNCATE one, two", "INSERT INTO two VALUES (1, 9)")
    database.execute("INSERT INTO one VALUES (1, 5)")
    source.catch_up()
    _assert_equal(source, "one", "two")


def test_columns_are_added_dropped_and_changed(make_lake: LakeFactory, database: SourceDatabase) -> None:
    _upstream(
        database,
        "widened (id int PRIMARY KEY, i int, r real, d numeric(10, 2), v varchar(10), kept int NOT NULL)",
        "columns (id int PRIMARY KEY, gone int, named int)",
        "changed (id int PRIMARY KEY, n int)",
    )
    database.execute(
        "INSERT INTO widened VALUES (1, 1, 1.5, 1.25, 'a', 1), (2, 2, 2.5, 2.25, 'b', 2)",
        "INSERT INTO columns VALUES (1, 1, 1), (2, 2, 2)",
        "INSERT INTO changed VALUES (1, 1), (2, 2)",
    )
    source = LiveSource(make_lake(), database, "widened", "columns", "changed")
    _define(source, "widened", "columns", "changed")
    source.catch_up()
    _assert_equal(source, "widened", "columns", "changed")

    database.execute(
        "ALTER TABLE widened ALTER i TYPE bigint, ALTER r TYPE double precision, ALTER d TYPE numeric(12, 2), ALTER v TYPE text",
        "ALTER TABLE widened ALTER kept DROP NOT NULL, ALTER i SET NOT NULL",
        "INSERT INTO widened VALUES (3, 5000000000, 1e300, 9999999999.99, 'longer than ten', NULL)",
        "UPDATE widened SET kept = NULL WHERE id = 1",
        "ALTER TABLE columns ADD plain int, ADD preset int DEFAULT 7, ADD filled text NOT NULL DEFAULT 'x'",
        "ALTER TABLE columns DROP gone",
        "ALTER TABLE columns RENAME named TO renamed",
        "INSERT INTO columns (id, renamed) VALUES (3, 3)",
        "ALTER TABLE columns ADD passing int",
        "INSERT INTO columns (id, passing) VALUES (4, 4)",
        "ALTER TABLE columns DROP passing",
        "DELETE FROM columns WHERE id = 1",
        "ALTER TABLE changed ALTER n TYPE text USING n::text",
        "INSERT INTO changed VALUES (3, 'three')",
    )
    for error in _refused(source, "changed"):
        assert error.code == "type-changed"
        assert "RENAME COLUMN n TO" in error.hint
    _assert_equal(source, "widened")
    of_columns = "id, gone, named, renamed, plain, preset, filled, passing"
    shown = sorted(source.rows("columns", of_columns))
    assert shown == sorted(source.rows("columns_upsert", of_columns))
    assert shown[0] == (2, 2, 2, None, None, None, None, None), "the database sends no events for existing rows"
    assert shown[1:] == [(3, None, None, 3, None, 7, "x", None), (4, None, None, None, None, 7, "x", 4)]

    for suffix in _ENVELOPES:
        source.lake.sql(f"ALTER TABLE live.changed{suffix} RENAME COLUMN n TO n_before")
    source.ingest()
    assert sorted(source.rows("changed")) == [(1, 1, None), (2, 2, None), (3, None, "three")]
    database.execute("UPDATE columns SET id = id", "UPDATE changed SET id = id")
    source.catch_up()
    _assert_equal(source, "widened", "columns", "changed")


def test_primary_keys_are_added_and_changed(make_lake: LakeFactory, database: SourceDatabase) -> None:
    _upstream(
        database,
        "keyless (id int NOT NULL, n int)",
        "rekeyed (id int PRIMARY KEY, email text NOT NULL, n int)",
        "compound (id int PRIMARY KEY, region text NOT NULL, n int)",
    )
    database.execute(
        "INSERT INTO keyless VALUES (1, 1), (2, 2), (3, 3)",
        "INSERT INTO rekeyed VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)",
        "INSERT INTO compound VALUES (1, 'eu', 1), (2, 'eu', 2), (3, 'us', 3)",
    )
    source = LiveSource(make_lake(), database, "keyless", "rekeyed", "compound")
    _define(source, "keyless", options="KEY (id)")
    _define(source, "rekeyed", "compound")
    source.catch_up()
    database.execute(
        "UPDATE keyless SET id = 10 WHERE id = 1",
        "UPDATE keyless SET id = 1 WHERE id = 2",
        "DELETE FROM keyless WHERE id = 3",
    )
    source.catch_up()
    _assert_equal(source, "keyless", "rekeyed", "compound")

    database.execute(
        "ALTER TABLE keyless ADD PRIMARY KEY (id)",
        "UPDATE keyless SET id = 2 WHERE id = 1",
        "INSERT INTO keyless VALUES (1, 5)",
        "DELETE FROM keyless WHERE id = 10",
        "UPDATE rekeyed SET email = 'aa', n = 4 WHERE id = 1",
        "UPDATE rekeyed SET id = 7 WHERE id = 3",
        "ALTER TABLE rekeyed DROP CONSTRAINT rekeyed_pkey, ADD PRIMARY KEY (email)",
        "UPDATE rekeyed SET id = 20, n = 3 WHERE id = 2",
        "INSERT INTO rekeyed VALUES (20, 'd', 4)",
        "UPDATE rekeyed SET email = 'cc' WHERE id = 7",
        "DELETE FROM rekeyed WHERE email = 'aa'",
        "ALTER TABLE compound DROP CONSTRAINT compound_pkey, ADD PRIMARY KEY (id, region)",
        "INSERT INTO compound VALUES (1, 'us', 4)",
        "UPDATE compound SET region = 'asia' WHERE id = 2",
        "DELETE FROM compound WHERE id = 3",
    )
    for error in _refused(source, "rekeyed", "compound"):
        assert error.code == "key-changed"
        assert "KEY (…)" in error.hint
    _assert_equal(source, "keyless")

    _drop(source, "rekeyed")
    _drop(source, "compound")
    _define(source, "rekeyed", options="KEY (email)")
    _define(source, "compound", options="KEY (id, region)")
    source.ingest()
    _assert_equal(source, "rekeyed", key=["email"])
    _assert_equal(source, "compound", key=["id", "region"])
    database.execute("UPDATE rekeyed SET email = 'x' WHERE id = 7", "DELETE FROM compound WHERE region = 'eu'")
    source.catch_up()
    _assert_equal(source, "rekeyed", key=["email"])
    _assert_equal(source, "compound", key=["id", "region"])


@pytest.mark.parametrize("value_format", ["avro", pytest.param("json", marks=pytest.mark.soak)])
def test_a_primary_key_is_dropped_and_put_back(
    make_lake: LakeFactory, database: SourceDatabase, value_format: ValueFormat
) -> None:
    _upstream(database, "unkeyed (id int PRIMARY KEY, n int)", "neighbour (id int PRIMARY KEY, n int)")
    database.execute("INSERT INTO unkeyed VALUES (1, 1), (2, 2)", "INSERT INTO neighbour VALUES (1, 1)")
    source = LiveSource(make_lake(), database, "unkeyed", "neighbour", value_format=value_format)
    _define(source, "unkeyed", "neighbour")
    source.table("named", "unkeyed", "DEBEZIUM", "KEY (id, n)")
    source.catch_up()
    database.execute(
        "ALTER TABLE unkeyed DROP CONSTRAINT unkeyed_pkey",
        "INSERT INTO unkeyed VALUES (1, 5)",
        "UPDATE neighbour SET n = 2",
    )
    for error in _refused(source, "unkeyed"):
        assert error.code == "key-changed"
        assert "are identified by (id)" in error.detail
        assert "1 of 1 have none" in error.detail
    _assert_equal(source, "neighbour")
    assert sorted(source.rows("unkeyed")) == sorted(source.rows("unkeyed_upsert")) == [(1, 1), (2, 2)]
    source.assert_equal("named", "unkeyed", ["id", "n"])

    database.execute(
        "DELETE FROM unkeyed WHERE n = 1",
        "ALTER TABLE unkeyed ADD PRIMARY KEY (id)",
        "UPDATE unkeyed SET n = 7 WHERE id = 2",
        "DELETE FROM neighbour",
    )
    assert {error.code for error in _refused(source, "unkeyed")} == {"key-changed"}, (
        "by the new key row 1 would be deleted"
    )
    _assert_equal(source, "neighbour")
    source.assert_equal("named", "unkeyed", ["id", "n"])
    _drop(source, "unkeyed")
    _define(source, "unkeyed", options="KEY (id, n)")
    source.ingest()
    _assert_equal(source, "unkeyed", key=["id", "n"])


def test_a_topic_gets_more_partitions(make_lake: LakeFactory, database: SourceDatabase) -> None:
    _upstream(database, "moving (id int PRIMARY KEY, n int, letter text)")
    database.execute(
        "ALTER TABLE moving ALTER letter SET STORAGE EXTERNAL",
        "INSERT INTO moving SELECT i, 0, repeat('x', 9000) FROM generate_series(1, 40) i",
    )
    source = LiveSource(
        make_lake(),
        database,
        "moving",
        partitions=2,
        max_records=50,
        connector_options={"producer.override.metadata.max.age.ms": "500"},
    )
    _define(source, "moving")
    source.catch_up()
    _assert_equal(source, "moving")

    for _ in range(4):
        database.execute("UPDATE moving SET n = n + 1")
    topic, broker = source.topic("moving"), database.addresses.kafka
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result()
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "looks at ends only", "log_level": 0})

    def is_used() -> bool:
        database.execute("UPDATE moving SET n = n + 1")
        return bool(consumer.get_watermark_offsets(TopicPartition(topic, 2), timeout=10)[1] > 0)

    wait_for(is_used, "the connector writes the new partition")
    consumer.close()
    database.execute("UPDATE moving SET n = n + 1", "DELETE FROM moving WHERE id % 5 = 0")
    source.catch_up()
    _assert_equal(source, "moving")
    database.execute("UPDATE moving SET letter = 'short' WHERE id % 2 = 0", "UPDATE moving SET n = n + 1")
    assert len(source.catch_up()) > 1, "batches are bounded again"
    _assert_equal(source, "moving")


@pytest.fixture
def another_server(stack: StackAddresses) -> Iterator[StackAddresses]:
    """Replace the stack's PostgreSQL by a new server, whose log starts over."""
    with open_directory() as directory:
        make_directory(Path(directory))
        server = Postgres(Path(directory), free_ports())
        lifecycle.start(server, Event(), lambda _: None)
        yield replace(stack, postgres_port=server.port)
        lifecycle.stop(server, lambda _: None)


def test_a_database_is_restored_from_a_backup(
    make_lake: LakeFactory, database: SourceDatabase, another_server: StackAddresses
) -> None:
    _upstream(database, "restored (id int PRIMARY KEY, n int)")
    database.execute("INSERT INTO restored VALUES (1, 1), (2, 2)")
    source = LiveSource(make_lake(), database, "restored", whole_transactions=True)
    _define(source, "restored")
    source.catch_up()
    database.execute("INSERT INTO restored VALUES (3, 3)", "UPDATE restored SET n = 10 WHERE id = 1")
    source.catch_up()
    _assert_equal(source, "restored")

    config = {**forget_connector(database), "database.port": str(another_server.postgres_port)}
    source.database = SourceDatabase(another_server, database.name)
    _upstream(source.database, "restored (id int PRIMARY KEY, n int)", "arrival_marker (token text PRIMARY KEY)")
    source.database.execute("INSERT INTO restored VALUES (1, 1), (2, 2)")
    execute(source.database, publication_sql("captured", ["public.restored", "public.arrival_marker"]))
    _start(source.database, config)
    source.database.execute("INSERT INTO restored VALUES (5, 5)", "DELETE FROM restored WHERE id = 2")
    before = sorted(source.rows("restored"))
    for error in _refused(source, "restored"):
        assert error.code == "database-restored"
        assert "is newer than those up to 0/" in error.detail
    assert sorted(source.rows("restored")) == sorted(source.rows("restored_upsert")) == before

    _drop(source, "restored")
    forget_connector(source.database)
    admin = AdminClient({"bootstrap.servers": database.addresses.kafka})
    for deleted in admin.delete_topics([source.topic("restored"), database.topic("transaction")]).values():
        deleted.result()
    _start(source.database, config)
    _define(source, "restored")
    source.catch_up()
    source.database.execute("DELETE FROM restored WHERE id = 1", "INSERT INTO restored VALUES (6, 6)")
    source.catch_up()
    _assert_equal(source, "restored")
    source.database.drop_connector()


def _start(database: SourceDatabase, config: Mapping[str, str]) -> None:
    with ConnectClient(database.addresses.connect) as connect:
        connect.put(database.name, config)
        connect.wait_until_running(database.name)


@pytest.mark.soak
def test_the_last_table_of_a_captured_database_is_dropped_and_created_again(
    make_lake: LakeFactory, database: SourceDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOLD_SECRET_PG", database.addresses.postgres_password)
    shop = Shop(make_lake, database)
    try:
        _life_of_the_last_table(shop)
    finally:
        shop.close()


def _life_of_the_last_table(shop: Shop) -> None:
    shop.upstream("orders", rows=5)
    shop.lake.sql(shop.creating("orders"))
    shop.follow_until_equal("orders")
    execute(
        shop.database, ["UPDATE orders SET n = 1", "ALTER TABLE orders ALTER n TYPE text", "UPDATE orders SET n = 'x'"]
    )
    with pytest.raises(LakeholdError) as refusal:
        shop.follow_until_equal("orders")
    assert refusal.value.code == "type-changed"
    assert "dropping and creating it is enough" in refusal.value.hint
    shop.lake.sql("DROP TABLE shop.orders")
    shop.lake.sql(shop.creating("orders"))
    shop.follow_until_equal("orders")

    execute(
        shop.database, ["ALTER TABLE orders DROP CONSTRAINT orders_pkey", "INSERT INTO orders VALUES (1, 'y', 'z')"]
    )
    with pytest.raises(LakeholdError) as refusal:
        shop.follow_until_equal("orders")
    assert refusal.value.code == "key-changed"
    assert "create it again: its topic goes with it" in refusal.value.hint
    shop.lake.sql("DROP TABLE shop.orders")
    shop.lake.sql(f"{shop.creating('orders')} KEY (id, n)")
    shop.follow_until_equal("orders")
    execute(shop.database, ["DELETE FROM orders WHERE n = 'y'", "ALTER TABLE orders ADD PRIMARY KEY (id)"])
    shop.follow_until_equal("orders")
    shop.lake.sql("DROP TABLE shop.orders")
    shop.lake.sql(shop.creating("orders"))
    shop.follow_until_equal("orders")

    execute(shop.database, ["ALTER TABLE orders RENAME TO sales", "UPDATE sales SET n = 'y'"])
    shop.reopen()
    shop.lake.ingest("shop")
    (problem,) = status_of(shop.lake).notices
    assert "It is called public.sales now" in problem
    shop.lake.sql("DROP TABLE shop.orders")
    shop.lake.sql(shop.creating("sales"))
    shop.follow_until_equal("sales")
