"""A part of the model: changes that other people make, unknown to lakehold, to upstream objects of a capture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from lakehold.upstream.found.found import OPERATIONS, FoundPublication, FoundSignalTable, FoundTable
from lakehold.upstream.wanted.connector_config import included_tables, signal_table_of

SIGNAL_TABLE = signal_table_of("s")


class Meddled:
    """The upstream objects that other people may change; see `World`."""

    config: dict[str, str] | None
    publication: FoundPublication | None
    tables: frozenset[str]
    keyless: frozenset[str]
    may_publish: bool
    foreign: frozenset[str] = frozenset()
    """Tables that the source's user does not own."""
    signal_table: FoundSignalTable | None
    snapshotted: set[str]
    missed: set[str]
    gone: set[str]
    made: int
    counter: Iterator[int]

    def captured(self) -> set[str]:
        """Return the tables that the connector captures."""
        return set(included_tables(self.config or {}))

    @property
    def publishable(self) -> frozenset[str]:
        """Return the tables that the source's user may put into the publication."""
        return self.tables - self.foreign if self.may_publish else frozenset()

    def _found_table(self, name: str) -> FoundTable:
        return FoundTable("f", name not in self.keyless, is_owned=name not in self.foreign)

    def unpublish(self, table: str) -> None:
        """Remove a table from the publication, and change the table."""
        self.publish(self.made_publication.tables - {table})
        self._change_unseen(table)

    def recreate_publication(self) -> None:
        """Drop the publication and create it again."""
        tables, self.made = self.made_publication.tables, self.made + 1
        self.publication = FoundPublication(is_own=False, is_for_all=False, tables=frozenset())
        self.publish(tables)

    def republish(self, table: str) -> None:
        """Remove a table from the publication, change the table, and add it again before any inspection."""
        if table in self.made_publication.tables:
            self.unpublish(table)
            self.publish(self.made_publication.tables | {table})

    def narrow(self, table: str) -> None:
        """Exclude rows of a table from the publication, and change the table."""
        if table in self.made_publication.tables:
            self.publication = replace(
                self.made_publication, narrowed={**self.made_publication.narrowed, table: "rows"}
            )
            self._write_publication()
            self._change_unseen(table)

    def restrict(self, table: str) -> None:
        """Exclude all deletes from the publication, and change a table."""
        self.publication = replace(self.made_publication, operations=OPERATIONS - {"delete"})
        self._write_publication()
        if table in self.made_publication.tables:
            self._change_unseen(table)

    def restrict_for_a_while(self, table: str) -> None:
        """Exclude all deletes from the publication, change a table, and publish deletes again before any inspection."""
        self.restrict(table)
        self.widen()

    def widen(self) -> None:
        """Make the publication publish everything."""
        self.publication = replace(self.made_publication, operations=OPERATIONS, narrowed={})
        self._write_publication()

    @property
    def made_publication(self) -> FoundPublication:
        """Return the publication, which must exist."""
        assert self.publication is not None
        return self.publication

    def _write_publication(self) -> None:
        """Give the publication's members new marks, which distinguish them from the earlier members."""
        members = {name: f"{self.made}/{next(self.counter)}" for name in self.made_publication.members}
        self.publication = replace(self.made_publication, members=members)

    def drop_signal_table(self) -> None:
        """Drop the connector's signal table, which removes it from the publication."""
        self.signal_table = None
        if self.publication is not None:
            self.publish(self.made_publication.tables - {SIGNAL_TABLE})

    def leave_out(self, table: str) -> None:
        """Remove a table from the connector's list, and change the table."""
        assert self.config is not None
        left = sorted(self.captured() - {table})
        self.config = {**self.config, "table.include.list": ",".join(name.replace(".", "\\.") for name in left)}
        self._change_unseen(table)

    def _change_unseen(self, table: str) -> None:
        if table in self.snapshotted:
            self.missed.add(table)
            self.gone.add(table)

    def publish(self, tables: Iterable[str]) -> None:
        """Set the tables of the publication; each new one gets a new mark."""
        members = {
            name: self.made_publication.members.get(name) or f"{self.made}/{next(self.counter)}" for name in tables
        }
        published = frozenset(members)
        self.publication = replace(self.made_publication, tables=published, listed=published, members=members)
