"""A script that fails still shows the notices of what it did before, which cannot be had again."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from pyspark.errors.exceptions.connect import SparkConnectException
from typer.testing import CliRunner

from lakehold.cli.app import app
from lakehold.errors import DefinitionError, LakeholdError
from lakehold.sql.run.script_run import Runner
from lakehold.upstream.plan.capture_steps import Steps
from tests.unit.test_sql_run import with_shop

CAPTURED = """
CREATE CONNECTION pg TO POSTGRES (HOST '127.0.0.1', USER 'reader', PASSWORD SECRET 'P', DATABASE 'shop');
CREATE CONNECTION connect TO CONNECT (URL 'http://127.0.0.1:1');
CREATE SOURCE app FROM POSTGRES CONNECTION pg VIA CONNECT CONNECTION connect INTO KAFKA CONNECTION kafka FORMAT JSON;
CREATE TABLE app.users FROM SOURCE app (TABLE 'public.users') ENVELOPE DEBEZIUM
"""
SLOT = "replication slot lakehold_app is still there"
NOTHING = 'source "gone" does not exist: nothing to drop'


class SlotStays:
    """An upstream in which dropping a source leaves a replication slot."""

    @contextmanager
    def changing(self, _: Collection[str]) -> Iterator[SlotStays]:
        yield self

    def release(self, *_: object) -> Steps:
        return Steps(hints=(SLOT,))

    def reconcile(self, *_: object, **__: object) -> Steps:
        return Steps()

    plan_change = reconcile

    def confirm(self) -> None:
        """Keep the lease."""


class FullStore:
    """Tables of a catalog that does not answer any more."""

    def drop_iceberg_table(self, *_: str) -> NoReturn:
        raise LakeholdError("the catalog does not answer", code="lake-unreachable")

    def forget_source(self, _: str) -> None:
        """Forget it."""


def capturing() -> Runner:
    upstream: Any = SlotStays()
    lake, _ = with_shop()
    lake = replace(lake, upstream=lambda: upstream)
    lake.run(CAPTURED)
    return lake


def test_the_notices_of_earlier_statements_come_with_the_error() -> None:
    with pytest.raises(DefinitionError, match='source "typo" does not exist') as failed:
        capturing().run("DROP SOURCE app CASCADE; DROP SOURCE IF EXISTS gone; DROP SOURCE typo")
    assert failed.value.notices == (SLOT, NOTHING)
    assert str(failed.value).endswith(f"\nnotice: {SLOT}\nnotice: {NOTHING}")


def test_the_notices_of_a_statement_that_fails_after_its_commit_come_with_the_error() -> None:
    lake = replace(capturing(), tables=FullStore())
    with pytest.raises(LakeholdError, match="does not answer") as failed:
        lake.run("DROP SOURCE app CASCADE")
    assert failed.value.notices == (SLOT,)
    assert "app" not in lake.store.definitions().sources


def test_the_command_writes_notices_before_the_error(tmp_path: Path) -> None:
    script = "DROP SOURCE IF EXISTS gone; DROP SOURCE typo"
    result = CliRunner().invoke(app, ["sql", script, "-w", str(tmp_path / "lake")])
    assert result.exit_code == 1
    assert result.stderr.startswith(f'notice: {NOTHING}\nerror: line 1: source "typo" does not exist\n')


def test_a_server_that_does_not_know_the_session_is_an_error_for_people() -> None:
    class Restarted:
        """A session that the server lost."""

        def sql(self, _: str) -> NoReturn:
            raise SparkConnectException("[INVALID_HANDLE.SESSION_CHANGED] The handle is invalid. The server restarted.")

    def refused() -> NoReturn:
        raise SparkConnectException("[INVALID_HANDLE.SESSION_CHANGED] The handle is invalid. The server restarted.")

    restarted: Any = Restarted()
    lake, _ = with_shop()
    for session in (lambda: restarted, refused):
        for statement in ("DROP TABLE orders", "SELECT 1"):
            with pytest.raises(LakeholdError, match="does not know the session any more") as failed:
                replace(lake, spark=session).run(statement)
            assert failed.value.code == "spark-unreachable"
    assert "shop.orders" in lake.store.definitions().tables
