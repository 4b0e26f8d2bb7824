"""Tables that have no database to be compared with are refused, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lakehold.cli.app import app
from lakehold.errors import LakeholdError
from lakehold.lake import Lake, connect

_HINT = (
    "Tables of a source that was created FROM POSTGRES, MYSQL or MARIADB can be compared. "
    "For another table name the database: "
)


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
            f"{_HINT}lakehold verify shop.orders --connection CONNECTION --upstream SCHEMA.TABLE",
        ),
        ("shop.order", "table-missing", 'Known: "shop.orders".', 'Did you mean "shop.orders"?'),
        (
            "mz_catalog.mz_holds",
            "not-captured",
            "No source feeds it.",
            f"{_HINT}lakehold verify mz_catalog.mz_holds --connection CONNECTION --upstream SCHEMA.TABLE",
        ),
    ],
)
def test_a_table_without_a_database_is_refused(lake: Lake, table: str, code: str, detail: str, hint: str) -> None:
    with pytest.raises(LakeholdError) as refused:
        lake.verify(table)
    assert (refused.value.code, refused.value.detail, refused.value.hint) == (code, detail, hint)


def test_the_exit_code_of_a_table_that_cannot_be_compared_is_not_that_of_a_difference(
    lake: Lake, tmp_path: Path
) -> None:
    refused = CliRunner().invoke(app, ["verify", "shop.orders", "shop.order", "-w", lake.settings.warehouse])
    assert refused.exit_code == 2
    assert [line for line in refused.stderr.splitlines() if line.startswith("error: ")] == [
        'error: "shop.orders" is not captured from a database',
        'error: table "shop.order" does not exist',
    ]
    (tmp_path / "file").touch()
    nowhere = CliRunner().invoke(app, ["verify", "shop.orders", "-w", str(tmp_path / "file" / "lake")])
    assert (nowhere.exit_code, nowhere.stdout) == (2, "")
    assert nowhere.stderr.startswith("error: ")


def test_a_copy_needs_a_connection_to_a_database_and_a_table_in_it(lake: Lake) -> None:
    lake.sql("CREATE CONNECTION broker TO KAFKA (BROKER '127.0.0.1:1')")
    for connection, upstream, code, detail in (
        ("pg", None, "usage", "Given is 'pg' alone."),
        (None, "public.orders", "usage", "Given is 'public.orders' alone."),
        ("pg", "public.orders", "connection-missing", 'Known: "broker".'),
        (
            "broker",
            "public.orders",
            "connection-type",
            "It leads to kafka; expected is one of postgres, mysql, mariadb.",
        ),
    ):
        with pytest.raises(LakeholdError) as refused:
            lake.verify("mz_catalog.mz_holds", connection=connection, upstream=upstream)
        assert (refused.value.code, refused.value.detail) == (code, detail)
    warehouse = lake.settings.warehouse
    for arguments in (
        ["a.b", "--connection", "pg"],
        ["a.b", "c.d", "--connection", "pg", "--upstream", "public.orders"],
    ):
        wrong = CliRunner().invoke(app, ["verify", *arguments, "-w", warehouse])
        assert wrong.exit_code == 2
        assert "name both for one TABLE, or neither" in wrong.stderr
