"""A database is captured over TLS, by the connector and by lakehold, with the same options of one connection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.captured_shop import Shop
from tests.certificates import Authority
from tests.conftest import LakeFactory
from tests.postgres_tls import serve_tls
from tests.stack_fixtures import SourceDatabase

pytestmark = [pytest.mark.stack, pytest.mark.spark]


@pytest.fixture
def tls_shop(
    make_lake: LakeFactory, database: SourceDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    monkeypatch.setenv("pg", database.addresses.postgres_password)
    authority = Authority(tmp_path)
    serve_tls(database.addresses.postgres(), authority.issue("good"))
    tls = f", SSL MODE 'verify-full', SSL CERTIFICATE AUTHORITY '{authority.file}'"
    shop = Shop(make_lake, database, tls=tls)
    yield shop
    shop.close()
    serve_tls(database.addresses.postgres(), None)


def test_a_connector_checks_the_certificate_of_its_database(tls_shop: Shop) -> None:
    tls_shop.upstream("orders")
    tls_shop.lake.sql(tls_shop.creating("orders"))
    tls_shop.follow_until_equal("orders")
    readers = tls_shop.database.query(
        "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_replication USING (pid) "
        "JOIN pg_replication_slots ON pid = active_pid WHERE slot_name = current_database()"
    )
    assert readers == [(True,)]
