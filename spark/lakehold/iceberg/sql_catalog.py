"""PyIceberg's SQL catalog with caching, so that loading a table hardly slows down as its snapshots grow.

A batch loads its table several times. Metadata files and manifests never change, so that each is read once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from urllib.parse import urlsplit

from cachetools import LRUCache
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergNamespaceProperties, IcebergTables, SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io import load_file_io
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from sqlalchemy import ColumnElement, and_, event, or_, select, union, update

from lakehold.iceberg import catalog_deadlines, metadata_files
from lakehold.iceberg.attempts import MALFORMED
from lakehold.iceberg.metadata_files import MetadataFile
from lakehold.iceberg.metrics import count_statement
from lakehold.iceberg.properties import TIMEOUT_MS

REMEMBERED_BYTES = 128 * 2**20
"""Size of the cached metadata files, the last one of each table: thousands of small ones, or dozens with a day's snapshots."""

_LEAST_BYTES = 40_000
"""What a metadata file counts beside its snapshots: its schema and properties, as Python objects."""

_READ_AT_ONCE = 32
"""Metadata files that are read side by side."""

_READ_AHEAD = REMEMBERED_BYTES // _LEAST_BYTES // 2
"""Metadata files that are read ahead: no more than are still cached when the first one of them is needed."""


def _size(file: MetadataFile) -> int:
    """Return what a file counts; even the largest one fits into the cache."""
    return min(_LEAST_BYTES + len(file.snapshots), REMEMBERED_BYTES)


class RememberingSqlCatalog(SqlCatalog):
    """An `SqlCatalog` that caches the metadata files it has read."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        event.listen(self.engine, "before_cursor_execute", count_statement)
        self._seen: LRUCache[Identifier, MetadataFile] = LRUCache(REMEMBERED_BYTES, _size)
        self._seeing = threading.Lock()

    def _init_catalog(self) -> None:
        """Create the tables of the catalog, with time limits from the first connection on."""
        if self.engine.dialect.name == "postgresql":
            catalog_deadlines.limit(self.engine, int(self.properties[TIMEOUT_MS]) / 1000)
        super()._init_catalog()

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load the table.

        Raises:
            NoSuchTableError: The table does not exist.
        """
        names = Catalog.identifier_to_tuple(identifier)
        location = self.metadata_location(names)
        metadata = self.file_of(names, location).metadata
        io = load_file_io({**self.properties, **metadata.properties}, location)
        return Table(names, metadata, location, io, self)

    def file_of(self, names: Identifier, location: str) -> MetadataFile:
        """Read the metadata file of a table at `location`."""
        with self._seeing:
            seen = self._seen.get(names)
        if seen is None or seen.location != location:
            seen = metadata_files.read(load_file_io(self.properties, location), location, seen)
            self._remember(names, seen)
        return seen

    def read_ahead(self, names: Collection[str]) -> None:
        """Read the metadata files of tables side by side, if an object store has them, so that loading the tables reads none.

        Nothing is raised for a table whose file is not read: loading the table does that.
        """
        found = islice(self._locations(names).items(), _READ_AHEAD)
        far = {name: location for name, location in found if urlsplit(location).scheme not in ("", "file")}
        if len(far) > 1:
            with ThreadPoolExecutor(min(len(far), _READ_AT_ONCE), thread_name_prefix="lakehold-metadata") as threads:
                deque(threads.map(self._try_to_read, far, far.values()), maxlen=0)

    def _try_to_read(self, names: Identifier, location: str) -> None:
        with suppress(OSError, *MALFORMED):
            self.file_of(names, location)

    def _locations(self, names: Collection[str]) -> dict[Identifier, str]:
        """Return where the metadata of those tables in `names` that exist is, in their order; one statement for all."""
        wanted = [Catalog.identifier_to_tuple(name) for name in names]
        columns = IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location
        with self.engine.connect() as connection:
            rows = connection.execute(select(*columns).where(IcebergTables.catalog_name == self.name)).all()
        located = {(*namespace.split("."), name): location for namespace, name, location in rows if location}
        return {name: located[name] for name in wanted if name in located}

    def all_namespaces(self) -> list[Identifier]:
        """List the namespaces of all levels; one statement for all."""
        of_tables = select(IcebergTables.table_namespace).where(IcebergTables.catalog_name == self.name)
        created = select(IcebergNamespaceProperties.namespace).where(
            IcebergNamespaceProperties.catalog_name == self.name
        )
        with self.engine.connect() as connection:
            found = [tuple(name.split(".")) for name in connection.execute(union(of_tables, created)).scalars()]
        return list({parts[:level] for parts in found for level in range(1, len(parts) + 1)})

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit updates, and remember the metadata file that this writes.

        Raises:
            CommitFailedException: Another writer committed since.
        """
        committed: CommitTableResponse = super().commit_table(table, requirements, updates)
        names, text = table.name(), committed.metadata.model_dump_json(exclude_none=True).encode()
        with self._seeing:
            before = self._seen.get(names)
        self._remember(names, metadata_files.parsed(committed.metadata_location, text, before))
        return committed

    def replace(self, table: Table, file: MetadataFile) -> None:
        """Make a written metadata file the table's, if the table has not changed since it was loaded.

        Raises:
            CommitFailedException: Another writer committed since.
        """
        before, names = table.metadata_location, table.name()
        statement = (
            update(IcebergTables)
            .where(self._is(names), IcebergTables.metadata_location == before)
            .values(metadata_location=file.location, previous_metadata_location=before)
        )
        with self.engine.begin() as connection:
            if connection.execute(statement).rowcount < 1:
                raise CommitFailedException(f"{'.'.join(names)} is no longer at {before}")
        self._remember(names, file)

    def close(self) -> None:
        """Close the database, and clear the cache: large tables are too much to wait for the garbage collector."""
        with self._seeing:
            self._seen.clear()
        super().close()

    def _remember(self, names: Identifier, file: MetadataFile) -> None:
        with self._seeing:
            self._seen[names] = file

    def metadata_location(self, identifier: str | Identifier) -> str:
        """Return where the newest metadata file of a table is, without reading it.

        Raises:
            NoSuchTableError: The table does not exist.
        """
        names = Catalog.identifier_to_tuple(identifier)
        with self.engine.connect() as connection:
            location = connection.execute(select(IcebergTables.metadata_location).where(self._is(names))).scalar()
        if location is None:
            raise NoSuchTableError(f"Table does not exist: {'.'.join(names)}")
        return location

    def _is(self, names: Identifier) -> ColumnElement[bool]:
        return and_(
            IcebergTables.catalog_name == self.name,
            IcebergTables.table_namespace == Catalog.namespace_to_string(Catalog.namespace_from(names)),
            IcebergTables.table_name == Catalog.table_name_from(names),
            or_(IcebergTables.iceberg_type.is_(None), IcebergTables.iceberg_type == "TABLE"),
        )
