"""Settings of a live PostgreSQL by which its log has too little of a row, or other values: lakehold refuses or names them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakehold.errors import UpstreamError
from lakehold.status import status_of
from tests.captured_shop import Shop
from tests.conftest import LakeFactory
from tests.live_source import execute
from tests.stack_fixtures import SourceDatabase
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]


@pytest.fixture
def shop(make_lake: LakeFactory, database: SourceDatabase, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setenv("LAKEHOLD_SECRET_PG", database.addresses.postgres_password)
    shop = Shop(make_lake, database)
    yield shop
    shop.close()


def test_deletes_that_are_logged_without_the_key_are_named_and_come_with_a_snapshot(shop: Shop) -> None:
    by_code = "ALTER TABLE {0} REPLICA IDENTITY USING INDEX {0}_n_key"
    for table in ("codes", "others"):
        execute(
            shop.database,
            [
                f"CREATE TABLE {table} (id int PRIMARY KEY, n int NOT NULL UNIQUE, note text)",
                f"INSERT INTO {table} SELECT i, i, 'x' FROM generate_series(0, 3) i",
            ],
        )
    execute(shop.database, [by_code.format("others")])
    shop.lake.sql(shop.creating("codes", "DEBEZIUM UPSERT"))
    shop.follow_until_equal("codes")
    with pytest.raises(UpstreamError, match=r'table "public\.others" logs other columns than the key') as refusal:
        shop.lake.sql(shop.creating("others", "DEBEZIUM UPSERT"))
    assert refusal.value.code == "replica-identity"

    execute(
        shop.database,
        [by_code.format("codes"), "DELETE FROM codes WHERE id = 2", "INSERT INTO codes VALUES (9, 9, 'last')"],
    )

    def is_last_there() -> bool:
        list(shop.lake.ingest("shop"))
        return (9, 9, "last") in shop.rows("codes")

    wait_for(is_last_there, "the last row arrives")
    assert [id_ for id_, *_ in shop.rows("codes")] == [1, 2, 3, 9], "row 0 is deleted in place of row 2"
    (notice,) = status_of(shop.lake).notices
    assert "deletes of table public.codes are lost, or hit other rows" in notice

    for statement in ("ALTER TABLE public.codes REPLICA IDENTITY FULL", "ALTER SOURCE shop RESNAPSHOT"):
        assert statement in notice
    execute(shop.database, ["ALTER TABLE public.codes REPLICA IDENTITY FULL"])
    shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")
    shop.follow_until_equal("codes")
    assert status_of(shop.lake).notices == ()
