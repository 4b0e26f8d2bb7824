"""Holds from the side of ingest, which tags the snapshots that holds need and sets the time of holds that wait."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lakehold.holds.commands import HoldCommands
from lakehold.holds.tags import TableTags


@dataclass(frozen=True)
class HeldHistory:
    """The holds of a lake for writers of its tables.

    Args:
        tags: Protects the snapshots that holds need from tools that expire old ones.
        holds: Changes the holds.
    """

    tags: TableTags
    holds: HoldCommands

    def is_held(self, full_name: str) -> bool:
        """Return whether some hold is on a table."""
        return self.tags.is_held(full_name)

    def keep(self, full_name: str) -> None:
        """Tag the snapshots of a table that its holds need now; do nothing for a table without holds."""
        held = self.tags.keep(full_name)
        if any(hold.at_ms is None for hold in held):
            # A process that was killed after its batch may have left a hold of a readable table waiting.
            self.begin([full_name])

    def begin(self, full_names: Collection[str]) -> None:
        """Give a time to each hold that waits for one of these tables, once all tables of the hold are readable."""
        self.holds.begin(full_names)
