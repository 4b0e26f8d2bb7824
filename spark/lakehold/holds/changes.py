"""Changes of holds: the row first, which is the commit point, then the tags of the tables that it is about.

Whoever dies in between leaves tags that the next command, batch or maintenance puts right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from lakehold.errors import LakeholdError
from lakehold.failpoints import reach
from lakehold.holds.rules import Frontiers, begun, existing, free_name, protecting
from lakehold.model.definitions import DefinitionReader
from lakehold.state.holds import Hold, Holds, HoldStore


@dataclass(frozen=True)
class HoldChanges:
    """Changes the holds of one lake.

    Args:
        store: The holds.
        definitions: Which tables sources feed: a hold on one that is not declared counts as none.
        put_tags: Makes the tags of tables what their holds need.
    """

    store: HoldStore
    definitions: DefinitionReader
    put_tags: Callable[[Sequence[str]], None]

    def all(self) -> Holds:
        """The holds that are there now, in order of creation."""
        return existing(self.store.holds(), self.definitions.definitions())

    def stored(self) -> Holds:
        """All holds that are written, those of what is not declared as well."""
        return self.store.holds()

    def change(self, apply: Callable[[Holds], Holds], frontiers: Frontiers, named: Collection[str] = ()) -> Holds:
        """Replace the holds that are there by `apply(current)` in one commit, then put the tags; returns the holds.

        Args:
            apply: Runs again on the newest holds when another writer came between; it raises to refuse.
            frontiers: Of the tables whose first readable time some hold waits for, as far as they have one.
            named: Names of holds whose tags are looked at even if nothing changes: whoever changed them may have died.
        """
        stored: Holds = ()
        unseen: Holds = ()
        after: Holds = ()

        def of_stored(found: Holds) -> Holds:
            nonlocal stored, unseen, after
            stored, definitions = found, self.definitions.definitions()
            before = existing(stored, definitions)
            after = apply(begun(before, frontiers))
            unseen = _unseen(protecting(stored, definitions), before, after)
            return (*unseen, *after)

        self.store.change(of_stored)
        reach("after-hold")
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
        """Put back a hold that somebody took for abandoned while nobody saw it; its name may be another's by now."""

        def with_it(holds: Holds) -> Holds:
            if hold.hold_id in _ids(holds):
                return holds
            return (*holds, replace(hold, name=free_name(holds, hold.name)))

        self.store.change(with_it)
        self._tag((hold,))

    def discard(self, gone: Holds) -> None:
        """Take holds away, whether or not their tables are still there, and those that are none any more."""
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
        """`discard` one that could not be made: why is what counts, and tags that stay are put right by the next command."""
        with suppress(LakeholdError):
            self.discard((hold,))

    def _tag(self, holds: Holds) -> None:
        names = dict.fromkeys(table.full_name for hold in holds for table in hold.tables)
        if names:
            self.put_tags(list(names))


def _ids(holds: Holds) -> set[str]:
    return {hold.hold_id for hold in holds}


def _unseen(protected: Holds, there: Holds, after: Holds) -> Holds:
    """Holds that another process may be about to make; one whose name is taken meanwhile is out."""
    seen, names = _ids(there), {hold.name for hold in after}
    return tuple(hold for hold in protected if hold.hold_id not in seen and hold.name not in names)
