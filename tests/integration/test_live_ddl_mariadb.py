"""Tables of a live MariaDB are altered under load: after each step the lake equals the database, or says what to do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pymysql
import pytest

from lakehold.stack import StackAddresses
from tests.conftest import LakeFactory
from tests.ddl_script import DdlScript, Load, Step, first_rounds, steps_of
from tests.mariadb_server import PASSWORD, MariaDb
from tests.mariadb_server import mariadb as mariadb  # noqa: PLC0414 - pytest finds fixtures by name

pytestmark = [pytest.mark.stack, pytest.mark.spark]

_STEPS = steps_of((Path(__file__).parent / "ddl" / "mariadb.sql").read_text())
_ROUNDS = 3
_SOME = {"added", "parts", "whole"}
"""Tables whose rows change without messages. The others, and later steps, take longer than a CI run may."""


def _creating(table: str) -> str:
    return f"CREATE TABLE shop.{table} FROM SOURCE shop (TABLE 'shop.{table}') ENVELOPE DEBEZIUM"


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(first_rounds([step for step in _STEPS if step.table in _SOME], _ROUNDS), id="some"),
        pytest.param(_STEPS, id="all", marks=pytest.mark.soak),
    ],
)
def test_tables_of_mariadb_are_equal_after_each_step_of_the_script(
    make_lake: LakeFactory,
    stack: StackAddresses,
    mariadb: MariaDb,
    monkeypatch: pytest.MonkeyPatch,
    steps: list[Step],
) -> None:
    monkeypatch.setenv("LAKEHOLD_SECRET_MARIA", PASSWORD)
    lake = make_lake()
    mariadb.execute("CREATE DATABASE shop")

    def run(statements: Sequence[str]) -> int:
        with mariadb.connected("shop") as connection, connection.cursor() as cursor:
            return sum(cursor.execute(statement) for statement in statements)

    lake.sql(mariadb.declaring(stack, "shop", "altered"))
    try:
        script = DdlScript(lake, run, Load(run, pymysql.Error), _creating)
        assert script.run_steps(steps) == []
    finally:
        lake.sql("DROP SOURCE shop CASCADE")
