"""A captured database is snapshotted while it changes: at each timestamp the lake equals the database after a commit."""

from __future__ import annotations

import pytest

from tests.bank import PostgresBank
from tests.captured_shop import Shop, grant_capture
from tests.captured_shop import poor as poor  # noqa: PLC0414 - pytest finds fixtures by name
from tests.captured_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.integration.test_live_transactions import assert_balanced_at_each_timestamp, open_for_business
from tests.live_source import execute
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]

TABLES = ("accounts", "entries", "notes")


def test_a_bank_balances_while_its_connector_starts_over_and_deleted_rows_are_deleted(shop: Shop) -> None:
    bank = PostgresBank(shop.database)
    bank.open()
    shop.upstream("notes")
    shop.lake.sql(f"BEGIN; {'; '.join(shop.creating(table, 'DEBEZIUM UPSERT') for table in TABLES)}; COMMIT")
    wait_for(lambda: _ingested(shop) and all(shop.since(table) for table in TABLES), "the tables are readable")
    with open_for_business(bank, 400) as is_open:
        for _ in range(2):
            _ingested(shop)
            shop.drop_slot()
            # No event reports these deletes.
            execute(shop.database, ["DELETE FROM notes"])
            shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")
            _ingested(shop)
        while is_open():
            _ingested(shop)
    shop.follow_until_equal("notes")
    wait_for(lambda: _ingested(shop) and _has_all(shop), "all entries are in the lake")

    assert shop.rows("notes") == []
    assert shop.events("notes") == {"r": 200}, "no event reports the deletes"
    assert_balanced_at_each_timestamp(shop.lake, "shop", at_least=2)


@pytest.mark.soak
def test_a_bank_balances_while_a_table_joins(shop: Shop) -> None:
    bank = PostgresBank(shop.database)
    bank.open()
    _join(shop, bank)


@pytest.mark.soak
def test_a_bank_balances_while_the_connector_sends_a_joining_table_ahead_of_the_others(poor: Shop) -> None:
    bank = PostgresBank(poor.database)
    bank.open()
    grant_capture(poor, "accounts", "entries")
    _join(poor, bank)


def _join(shop: Shop, bank: PostgresBank) -> None:
    # These entries have no amounts: reading them takes a while.
    shop.query("INSERT INTO entries (account, amount) SELECT 0, 0 FROM generate_series(1, 20000) RETURNING 1")
    shop.lake.sql(shop.creating("accounts", "DEBEZIUM UPSERT"))
    wait_for(lambda: _ingested(shop) and bool(shop.since("accounts")), "accounts are readable")
    scans = shop.connector.notifications().count("TABLE_SCAN_COMPLETED")
    with open_for_business(bank, 300) as is_open:
        shop.lake.sql(shop.creating("entries", "DEBEZIUM UPSERT"))
        wait_for(lambda: shop.connector.notifications().count("TABLE_SCAN_COMPLETED") > scans, "the entries are read")
        shop.connector.pause()
        # The changes of accounts that were sent may be older than the scan.
        for _ in range(3):
            _ingested(shop)
        shop.connector.go_on()
        while is_open():
            _ingested(shop)
    wait_for(lambda: _ingested(shop) and bool(shop.since("entries")) and _has_all(shop), "all entries are in the lake")
    assert_balanced_at_each_timestamp(shop.lake, "shop", at_least=1)


def _ingested(shop: Shop) -> bool:
    return not [error for report in shop.lake.ingest("shop") for error in report.stopped.values()]


def _has_all(shop: Shop) -> bool:
    name = shop.lake.settings.catalog_name
    found = shop.lake.sql(f"SELECT count(*), sum(amount) FROM {name}.shop.entries").rows
    return found == shop.query("SELECT count(*), sum(amount) FROM entries")
