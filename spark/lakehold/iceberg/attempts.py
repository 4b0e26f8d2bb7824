"""Changing a table while others do: what was decided on a table is committed on top of that table only, or decided again."""

from __future__ import annotations

import logging
import random
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from gzip import BadGzipFile
from typing import Generic, TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, ForbiddenError, RESTError, ValidationError
from pyiceberg.table import Table
from sqlalchemy.exc import SQLAlchemyError

from lakehold.errors import CommitConflict, DefinitionError, UpstreamUnavailable
from lakehold.iceberg import expiry

logger = logging.getLogger(__name__)

COMMIT_ATTEMPTS = 100
"""How often a change is tried while others commit first. Of eight writers that never rest, each wins one try in eight:
all hundred are lost about once in a million changes."""

OPEN_OUTCOMES_MOST = 5
"""How many commits of one change may fail without saying whether they happened."""

MAX_PAUSE_S = 0.25
"""The longest pause between two tries; it is drawn at random, so that writers that met once do not meet again."""

READ_ATTEMPTS = 5
"""How often a read may meet files that the changes of others, some fifteen later, expired."""

UNANSWERED = (SQLAlchemyError, RESTError, OSError)
"""What catalogs and warehouses raise that do not answer: a database, a REST server that says so, and the network to either."""

MALFORMED = (
    *(ValueError, KeyError, IndexError, TypeError, AttributeError, EOFError),
    *(BadGzipFile, zlib.error, ValidationError),
)
"""What reading metadata raises that is damaged or of an unknown version."""

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Attempt(Generic[T]):
    """One try of a change: all that it needs is written, and nobody sees it yet.

    Attributes:
        table: The table it was made from.
        result: What the change is, once it is committed.
        files: What was written for it: they go if others come first.
        commit: Makes it the table's. Raises `CommitFailedException` if others committed first.
        is_in: Whether the table shows it; tells of a commit whose outcome is open.
    """

    table: Table
    result: T
    files: tuple[str, ...]
    commit: Callable[[], None]
    is_in: Callable[[Table], bool]


def change(catalog: Catalog, table_name: str, attempt: Callable[[Table], Attempt[T] | None]) -> T | None:
    """Commit `attempt(table)` if nobody commits in between; else attempt it again on the newest table.

    Returns what was committed; None when there was nothing to change.

    Args:
        catalog: The lake's catalog.
        table_name: Full name of the table.
        attempt: Decides from the table given, and writes; None for nothing to change. It raises to refuse.

    Raises:
        CommitConflict: Others came first each time.
        UpstreamUnavailable: The catalog does not answer; a commit may or may not have happened.
    """
    open_attempts: list[Attempt[T]] = []  # whose commit has an open outcome
    for tries in range(COMMIT_ATTEMPTS):
        made = read(catalog, table_name, lambda table: _committed(table, open_attempts) or attempt(table))
        if made is None or made in open_attempts:
            return made.result if made is not None else None
        try:
            made.commit()
        except CommitFailedException as error:
            expiry.delete(made.table.io, made.files)
            logger.debug("another commit to %s came first: %s", table_name, error)
        except UNANSWERED as error:
            # The catalog may have committed before it failed: the next read of the table tells.
            logger.warning("commit to %s has an open outcome: %s", table_name, error)
            open_attempts.append(made)
            if len(open_attempts) == OPEN_OUTCOMES_MOST:
                raise _unavailable(table_name, error) from error
        else:
            return made.result
        time.sleep(random.uniform(0, min(MAX_PAUSE_S, 0.01 * 2**tries)))
    raise CommitConflict(
        f'others kept changing "{table_name}"',
        detail=f"Each of {COMMIT_ATTEMPTS} tries to commit came after another's commit.",
        hint="Try again.",
    )


def read(catalog: Catalog, table_name: str, of: Callable[[Table], T]) -> T:
    """Return `of(table)` for the newest table; read again when its files were expired meanwhile.

    Raises:
        DefinitionError: Its metadata is gone or makes no sense.
        UpstreamUnavailable: The catalog does not answer.
    """
    try:
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
        raise _unavailable(table_name, error) from error


def _loaded(catalog: Catalog, table_name: str) -> Table:
    try:
        return catalog.load_table(table_name)
    except MALFORMED as error:
        raise unreadable(table_name, error) from error


def unreadable(table_name: str, cause: Exception) -> DefinitionError:
    """Return the error of a table of which a file cannot be read."""
    reason = str(cause).strip().splitlines() or [type(cause).__name__]
    return DefinitionError(
        f'table "{table_name}" cannot be read',
        code="table-unreadable",
        detail=f"A file of it is gone or damaged, or of an Iceberg that is newer than this lakehold: {reason[0].rstrip('.')}.",
        hint="Restore the file, or drop the table from the catalog.",
    )


def _denied(table_name: str, cause: Exception) -> DefinitionError:
    return DefinitionError(
        f'table "{table_name}" cannot be read',
        code="table-unreadable",
        detail=f"The catalog or the store denies it: {str(cause).strip().partition(chr(10))[0].rstrip('.')}.",
        hint="Let the user that lakehold runs as read the table and its files.",
    )


def _committed(table: Table, open_attempts: list[Attempt[T]]) -> Attempt[T] | None:
    return next((attempt for attempt in open_attempts if attempt.is_in(table)), None)


def _unavailable(table_name: str, cause: Exception) -> UpstreamUnavailable:
    reason = str(getattr(cause, "orig", None) or cause).strip().splitlines()[0]
    return UpstreamUnavailable(
        "the lake's catalog does not answer",
        code="catalog-unavailable",
        detail=f'Reading or changing "{table_name}" failed: {reason}.',
        hint="Check the catalog and the warehouse, then run it again: nothing is done twice.",
    )
