"""The result of a script: the rows of its last statement, and the notices of all statements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lakehold.html_rows import html_rows


@dataclass(frozen=True)
class Result:
    """Rows with their column names, exactly as Spark shows them; both empty for a statement that returns none.

    Attributes:
        columns: Names in order; a name may occur twice.
        rows: One tuple for each row, with values as `lakehold.subscribe.row_values` returns them.
        notices: Sentences for the person at the terminal; the rows can be understood without them.
    """

    columns: tuple[str, ...] = ()
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    notices: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return html_rows(self.columns, self.rows, self.notices)
