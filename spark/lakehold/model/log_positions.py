"""Log positions, and the transaction ids of Debezium's events, which name a transaction and the log position of its commit.

    connector              id                             transaction    log position
    PostgreSQL             `txId:LSN of this event`       txId           of an END: its LSN; of an event: see below
    MySQL without GTIDs    `file=binlog.000003,pos=154`   the id         number of the file, position in it
    MySQL with GTIDs       `server uuid:number`           the id         number, in the log of that server
    MariaDB with GTIDs     `domain-server-number`         the id         number, in the log of that domain
    SQL Server             `00000025:00000d98:00a2`       the id         the three numbers

A `LogPosition` orders commits and sync points. Changes are ordered by a `Position` (`high_water_marks.py`), from other fields.

SQL Server's transactions are ordered in this way for `ENVELOPE DEBEZIUM UPSERT`; lakehold does not capture such a database.

Each event of PostgreSQL has an id of its own, with its own LSN, and no event contains the LSN at which its transaction commits.
`source.sequence` has the LSN of the last commit before the event. That LSN + 1 stands for the commit of the event's
transaction: it lies above the ENDs of that commit and of all earlier ones, and not above the transaction's own END
(`ingest/transactions/runs.py`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

POSTGRES_ID = r"^(?P<transaction>[0-9]+):[0-9]+$"
"""The form of an event's id in PostgreSQL; its group is the transaction."""

WAL = "wal"
"""The name of PostgreSQL's log."""
_BINLOG_OF = "binlog "


@dataclass(frozen=True)
class IdForm:
    """A form of transaction ids from which the log position of a commit can be read.

    Args:
        pattern: A regular expression that Python and Arrow both take. Its groups `a`, `b` and `c` are the numbers of the
            position. Its group `log`, if it has one, is the second part of the log's name.
        log: The first part of the log's name, which is the same for all ids of this form.
        is_hex: Whether the numbers are hexadecimal.
    """

    pattern: str
    log: str
    is_hex: bool = False

    @property
    def numbers(self) -> tuple[str, ...]:
        """Return the names of the groups that are numbers."""
        return tuple(name for name in "abc" if f"?P<{name}>" in self.pattern)


ID_FORMS = (
    IdForm(r"^[0-9]+:(?P<a>[0-9]{1,18})$", WAL),
    IdForm(r"^file=(?P<log>.*?)(?P<a>[0-9]{1,18}),pos=(?P<b>[0-9]{1,18})$", _BINLOG_OF),
    IdForm(r"^(?P<log>[0-9]+)-[0-9]+-(?P<a>[0-9]{1,18})$", "domain "),
    IdForm(r"^(?P<a>[0-9a-f]{8}):(?P<b>[0-9a-f]{8}):(?P<c>[0-9a-f]{4})$", "lsn", is_hex=True),
    IdForm(r"^(?P<log>[0-9a-f]{8}-.+):(?P<a>[0-9]{1,18})$", "server "),
)
"""The forms in which connectors write ids, see above; no id matches two of them. Numbers have at most 64 bits."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A position in an upstream's log.

    Args:
        log: The log: positions in two logs cannot be compared.
        at: Numbers that are compared from the left.
    """

    log: str
    at: tuple[int, ...]


def transaction_of(transaction_id: str) -> str:
    """Return the transaction that an id names."""
    found = re.match(POSTGRES_ID, transaction_id)
    return found.group(1) if found else transaction_id


def position_of_end(transaction_id: str) -> LogPosition | None:
    """Read the log position of a transaction's commit from the id of its END; None for connectors whose ids have no order."""
    for form in ID_FORMS:
        if found := re.match(form.pattern, transaction_id):
            named, base = found.groupdict(), 16 if form.is_hex else 10
            return LogPosition(f"{form.log}{named.get('log', '')}", tuple(int(named[n], base) for n in form.numbers))
    return None


def position_in(log: str, numbers: Sequence[int]) -> LogPosition:
    """Return the position in a log from the first of `numbers`, as many as positions in this log have; the rest is ignored."""
    form = next(form for form in ID_FORMS if log.startswith(form.log))
    return LogPosition(log, tuple(numbers[: len(form.numbers)]))


def is_in_order_of_positions(log: str) -> bool:
    """Return whether the positions of commits in a log can be compared with the positions of changes.

    With global transaction ids they cannot: a commit has a number of its server or domain, a change has a file and an offset.
    """
    return log == WAL or log.startswith(_BINLOG_OF)
