"""A MariaDB is captured over TLS, by the connector and by lakehold, with the options of one connection."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehold.errors import UpstreamError
from lakehold.lake import Lake
from lakehold.servers import HOST
from lakehold.stack import StackAddresses
from tests.certificates import Authority
from tests.mariadb_server import PASSWORD, MariaDb
from tests.mariadb_server import mariadb as mariadb  # noqa: PLC0414 - pytest finds fixtures by name
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]

_TRUSTSTORE_PASSWORD = "of the truststore"
_NAME = "localhost"
_CREATING = "CREATE TABLE shop.orders FROM SOURCE shop (TABLE 'shop.orders') ENVELOPE DEBEZIUM"


def _declaring(server: MariaDb, stack: StackAddresses, prefix: str, trusted: Authority, of_connector: Authority) -> str:
    truststore = of_connector.truststore(_TRUSTSTORE_PASSWORD)
    tls = (
        f", SSL MODE 'verify-full', SSL CERTIFICATE AUTHORITY '{trusted.file}', "
        f"SSL TRUSTSTORE LOCATION '{truststore}', SSL TRUSTSTORE PASSWORD SECRET 'truststore'"
    )
    # The connector's client of the binary log compares the name of the server's address, not the address.
    return server.declaring(stack, "shop", prefix, tls=tls).replace(f"HOST '{HOST}'", f"HOST '{_NAME}'")


@pytest.fixture
def authority(mariadb: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """Return the authority of a server that takes no connection without TLS."""
    monkeypatch.setenv("LAKEHOLD_SECRET_MARIA", PASSWORD)
    monkeypatch.setenv("LAKEHOLD_SECRET_TRUSTSTORE", _TRUSTSTORE_PASSWORD)
    authority = Authority(tmp_path)
    mariadb.execute(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id INT PRIMARY KEY, n INT)",
        "INSERT INTO shop.orders VALUES (1, 0), (2, 0)",
        "ALTER USER lakehold@'%' REQUIRE SSL",
    )
    mariadb.serve_tls(authority.issue("good", host=_NAME))
    return authority


def test_a_connector_checks_the_certificate_of_its_database(
    lake: Lake, stack: StackAddresses, mariadb: MariaDb, authority: Authority
) -> None:
    lake.sql(f"{_declaring(mariadb, stack, 'encrypted', authority, authority)};{_CREATING}")
    mariadb.execute("UPDATE shop.orders SET n = 1 WHERE id = 2")

    def followed() -> bool:
        for report in lake.ingest("shop"):
            assert not report.stopped
        return lake.tables.table_state("shop.orders") is not None and sorted(
            lake.sql(f"SELECT id, n FROM {lake.settings.catalog_name}.shop.orders").rows
        ) == [(1, 0), (2, 1)]

    wait_for(followed, "a snapshot and a change of the log have arrived")
    assert lake.verify("shop.orders").is_equal
    lake.sql("DROP SOURCE shop CASCADE")


def test_a_connector_that_does_not_trust_its_database_is_refused_with_the_reason(
    lake: Lake, stack: StackAddresses, mariadb: MariaDb, authority: Authority, tmp_path: Path
) -> None:
    lake.sql(_declaring(mariadb, stack, "distrusted", authority, Authority(tmp_path, "stranger")))
    with pytest.raises(UpstreamError) as refused:
        lake.sql(_CREATING)
    assert "PKIX path" in refused.value.detail
    assert _TRUSTSTORE_PASSWORD not in f"{refused.value} {refused.value.detail}"
    lake.sql("DROP SOURCE shop CASCADE")
