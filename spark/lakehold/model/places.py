"""Which transaction an event belongs to, and where that stands in the upstream's log, from the ids that Debezium gives it.

    connector              id                             transaction    place
    PostgreSQL             `txId:LSN of this event`       txId           of an END the LSN, of an event its last commit's LSN + 1
    MySQL without GTIDs    `file=binlog.000003,pos=154`   the id         number of the file, position in it
    MySQL with GTIDs       `server uuid:number`           the id         number, in the log of that server
    MariaDB with GTIDs     `domain-server-number`         the id         number, in the log of that domain
    SQL Server             `00000025:00000d98:00a2`       the id         the three numbers

PostgreSQL gives each event an id of its own (facts, "What a consumer must get right"), and no event tells the LSN at which its
transaction commits: that of the commit before it, in `source.sequence`, lies below it and not below any earlier END.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakehold.model.marks import Position

POSTGRES_ID = r"^(?P<transaction>[0-9]+):[0-9]+$"
"""The id of an event of PostgreSQL; its group is the transaction."""

_POSTGRES = re.compile(r"^[0-9]+:([0-9]+)$")
_BINLOG = re.compile(r"^file=(.*?)([0-9]+),pos=([0-9]+)$")
_MARIADB_GTID = re.compile(r"^([0-9]+)-[0-9]+-([0-9]+)$")
_SQL_SERVER = re.compile(r"^([0-9a-f]{8}):([0-9a-f]{8}):([0-9a-f]{4})$")
_MYSQL_GTID = re.compile(r"^([0-9a-f]{8}-.+):([0-9]+)$")

WAL = "wal"
"""The log of places in PostgreSQL."""
_BINLOG_OF = "binlog "


@dataclass(frozen=True, slots=True)
class Place:
    """A place in an upstream's log.

    Args:
        log: Which log: places of two logs cannot be compared.
        at: Compared from the left.
    """

    log: str
    at: tuple[int, ...]

    def is_after(self, other: Place | None) -> bool:
        """Return whether it lies behind `other` as far as can be known: in another log nothing is passed."""
        return other is None or self.log != other.log or self.at > other.at


def transaction_of(transaction_id: str) -> str:
    """Return the transaction that an id names."""
    found = re.match(POSTGRES_ID, transaction_id)
    return found.group(1) if found else transaction_id


def place_of_end(transaction_id: str) -> Place | None:
    """Return where the transaction of an END commits; None for connectors whose ids have no order."""
    if found := _POSTGRES.match(transaction_id):
        return Place(WAL, (int(found.group(1)),))
    if found := _BINLOG.match(transaction_id):
        return Place(f"{_BINLOG_OF}{found.group(1)}", (int(found.group(2)), int(found.group(3))))
    if found := _MARIADB_GTID.match(transaction_id):
        return Place(f"domain {found.group(1)}", (int(found.group(2)),))
    if found := _SQL_SERVER.match(transaction_id):
        return Place("lsn", tuple(int(part, 16) for part in found.groups()))
    if found := _MYSQL_GTID.match(transaction_id):
        return Place(f"server {found.group(1)}", (int(found.group(2)),))
    return None


def is_behind(place: Place | None, position: Position) -> bool:
    """Return whether a commit is known to stand behind that of a snapshot, where places are in the log that positions are of."""
    if place is None or not (place.log == WAL or place.log.startswith(_BINLOG_OF)):
        return False
    return place.at > position[: len(place.at)]


def place_of_event(transaction_id: str, position: Position | None) -> Place | None:
    """Return where the transaction of an event commits: never after its own END, and after every earlier one.

    Args:
        transaction_id: Of the event.
        position: As `lakehold.ingest.position` has it; its first number is PostgreSQL's last commit.
    """
    if not _POSTGRES.match(transaction_id):
        return place_of_end(transaction_id)
    return None if position is None else Place(WAL, (position[0] + 1,))
