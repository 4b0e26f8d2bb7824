"""A captured database is restored from a backup: lakehold reports the restore and reads nothing, however far its log is."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

import pytest

from lakehold.errors import UpstreamError
from lakehold.servers import lifecycle
from lakehold.servers.server_directory import make_directory
from lakehold.stack import StackAddresses
from lakehold.stack.parts.postgres import Postgres
from lakehold.status import status_of
from tests.captured_shop import Shop
from tests.conftest import LakeFactory
from tests.live_source import execute
from tests.stack_fixtures import SourceDatabase, free_ports, open_directory

pytestmark = [pytest.mark.stack, pytest.mark.spark]


@dataclass(frozen=True)
class Server:
    """A PostgreSQL server of its own, with a backup of its files."""

    postgres: Postgres

    def start(self) -> None:
        lifecycle.start(self.postgres, Event(), lambda _: None)

    def stop(self) -> None:
        lifecycle.stop(self.postgres, lambda _: None)

    def back_up(self) -> None:
        """Copy the server's files."""
        self.stop()
        subprocess.run(["cp", "-a", self._data, self._backup], check=True)
        self.start()

    def restore(self) -> None:
        """Replace the server's files by the backup."""
        self.stop()
        shutil.rmtree(self._data)
        self._backup.rename(self._data)
        self.start()

    @property
    def _data(self) -> Path:
        return self.postgres.folder / "data"

    @property
    def _backup(self) -> Path:
        return self.postgres.folder / "backup"


@pytest.fixture
def server() -> Iterator[Server]:
    with open_directory() as directory:
        make_directory(Path(directory))
        server = Server(Postgres(Path(directory), free_ports()))
        server.start()
        yield server
        server.stop()


@pytest.fixture
def shop(
    make_lake: LakeFactory, stack: StackAddresses, server: Server, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    monkeypatch.setenv("LAKEHOLD_SECRET_PG", stack.postgres_password)
    shop = Shop(make_lake, SourceDatabase(replace(stack, postgres_port=server.postgres.port)))
    shop.upstream("orders")
    yield shop
    shop.close()


def test_a_restored_log_that_has_overtaken_the_lake_is_recognized(shop: Shop, server: Server) -> None:
    shop.lake.sql(shop.creating("orders"))
    shop.follow_until_equal("orders")
    server.back_up()
    execute(shop.database, ["UPDATE orders SET n = 1 WHERE id <= 50", "INSERT INTO orders VALUES (900, 9, 'lost')"])
    shop.reopen()
    shop.follow_until_equal("orders")

    ((read,),) = shop.query("SELECT pg_current_wal_lsn()::text")
    server.restore()
    while shop.query("SELECT pg_current_wal_lsn() <= %s::pg_lsn", read) == [(True,)]:
        execute(shop.database, ["UPDATE orders SET n = n + 10", "DELETE FROM orders WHERE id = 100"])
    before = shop.rows("orders")
    shop.reopen()
    for _ in range(2):
        with pytest.raises(UpstreamError) as refusal:
            list(shop.lake.ingest("shop"))
        assert refusal.value.code == "database-restored"
        assert "says that lakehold last inspected it at" in refusal.value.detail
    assert shop.rows("orders") == before
    assert "went back to an earlier state" in " ".join(status_of(shop.lake).notices)

    shop.lake.sql(f"DROP SOURCE shop CASCADE; {shop.creating_source}; {shop.creating('orders')}")
    shop.follow_until_equal("orders")
    assert status_of(shop.lake).notices == ()
