"""The columns that a subscriber has read: stored with its position, and compared before it reads on."""

from __future__ import annotations

from collections.abc import Callable

from lakehold.errors import LakeholdError
from lakehold.subscribe.query_columns import QueryColumns, differences, joined
from lakehold.subscribe.subscription_opening import Opened


class KnownColumns:
    """The columns of the tables that a subscriber has read, by name. Reading ends if older rows may have other values now.

    Args:
        refused: Makes the error from the text that says what has changed.

    Attributes:
        columns: The columns, to be set to those that were stored with its position before it reads on, and to none before it
            starts over.
    """

    def __init__(self, refused: Callable[[str], LakeholdError]) -> None:
        self._refused = refused
        self.columns: QueryColumns = {}

    def check(self, opened: Opened) -> None:
        """Check the columns of a SUBSCRIBE before it is read, and add them.

        Raises:
            LakeholdError: The columns are not those that the subscriber knows, and older rows may have other values now.
        """
        now = opened.read_columns
        if changed := differences(opened.subscription.statement.relation, self.columns, now):
            raise self._refused(changed)
        self.columns = joined(self.columns, now)
