"""Drops a table with its files. A table whose definition is gone must not stay because of a file that nobody can read or delete.

Then the table is dropped all the same, and the log names the location of the files: nobody searches that of a dropped table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import BadRequestError, ForbiddenError, NoSuchTableError
from pyiceberg.table import Table

from lakehold.errors import DefinitionError
from lakehold.iceberg.attempts import MALFORMED, NO_SUCH_TABLE, UNANSWERED, is_lost, read, unavailable
from lakehold.iceberg.deletion import Refusal, delete
from lakehold.iceberg.sql_catalog import RememberingSqlCatalog

logger = logging.getLogger(__name__)

_UNREADABLE = (FileNotFoundError, PermissionError, *MALFORMED)
_NO_PURGE = (ForbiddenError, BadRequestError, NotImplementedError)
"""Answers of a REST catalog that does not delete files: those of Polaris are forbidden to do so unless it is configured."""

T = TypeVar("T")


def drop(catalog: Catalog, full_name: str, *, purge: bool = True) -> bool:
    """Drop a table and, with `purge`, its files; return False if it does not exist.

    Raises:
        DefinitionError: The catalog refuses to drop it.
        UpstreamUnavailable: The catalog does not answer.
    """
    try:
        table = read(catalog, full_name, lambda found: found)
    except NO_SUCH_TABLE:
        return False
    except DefinitionError as error:
        logger.info("%s is dropped unread: %s", full_name, error.detail)
        table = None
    try:
        if not purge:
            catalog.drop_table(full_name)
        elif not isinstance(catalog, RememberingSqlCatalog):
            _purge_by_catalog(catalog, full_name, table)
        elif table is None:
            location = catalog.metadata_location(full_name)
            catalog.drop_table(full_name)
            _log_left(full_name, None, f"Its metadata file cannot be read: {location}")
        else:
            _purge(catalog, full_name, table)
    except NO_SUCH_TABLE:
        return False
    except ForbiddenError as error:
        raise DefinitionError(
            f'table "{full_name}" cannot be dropped',
            code="drop-refused",
            detail=f"The catalog refuses it: {_first_line(error)}.",
            hint="Let the user that lakehold runs as drop the table, or drop it with another tool.",
        ) from error
    except UNANSWERED as error:
        raise unavailable(full_name, error) from error
    return True


def drop_own(catalog: Catalog, full_name: str, owner_property: str, owner: str) -> bool:
    """Drop a table with its files unless it is another's; return False if one of this name stays.

    A table whose metadata is gone or damaged is dropped as well: nothing else would ever remove it. One that is denied, or of a
    newer Iceberg, stays: by now it may be another tool's.

    Args:
        catalog: The lake's catalog.
        full_name: The table's name, which a table of another definition or tool may have.
        owner_property: The property of tables that names what they were made for.
        owner: What the table to drop was made for.

    Raises:
        DefinitionError, UpstreamUnavailable: See `drop`.
    """
    try:
        if read(catalog, full_name, lambda found: found.properties.get(owner_property)) != owner:
            return False
    except NO_SUCH_TABLE:
        return True
    except DefinitionError as error:
        if not is_lost(error):
            logger.warning("%s stays, as nobody can tell whose it is: %s", full_name, error.detail)
            return False
        logger.info("whose table %s is cannot be read: %s", full_name, error.detail)
    drop(catalog, full_name)
    return True


def _purge_by_catalog(catalog: Catalog, full_name: str, table: Table | None) -> None:
    try:
        catalog.purge_table(full_name)
    except _NO_PURGE as refused:
        catalog.drop_table(full_name)
        _log_left(full_name, table, f"The catalog says: {_first_line(refused)}")


def _purge(catalog: Catalog, full_name: str, table: Table) -> None:
    """Drop a table, and delete its files; each manifest is read once, however many snapshots list it.

    The files are listed first: a store that does not answer leaves the table as it is.
    """
    snapshots, io, unread = table.metadata.snapshots, table.io, Refusal()

    def readable(of: Callable[[], list[T]], path: str) -> list[T]:
        nonlocal unread
        try:
            return of()
        except _UNREADABLE as error:
            unread += Refusal(1, f"{path} cannot be read: {_first_line(error)}")
            return []

    manifests = {
        manifest.manifest_path: manifest
        for s in snapshots
        for manifest in readable(partial(s.manifests, io), s.manifest_list)
    }
    entries = (
        entry
        for path, manifest in manifests.items()
        for entry in readable(partial(manifest.fetch_manifest_entry, io, discard_deleted=False), path)
    )
    data = dict.fromkeys(entry.data_file.file_path for entry in entries)
    lists = [snapshot.manifest_list for snapshot in snapshots]
    metadata = [*(entry.metadata_file for entry in table.metadata.metadata_log), table.metadata_location]
    # Listing the files of a large table takes minutes, in which another program may have made another table of this name.
    if read(catalog, full_name, lambda found: found.metadata.table_uuid) != table.metadata.table_uuid:
        raise NoSuchTableError(full_name)
    catalog.drop_table(full_name)
    refusal = delete(io.delete, [*data, *manifests, *lists, *metadata])
    if unread:
        _log_left(full_name, table, unread.reason)
    if refusal:
        _log_left(full_name, table, f"The store says: {refusal.reason}", f"at least {refusal.files} of its files")


def _log_left(full_name: str, table: Table | None, reason: str, files: str = "files of it") -> None:
    where = f"below {table.location()}" if table is not None else "at its location"
    logger.warning("%s is dropped, and %s are still %s; delete them by hand. %s", full_name, files, where, reason)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
