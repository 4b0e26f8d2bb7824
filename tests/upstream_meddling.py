"""What somebody, who knows nothing of it, does to what a captured database needs upstream: a part of the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from lakehold.upstream.connector_config import included_tables, signal_table_of
from lakehold.upstream.found import OPERATIONS, FoundPublication, FoundSignalTable

SIGNAL_TABLE = signal_table_of("s")


class Meddled:
    """What there is to be changed; see `World`."""

    config: dict[str, str] | None
    publication: FoundPublication | None
    signal_table: FoundSignalTable | None
    snapshotted: set[str]
    missed: set[str]
    gone: set[str]
    made: int
    counter: Iterator[int]

    def captured(self) -> set[str]:
        """What the connector captures."""
        return set(included_tables(self.config or {}))

    def unpublish(self, table: str) -> None:
        """Somebody takes a table from the publication, and it changes."""
        self.publish(self.made_publication.tables - {table})
        self._change_unseen(table)

    def publish_anew(self) -> None:
        """Somebody drops the publication and makes it again."""
        tables, self.made = self.made_publication.tables, self.made + 1
        self.publication = FoundPublication(is_own=False, is_for_all=False, tables=frozenset())
        self.publish(tables)

    def republish(self, table: str) -> None:
        """Somebody takes a table from the publication, it changes, and somebody puts it in again before anyone looks."""
        if table in self.made_publication.tables:
            self.unpublish(table)
            self.publish(self.made_publication.tables | {table})

    def narrow(self, table: str) -> None:
        """Somebody has the publication leave out rows of a table, which changes."""
        if table in self.made_publication.tables:
            self.publication = replace(
                self.made_publication, narrowed={**self.made_publication.narrowed, table: "rows"}
            )
            self._write_publication()
            self._change_unseen(table)

    def restrict(self, table: str) -> None:
        """Somebody has the publication leave out all deletes, and a table changes."""
        self.publication = replace(self.made_publication, operations=OPERATIONS - {"delete"})
        self._write_publication()
        if table in self.made_publication.tables:
            self._change_unseen(table)

    def restrict_for_a_while(self, table: str) -> None:
        """The same, and nobody looks before it has all again."""
        self.restrict(table)
        self.widen()

    def widen(self) -> None:
        """Somebody has the publication leave out nothing."""
        self.publication = replace(self.made_publication, operations=OPERATIONS, narrowed={})
        self._write_publication()

    @property
    def made_publication(self) -> FoundPublication:
        """The publication, which is there."""
        assert self.publication is not None
        return self.publication

    def _write_publication(self) -> None:
        """It, and so all that is in it, can be told from what it was before."""
        members = {name: f"{self.made}/{next(self.counter)}" for name in self.made_publication.members}
        self.publication = replace(self.made_publication, members=members)

    def drop_signal_table(self) -> None:
        """Somebody drops the table of the connector's marks, which no publication has then."""
        self.signal_table = None
        if self.publication is not None:
            self.publish(self.made_publication.tables - {SIGNAL_TABLE})

    def leave_out(self, table: str) -> None:
        """Somebody takes a table from the connector's list, and it changes."""
        assert self.config is not None
        left = sorted(self.captured() - {table})
        self.config = {**self.config, "table.include.list": ",".join(name.replace(".", "\\.") for name in left)}
        self._change_unseen(table)

    def _change_unseen(self, table: str) -> None:
        if table in self.snapshotted:
            self.missed.add(table)
            self.gone.add(table)

    def publish(self, tables: Iterable[str]) -> None:
        """Have these in the publication; what comes in does so in a way of its own."""
        members = {
            name: self.made_publication.members.get(name) or f"{self.made}/{next(self.counter)}" for name in tables
        }
        published = frozenset(members)
        self.publication = replace(self.made_publication, tables=published, listed=published, members=members)
