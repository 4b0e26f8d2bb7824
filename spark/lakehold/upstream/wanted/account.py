"""The account of a connection's user: the clock of its database, and the rights that a capture lacks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lakehold.upstream.wanted.connector_config import SIGNAL_SCHEMA


class Lack(NamedTuple):
    """Something that a capture needs and the user does not have, and how the user gets it."""

    what: str
    hint: str


@dataclass(frozen=True)
class Account:
    """The account of a connection's user.

    Attributes:
        clock_ms: The server's clock, epoch milliseconds.
        lacks: What a capture of its tables lacks.
    """

    clock_ms: int
    lacks: tuple[Lack, ...]


def postgres_lacks(
    user: str, *, wal_level: str, replicates: bool, may_create: bool, unreadable: Iterable[str]
) -> tuple[Lack, ...]:
    """Return what a capture of a PostgreSQL lacks.

    Args:
        user: The user.
        wal_level: The setting of this name.
        replicates: Whether the user gets a replication connection.
        may_create: Whether the user may create publications and schemas in the database.
        unreadable: Captured tables that do not exist or that the user may not read.
    """
    found = []
    if wal_level != "logical":
        found.append(Lack(f"wal_level is {wal_level}", "Set wal_level to logical and restart PostgreSQL."))
    if not replicates:
        hint = f"ALTER ROLE {user} REPLICATION; and check that pg_hba.conf lets this role connect from here."
        found.append(Lack("no replication connection is given", hint))
    if not may_create:
        hint = f"GRANT CREATE ON DATABASE … TO {user}; or a superuser makes the publication, and the source names it."
        found.append(Lack("the user may not create a publication", hint))
    if tables := ", ".join(sorted(unreadable)):
        found.append(Lack(f"{tables}: cannot be read", f"GRANT SELECT ON {tables} TO {user}; or correct the names."))
    return tuple(found)


_NEEDED = (("SELECT",), ("REPLICATION SLAVE",), ("REPLICATION CLIENT", "BINLOG MONITOR"))
"""Rights on the whole server that Debezium needs; MariaDB calls the last one by a name of its own."""


def mysql_lacks(user: str, grants: Sequence[str]) -> tuple[Lack, ...]:
    """Return what a capture of a MySQL or MariaDB lacks, from the lines of SHOW GRANTS."""
    given = {
        right.strip()
        for grant in grants
        if " ON *.* TO " in grant
        for right in grant.removeprefix("GRANT ").partition(" ON *.* TO ")[0].split(",")
    }
    if "ALL PRIVILEGES" in given:
        return ()
    return tuple(
        Lack(f"the user lacks {names[0]}", f"GRANT {names[0]} ON *.* TO {user}.")
        for names in _NEEDED
        if given.isdisjoint(names) and not (names == ("SELECT",) and any("SELECT" in grant for grant in grants))
    )


def signal_rights_hint(user: str) -> str:
    """Return the rights that a user of MySQL and MariaDB needs beside those to read."""
    return (
        f"GRANT CREATE, INSERT, DELETE, SELECT, DROP ON {SIGNAL_SCHEMA}.* TO {user}; "
        "or, if the server is read_only, capture the one that it follows."
    )


def rights_hint(user: str) -> str:
    """Return the rights that a user of PostgreSQL needs."""
    return (
        f'User "{user}" must own the captured tables and be allowed to make publications in the database; '
        "or a superuser makes the publication, and the source names it."
    )
