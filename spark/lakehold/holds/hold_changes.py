"""Changes of holds: commit the rows first, then tag the snapshots of the tables that changed holds are on.

A hold keeps tables readable from a time on; the Iceberg tags keep other tools from expiring the snapshots that it needs.

The rows are the commit point. If a process dies in between, the next command, batch or maintenance puts the tags right.

Three sets of holds, each within the next (`rules.py`): those that *exist* for users; those that *protect* history, also while
another process creates them; all *stored* ones. Stored holds that do not protect are abandoned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from lakehold.errors import LakeholdError
from lakehold.failpoints import failpoint
from lakehold.holds.rules import HeldWindows, begin_waiting, existing, free_name, protecting
from lakehold.model.lake_definitions import DefinitionReader
from lakehold.state.holds import Hold, Holds, HoldStore


@dataclass(frozen=True)
class HoldChanges:
    """The commits that change the holds of one lake.

    Args:
        store: The holds.
        definitions: The tables that sources feed. A hold on such a table does not exist while the table is not declared.
        put_tags: Brings the tags of tables to what their holds need.
    """

    store: HoldStore
    definitions: DefinitionReader
    put_tags: Callable[[Sequence[str]], None]

    def all(self) -> Holds:
        """Return the holds that exist now, in order of creation."""
        return existing(self.store.holds(), self.definitions.definitions())

    def stored(self) -> Holds:
        """Return all stored holds, including those on tables or of subscriptions that are not declared."""
        return self.store.holds()

    def change(self, apply: Callable[[Holds], Holds], windows: HeldWindows, named: Collection[str] = ()) -> Holds:
        """Replace the existing holds by `apply(current)` in one commit, then put the tags; return the new holds.

        Args:
            apply: Computes the new holds, and raises to refuse. It runs again if another writer commits first.
            windows: The windows of tables on which some hold waits for its first readable time.
            named: Names of holds whose tags are checked even if nothing changes: an earlier change may have died before
                it put them.
        """
        stored: Holds = ()
        unseen: Holds = ()
        after: Holds = ()

        def of_stored(found: Holds) -> Holds:
            nonlocal stored, unseen, after
            stored, definitions = found, self.definitions.definitions()
            before = existing(stored, definitions)
            after = apply(begin_waiting(before, windows))
            unseen = _unseen(protecting(stored, definitions), before, after)
            return (*unseen, *after)

        self.store.change(of_stored)
        failpoint("after-hold")
        changed = {*stored} ^ {*unseen, *after}
        self._tag(
            tuple(
                hold
                for hold in (*stored, *after)
                if hold in changed or not {hold.name, hold.full_name}.isdisjoint(named)
            )
        )
        return after

    def keep(self, hold: Hold) -> None:
        """Store `hold` again if another process removed it as abandoned; rename it if its name was taken meanwhile."""

        def with_it(holds: Holds) -> Holds:
            if hold.hold_id in _ids(holds):
                return holds
            return (*holds, replace(hold, name=free_name(holds, hold.name)))

        self.store.change(with_it)
        self._tag((hold,))

    def discard(self, gone: Holds) -> None:
        """Remove the holds in `gone` and all abandoned ones, and put the tags of their tables, as far as these exist."""
        ids = _ids(gone)
        stored: Holds = ()
        after: Holds = ()

        def without(found: Holds) -> Holds:
            nonlocal stored, after
            stored, protected = found, protecting(found, self.definitions.definitions())
            after = tuple(hold for hold in protected if hold.hold_id not in ids)
            return after

        self.store.change(without)
        self._tag((*gone, *(hold for hold in stored if hold not in after)))

    def take_back(self, hold: Hold) -> None:
        """Remove a hold whose creation failed, and suppress errors of the removal: the caller raises the first failure.

        The next command removes tags that are left.
        """
        with suppress(LakeholdError):
            self.discard((hold,))

    def _tag(self, holds: Holds) -> None:
        names = dict.fromkeys(table.full_name for hold in holds for table in hold.tables)
        if names:
            self.put_tags(list(names))


def _ids(holds: Holds) -> set[str]:
    return {hold.hold_id for hold in holds}


def _unseen(protected: Holds, there: Holds, after: Holds) -> Holds:
    """Select the protected holds outside of `there`: another process may be making them.

    A hold whose name was taken meanwhile is not selected.
    """
    seen, names = _ids(there), {hold.name for hold in after}
    return tuple(hold for hold in protected if hold.hold_id not in seen and hold.name not in names)
