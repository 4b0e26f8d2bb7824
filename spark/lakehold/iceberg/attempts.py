"""Optimistic changes of a table: a change is committed only on top of the version it was planned on, else planned again."""

from __future__ import annotations

import logging
import random
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from gzip import BadGzipFile
from typing import Generic, TypeVar

from pydantic import ValidationError as InvalidContent
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    ValidationError,
)
from pyiceberg.table import Table
from sqlalchemy.exc import SQLAlchemyError

from lakehold.errors import CommitConflict, DefinitionError, LakeholdError, UpstreamUnavailable
from lakehold.iceberg.catalog_outages import reason_of
from lakehold.iceberg.deletion import delete_or_log
from lakehold.iceberg.store_errors import is_denied, store_failed, store_hint

logger = logging.getLogger(__name__)

COMMIT_ATTEMPTS = 100
"""How often a change is tried while others commit first. With eight writers that commit all the time, each wins one try in
eight: losing all hundred happens about once in a million changes."""

OPEN_OUTCOMES_MOST = 5
"""How many commits of one change may end with an unknown outcome."""

MAX_PAUSE_S = 0.25
"""The longest pause between two tries; pauses are random, so that two writers that collided do not collide again."""

READ_ATTEMPTS = 5
"""How often a read is tried when it meets files that others expired; that takes some fifteen changes."""

UNANSWERED = (SQLAlchemyError, RESTError, OSError)
"""Exceptions of catalogs and warehouses that do not answer: from a database, a REST server, or the network to either."""

MALFORMED = (
    *(ValueError, KeyError, IndexError, TypeError, AttributeError, EOFError),
    *(BadGzipFile, zlib.error, ValidationError),
)
"""Exceptions from reading metadata that is damaged or of an unknown version."""

_OWN_TABLES = "mz_catalog."

NO_SUCH_TABLE = (NoSuchTableError, NoSuchNamespaceError)

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Attempt(Generic[T]):
    """One try of a change: everything is written, but not visible yet.

    Attributes:
        table: The table it was made from.
        result: The result of the change, once it is committed.
        files: Files that were written for it: they are deleted if others commit first.
        commit: Makes it visible in the table. Raises `CommitFailedException` if others committed first.
        is_in: Whether the table contains it; for commits with an unknown outcome.
    """

    table: Table
    result: T
    files: tuple[str, ...]
    commit: Callable[[], None]
    is_in: Callable[[Table], bool]


def change(catalog: Catalog, table_name: str, attempt: Callable[[Table], Attempt[T] | None]) -> T | None:
    """Commit `attempt(table)` unless another writer commits in between; then attempt it again on the newest table.

    Returns the committed result; None if there was nothing to change.

    Args:
        catalog: The lake's catalog.
        table_name: Full name of the table.
        attempt: Plans a change of the given table and writes its files; None for no change. It raises to refuse.

    Raises:
        DefinitionError: The table does not exist, or cannot be read.
        CommitConflict: Others committed first each time.
        UpstreamUnavailable: The catalog does not answer; a commit may or may not have happened.
    """
    open_attempts: list[Attempt[T]] = []  # whose commit has an unknown outcome
    for tries in range(COMMIT_ATTEMPTS):
        try:
            made = read(catalog, table_name, lambda table: _committed(table, open_attempts) or attempt(table))
        except NO_SUCH_TABLE as error:
            raise missing(table_name) from error
        if made is None or made in open_attempts:
            return made.result if made is not None else None
        try:
            made.commit()
        except CommitFailedException as error:
            delete_or_log(made.table.io, made.files)
            logger.debug("another commit to %s came first: %s", table_name, error)
        except UNANSWERED as error:
            # The catalog may have committed before it failed: the next read of the table shows that.
            logger.warning("commit to %s has an unknown outcome: %s", table_name, error)
            open_attempts.append(made)
            if len(open_attempts) == OPEN_OUTCOMES_MOST:
                raise unavailable(table_name, error) from error
        else:
            return made.result
        time.sleep(random.uniform(0, min(MAX_PAUSE_S, 0.01 * 2**tries)))
    raise CommitConflict(
        f'other writers kept changing "{table_name}"',
        detail=f"Each of {COMMIT_ATTEMPTS} attempts to commit came after another writer's commit.",
        hint="Try again.",
    )


def read(catalog: Catalog, table_name: str, of: Callable[[Table], T]) -> T:
    """Return `of(table)` for the newest table; read again if its files were expired meanwhile.

    Raises:
        NoSuchTableError: The table does not exist.
        DefinitionError: Its metadata is missing, damaged or denied.
        UpstreamUnavailable: The catalog does not answer.
    """
    try:
        # Each object of tenacity is part of a cycle, with the last result in it: metadata would stay until the collector runs.
        for _ in range(READ_ATTEMPTS - 1):
            try:
                return of(_loaded(catalog, table_name))
            except FileNotFoundError:
                logger.info("%s changed while it was read: reading it again", table_name)
        return of(_loaded(catalog, table_name))
    except FileNotFoundError as error:
        raise unreadable(table_name, error) from error
    except (ForbiddenError, PermissionError) as error:
        raise _denied(table_name, error) from error
    except UNANSWERED as error:
        # Without lakehold's own tables nothing works: their error is about the whole store.
        if is_denied(str(error)) and not table_name.startswith(_OWN_TABLES):
            raise _denied(table_name, error) from error
        raise unavailable(table_name, error) from error


@contextmanager
def answering(attempted: str) -> Iterator[None]:
    """Turn the failure of a catalog that does not answer into an error of lakehold.

    Args:
        attempted: What the catalog is asked for, as the subject of a sentence.

    Raises:
        UpstreamUnavailable: The catalog does not answer.
    """
    try:
        yield
    except UNANSWERED as error:
        raise catalog_unavailable(attempted, error) from error


@contextmanager
def changing(table_name: str) -> Iterator[None]:
    """Turn failures of PyIceberg while it creates, changes or writes a table into errors of lakehold.

    Raises:
        CommitConflict: Another writer committed first.
        DefinitionError: A file of the table is gone.
        UpstreamUnavailable: The catalog or the store does not answer, or refuses the request.
    """
    try:
        yield
    except CommitFailedException as error:
        raise CommitConflict(
            f'another writer changed "{table_name}" first', detail=f"{error}".strip(), hint="Try again."
        ) from error
    except FileNotFoundError as error:
        raise unreadable(table_name, error) from error
    except UNANSWERED as error:
        raise unavailable(table_name, error) from error


def _loaded(catalog: Catalog, table_name: str) -> Table:
    try:
        return catalog.load_table(table_name)
    except MALFORMED as error:
        raise unreadable(table_name, error) from error


def missing(table_name: str) -> DefinitionError:
    """Return the error for a table that does not exist, although lakehold is working on it."""
    return DefinitionError(
        f'table "{table_name}" does not exist',
        code="table-missing",
        detail="Somebody dropped or renamed it meanwhile.",
        hint="SHOW TABLES IN a namespace lists its tables.",
    )


def unreadable(table_name: str, cause: Exception) -> LakeholdError:
    """Return the error for a table with a file that cannot be read, or whose store does not work."""
    if _is_of_store(cause):
        return store_failed(str(cause), f'table "{table_name}"')
    return DefinitionError(
        f'table "{table_name}" cannot be read',
        code="table-unreadable",
        detail=f"One of its files is gone or damaged, or of an Iceberg newer than this lakehold: {reason_of(cause)}.",
        hint="Restore the file, or drop the table from the catalog.",
    )


def is_lost(error: DefinitionError) -> bool:
    """Return whether `read` failed because metadata is gone or damaged: it is not denied, nor of a newer Iceberg."""
    cause = error.__cause__
    if isinstance(cause, ValidationError):
        cause = cause.__cause__
    if isinstance(cause, InvalidContent):
        return all(each["type"] == "json_invalid" for each in cause.errors())
    return isinstance(cause, (FileNotFoundError, *MALFORMED))


def _denied(table_name: str, cause: Exception) -> DefinitionError:
    return DefinitionError(
        f'table "{table_name}" cannot be read',
        code="table-unreadable",
        detail=f"The catalog or the store denies it: {reason_of(cause)}.",
        hint="Let the user that lakehold runs as read the table and its files.",
    )


def _committed(table: Table, open_attempts: list[Attempt[T]]) -> Attempt[T] | None:
    return next((attempt for attempt in open_attempts if attempt.is_in(table)), None)


def _is_of_store(cause: Exception) -> bool:
    return not isinstance(cause, FileNotFoundError) and bool(store_hint(str(cause)))


def unavailable(table_name: str, cause: Exception) -> UpstreamUnavailable:
    """Return the error for a catalog, or an object store, that does not answer when a table is read or changed."""
    if _is_of_store(cause):
        return store_failed(str(cause), f'table "{table_name}"')
    return catalog_unavailable(f'Reading or changing "{table_name}"', cause)


def catalog_unavailable(attempted: str, cause: Exception) -> UpstreamUnavailable:
    """Return the error for a catalog that does not answer; `attempted` is what failed, as the subject of a sentence."""
    return UpstreamUnavailable(
        "the lake's catalog does not answer",
        code="catalog-unavailable",
        detail=f"{attempted} failed: {reason_of(cause)}.",
        hint="Check the catalog, its address in catalog_uri and the warehouse, then run it again: nothing is done twice.",
    )
