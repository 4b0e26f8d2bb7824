"""What a script leaves: the rows of its last statement, and what it had to say on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Result:
    """Rows with their column names, exactly as Spark shows them; both empty for a statement that returns none.

    Attributes:
        columns: Names in order; a name may come twice.
        rows: One tuple a row, values as `lakehold.subscribe.row_values` gives them.
        notices: Sentences for the person at the terminal; never needed to understand the rows.
    """

    columns: tuple[str, ...] = ()
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    notices: tuple[str, ...] = ()
