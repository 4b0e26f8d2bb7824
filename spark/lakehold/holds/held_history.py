"""The holds as ingest meets them: history that it keeps for them, and times that it gives to those that wait."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lakehold.holds.commands import HoldCommands
from lakehold.holds.tags import TableTags


@dataclass(frozen=True)
class HeldHistory:
    """The holds of a lake, as whoever writes its tables has to respect them.

    Args:
        tags: Keeps the snapshots that holds need from tools that expire what is old.
        holds: Changes the holds.
    """

    tags: TableTags
    holds: HoldCommands

    def is_held(self, full_name: str) -> bool:
        """Return whether some hold is on a table."""
        return self.tags.is_held(full_name)

    def keep(self, full_name: str) -> None:
        """Tag what holds need of a table as it is now; do nothing for a table without holds."""
        held = self.tags.keep(full_name)
        if any(hold.at_ms is None for hold in held):
            # A process that was killed after its batch may have left a hold of a readable table waiting.
            self.begin([full_name])

    def begin(self, full_names: Collection[str]) -> None:
        """Give the holds that wait for one of these tables their time, if all of their tables are readable now."""
        self.holds.begin(full_names)
