"""The columns that a subscriber has read: stored with its position, and compared before it reads on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakehold.errors import LakeholdError
from lakehold.subscribe.query_columns import QueryColumns, joined, moved_names
from lakehold.subscribe.subscription_opening import Opened


class KnownColumns:
    """The columns of the tables that a subscriber has read, by name. A name that belongs to another column ends its reading.

    Args:
        refused: Makes the error of names, with their table, that belong to other columns.

    Attributes:
        columns: The columns, to be set to those that were stored with its position before it reads on, and to none before it
            starts over.
    """

    def __init__(self, refused: Callable[[Sequence[str]], LakeholdError]) -> None:
        self._refused = refused
        self.columns: QueryColumns = {}

    def check(self, opened: Opened) -> None:
        """Check the columns of a SUBSCRIBE before it is read, and add them.

        Raises:
            LakeholdError: A name belongs to another column than the subscriber knows.
        """
        now = opened.read_columns
        if moved := moved_names(self.columns, now):
            raise self._refused(moved)
        self.columns = joined(self.columns, now)
