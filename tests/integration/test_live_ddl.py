"""Tables of a live PostgreSQL are altered under load: after each step the lake equals the database, or says what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.captured_shop import Shop
from tests.conftest import LakeFactory
from tests.ddl_script import DdlScript, Load, Run, Step, first_rounds, steps_of
from tests.stack_fixtures import SourceDatabase

pytestmark = [pytest.mark.stack, pytest.mark.spark]

_STEPS = steps_of((Path(__file__).parent / "ddl" / "postgres.sql").read_text())
_ROUNDS = 3
_SOME = {"again", "filled", "given", "parts"}
"""Tables whose rows change without messages. The others, and later steps, take longer than a CI run may."""


@pytest.fixture
def shop(make_lake: LakeFactory, database: SourceDatabase, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """Return a captured shop. A machine that is busy with many tables loses no lease."""
    monkeypatch.setenv("LAKEHOLD_SECRET_PG", database.addresses.postgres_password)
    shop = Shop(partial(make_lake, lease_ms=120_000), database)
    yield shop
    shop.close()


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(first_rounds([step for step in _STEPS if step.table in _SOME], _ROUNDS), id="some"),
        pytest.param(_STEPS, id="all", marks=pytest.mark.soak),
    ],
)
def test_tables_of_postgres_are_equal_after_each_step_of_the_script(shop: Shop, steps: list[Step]) -> None:
    def run_on(connection: psycopg.Connection[tuple[Any, ...]]) -> Run:
        def run(statements: Sequence[str]) -> int:
            # It is -1 for statements that alter tables.
            return sum(max(connection.execute(statement.encode()).rowcount, 0) for statement in statements)

        return run

    def creating(table: str) -> str:
        return Shop.creating(table, "DEBEZIUM UPSERT" if table == "wide" else "DEBEZIUM")

    address = shop.database.addresses.postgres(shop.database.name)
    with psycopg.connect(address, autocommit=True) as altering, psycopg.connect(address, autocommit=True) as changing:
        script = DdlScript(shop.lake, run_on(altering), Load(run_on(changing), psycopg.Error), creating)
        assert script.run_steps(steps) == []
