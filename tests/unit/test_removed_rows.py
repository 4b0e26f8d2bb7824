"""Rows that a snapshot removed, counted from its summary."""

from __future__ import annotations

import pytest

from lakehold.iceberg.data_tables import removed_rows


@pytest.mark.parametrize(
    ("summary", "rows"),
    [
        pytest.param({"added-records": "3"}, 0, id="append"),
        pytest.param({"added-position-deletes": "2"}, 2, id="first deletes of a file"),
        pytest.param({"added-position-deletes": "7", "removed-position-deletes": "6"}, 1, id="one more in a file"),
        pytest.param({"deleted-records": "900", "removed-position-deletes": "6"}, 894, id="a file with deletes"),
    ],
)
def test_rows_that_deletes_had_hidden_are_not_removed_again(summary: dict[str, str], rows: int) -> None:
    assert removed_rows(summary) == rows
