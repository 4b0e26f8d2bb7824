"""Tables that have no database to be compared with are refused, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakehold.errors import LakeholdError
from lakehold.lake import Lake, connect


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with connect(str(tmp_path / "lake")) as opened:
        (tmp_path / "recorded").mkdir()
        opened.sql(
            f"CREATE SOURCE shop FROM FILES '{tmp_path / 'recorded'}' FORMAT JSON;"
            "CREATE TABLE shop.orders FROM SOURCE shop (TOPIC 'shop.public.orders') ENVELOPE DEBEZIUM"
        )
        yield opened


@pytest.mark.parametrize(
    ("table", "code", "detail", "hint"),
    [
        (
            "shop.orders",
            "not-captured",
            'Its source "shop" reads messages; lakehold does not know what wrote them.',
            "Tables of a source that was created FROM POSTGRES, MYSQL or MARIADB can be compared.",
        ),
        ("shop.order", "table-missing", 'Known: "shop.orders".', 'Did you mean "shop.orders"?'),
        (
            "mz_catalog.mz_holds",
            "not-captured",
            "No source feeds it.",
            "Tables of a source that was created FROM POSTGRES, MYSQL or MARIADB can be compared.",
        ),
    ],
)
def test_a_table_without_a_database_is_refused(lake: Lake, table: str, code: str, detail: str, hint: str) -> None:
    with pytest.raises(LakeholdError) as refused:
        lake.verify(table)
    assert (refused.value.code, refused.value.detail, refused.value.hint) == (code, detail, hint)
