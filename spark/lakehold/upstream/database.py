"""The protocol of a database that sources capture; `PostgresUpstream` and `MysqlUpstream` implement it.

The *signal table* belongs to one connector: lakehold writes requests to it, and the connector reads them in the log. A *sync
point* is the position of a write that lakehold makes: once the lake has reached it, the lake has everything committed before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lakehold.ingest.envelope.upstream_columns import InitialValues
from lakehold.model.log_positions import LogPosition
from lakehold.upstream.found.columns import FoundColumn
from lakehold.upstream.found.found import FoundDatabase, FoundRelation, FoundSignals
from lakehold.upstream.found.values import LossyColumn, LostValues
from lakehold.upstream.plan.capture_steps import (
    ChangePublication,
    CheckLog,
    CompletePublication,
    CreatePublication,
    CreateSignalTable,
    DropPublication,
    DropSignalTable,
    DropSlot,
)
from lakehold.upstream.plan.failover_steps import CopySlot
from lakehold.upstream.wanted.account import Account

DatabaseStep = (
    CreatePublication
    | ChangePublication
    | CompletePublication
    | DropPublication
    | CreateSignalTable
    | DropSignalTable
    | DropSlot
    | CopySlot
    | CheckLog
)
"""The steps that a database applies alone. A plan has those of publications and slots for PostgreSQL only."""


@dataclass(frozen=True)
class Names:
    """The names of a source's objects in the database; a database without publications and slots has empty ones."""

    publication: str
    slot: str
    signal_table: str


class Database(Protocol):
    """A database that a source captures. Names of tables are `schema.table`, in MySQL and MariaDB `database.table`.

    Every method raises `UpstreamUnavailable` when the server does not answer, and `UpstreamRefused` when it refuses.
    """

    def inspect(
        self, names: Names, source_id: str, tables: Sequence[str], /
    ) -> tuple[FoundDatabase | None, FoundSignals]:
        """Fetch the current state of the source's objects in the database, of wanted tables, and of the signal table.

        Returns:
            None in place of the database: it has no object of the source but the signal table.
        """
        ...

    def account(self, tables: Collection[str], /) -> Account:
        """Report the server's clock, and what the user lacks to capture some tables."""
        ...

    def relations(self, names: Sequence[str], /) -> dict[str, FoundRelation]:
        """Fetch the kinds of objects under the names of declared tables, and whether the user may read them."""
        ...

    def kinds(self, names: Sequence[str], /) -> dict[str, FoundRelation]:
        """Fetch the kinds of captured tables, by name, if a connector would fail at some kinds; else nothing."""
        ...

    def columns(self, names: Sequence[str], /) -> dict[str, tuple[FoundColumn, ...]]:
        """Fetch the columns of tables, in order; tables that do not exist are skipped."""
        ...

    def initial_values(self, name: str, columns: Sequence[FoundColumn], /) -> InitialValues:
        """Fetch the values of columns in rows older than the column, as far as the database can say them."""
        ...

    def lost_values(self, lossy: Mapping[str, Sequence[LossyColumn]], /) -> dict[str, LostValues]:
        """Search the rows of some tables for values that Debezium does not send unchanged, as far as queries find any."""
        ...

    def acting_keys(self, names: Sequence[str], /) -> dict[str, tuple[str, ...]]:
        """Fetch the foreign keys that change rows of their table without messages, in words, by the table's name."""
        ...

    def log_settings(self) -> dict[str, str]:
        """Fetch the settings by which the log may lack what the lake needs of a change, by name; empty: it has none."""
        ...

    def members(self, publication: str, /) -> Mapping[str, str]:
        """Fetch a text for each table in a publication that differs once the table leaves and comes back; empty: it has none."""
        ...

    def apply(self, step: DatabaseStep, /) -> None:
        """Apply a step. One that was done before changes nothing."""
        ...

    def record_seen(self, table: str, at_ms: int, /) -> int | None:
        """Keep a time, epoch milliseconds, with a signal table, unless that has a later one.

        Returns:
            The time that the table keeps then; None: it keeps none, or does not exist.
        """
        ...

    def send_signal(self, table: str, signal: str, /) -> None:
        """Send the connector a signal, as `requested_snapshot` returns it, through its signal table, which keeps no row."""
        ...

    def write_sync_point(self, table: str, /) -> LogPosition:
        """Write a sync point to the log, if need be through a signal table, and return its position."""
        ...
