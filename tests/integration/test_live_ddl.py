"""Tables of a live PostgreSQL are altered under load: after each step the lake equals the database, or says what to do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest

from tests.captured_shop import Shop
from tests.captured_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.ddl_script import DdlScript, Load, steps_of

pytestmark = [pytest.mark.stack, pytest.mark.spark]

_SCRIPT = Path(__file__).parent / "ddl" / "postgres.sql"


def test_tables_of_postgres_are_equal_after_each_step_of_the_script(shop: Shop) -> None:
    def run(statements: Sequence[str]) -> None:
        with psycopg.connect(shop.database.addresses.postgres(shop.database.name), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def creating(table: str) -> str:
        return Shop.creating(table, "DEBEZIUM UPSERT" if table == "wide" else "DEBEZIUM")

    script = DdlScript(shop.lake, run, Load(run, psycopg.Error), creating)
    assert script.run_steps(steps_of(_SCRIPT.read_text())) == []
