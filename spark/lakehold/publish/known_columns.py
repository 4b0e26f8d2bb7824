"""The columns that a subscriber has read: stored with its position, and compared before it reads on."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lakehold.errors import LakeholdError
from lakehold.subscribe.query_columns import QueryColumns, differences, joined, replaced_tables
from lakehold.subscribe.statement import Subscribe

_AFTER_STATEMENT = ": "


class KnownColumns:
    """The columns of the tables that a subscriber has read, by name. Reading ends if older rows may have other values now.

    Args:
        refused: Makes the error from the text that says what has changed.
        replaced: Makes the error from the name of a table that another table has now.

    Attributes:
        columns: The columns, to be set to those that were stored with its position before it reads on, and to none before it
            starts over. With several statements, the name of each stands before that of a table, as in `a: shop.orders`:
            each has read columns of its own.
    """

    def __init__(self, refused: Callable[[str], LakeholdError], replaced: Callable[[str], LakeholdError]) -> None:
        self._refused = refused
        self._replaced = replaced
        self.columns: QueryColumns = {}

    def check(self, subscribe: Subscribe, now: QueryColumns, statement: str = "") -> None:
        """Check the columns of a SUBSCRIBE before it is read, and add them.

        Args:
            subscribe: The SUBSCRIBE.
            now: The columns that its tables have.
            statement: Its name; empty for an only one.

        Raises:
            LakeholdError: The tables are not those that the subscriber knows, or the columns are not, and older rows may have
                other values now.
        """
        prefix = f"{statement}{_AFTER_STATEMENT}" if statement else ""
        known = {key.removeprefix(prefix): ids for key, ids in self.columns.items() if key.startswith(prefix)}
        if tables := replaced_tables(known, now):
            raise self._replaced(tables[0])
        if changed := differences(subscribe.relation, known, now):
            raise self._refused(changed)
        self.columns = {
            **self.columns,
            **{f"{prefix}{table}": ids for table, ids in joined(known, now).items()},
        }


def read_tables(columns: Iterable[str]) -> tuple[str, ...]:
    """Return the tables of stored `KnownColumns.columns`, each once, without the names of statements."""
    return tuple(dict.fromkeys(key.rpartition(_AFTER_STATEMENT)[2] for key in columns))
