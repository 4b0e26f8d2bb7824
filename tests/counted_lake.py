"""Lakes whose requests are counted: requests to the object store of their files, and statements in their catalog's database."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from lakehold.iceberg.deletion import wait_for_deletions
from lakehold.stack.parts.postgres import Postgres
from lakehold.times import now_ms
from tests import faulty_s3
from tests.catalog_servers import running
from tests.faulty_s3 import FaultyStore
from tests.s3_server import S3Server
from tests.stack_fixtures import free_ports, open_directory

_STATEMENT = re.compile(rb"LOG:  (?:statement|execute [^:]*): (?!BEGIN|COMMIT|ROLLBACK|SET |SHOW )")
"""A statement in PostgreSQL's log; those that only frame a transaction or a session are left out."""

ALONE = {"lease_ms": 3_600_000, "lease_renew_ms": 1_800_000}
"""Settings with which no lease is renewed while requests are counted: renewals depend on time, not on work."""


@dataclass
class Requests:
    """A count of requests.

    Attributes:
        store: Requests to the object store by method and kind of object.
        store_bytes: Bytes sent to the store and received from it.
        one_after_the_other: Of the requests to the store, those that waited for each other.
        catalog: Statements in the database of the catalog.
    """

    store: Counter[str]
    store_bytes: int
    one_after_the_other: int
    catalog: int


class CatalogStatements:
    """A count of the statements that a PostgreSQL server runs, from its log."""

    def __init__(self, postgres: Postgres) -> None:
        self._log, self._read, self._found = postgres.log, 0, 0
        self.uri = postgres.addresses.postgres()
        with psycopg.connect(self.uri, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET log_statement = 'all'")
            connection.execute("SELECT pg_reload_conf()")

    def so_far(self) -> int:
        """Return how many statements the server has run."""
        with self._log.open("rb") as log:
            log.seek(self._read)
            whole = log.read().rpartition(b"\n")[0]
        self._read += len(whole)
        self._found += len(_STATEMENT.findall(whole))
        return self._found


class CountedPlace:
    """A place for lakes: an object store and a catalog that count requests."""

    def __init__(self, s3: S3Server, store: FaultyStore, statements: CatalogStatements) -> None:
        self._s3, self._store, self._statements = s3, store, statements

    def new_lake(self, directory: Path) -> dict[str, Any]:
        """Return the arguments of `connect` for a lake in a new bucket."""
        sqlalchemy_uri = self._statements.uri.replace("postgresql:", "postgresql+psycopg2:")
        place = self._s3.new_lake(directory, self._store.endpoint)
        bucket = place["warehouse"].split("/")[2]
        return {**place, **ALONE, "catalog_uri": sqlalchemy_uri, "catalog_name": f"{bucket}_{now_ms()}"}

    @contextmanager
    def counted(self) -> Iterator[Requests]:
        """Count the requests of the block; the result is complete when the block ends."""
        wait_for_deletions()
        store, size, catalog = Counter(self._store.requests), self._store.bytes, self._statements.so_far()
        found = Requests(Counter(), 0, 0, 0)
        self._store.spans.clear()
        yield found
        found.one_after_the_other = self._store.one_after_the_other()
        wait_for_deletions()
        found.store.update(self._store.requests - store)
        found.store_bytes = self._store.bytes - size
        found.catalog = self._statements.so_far() - catalog


@contextmanager
def counted_place(directory: Path, *, delay_s: float = 0.0) -> Iterator[CountedPlace]:
    """Run the servers until the block ends; the store takes at least `delay_s` for each answer."""
    with (
        open_directory() as name,
        running(Postgres(Path(name), free_ports())) as postgres,
        running(S3Server(directory)) as s3,
        faulty_s3.in_front_of(s3.endpoint, delay_s=delay_s) as store,
    ):
        yield CountedPlace(s3, store, CatalogStatements(postgres))
