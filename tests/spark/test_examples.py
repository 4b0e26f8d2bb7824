"""Programs of `docs/examples/index.md` that are no block of the page: a mirror in DuckDB loses and repeats nothing."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from typing import Any

import duckdb
import pytest

from lakehold.publish.deliveries import Delivery
from tests.page_steps import STEPS, PageShop
from tests.page_terminal import Terminal
from tests.page_terminal import terminal as terminal  # noqa: PLC0414 - pytest finds fixtures by name
from tests.runnable_pages import checked

pytestmark = pytest.mark.spark


class DiesError(Exception):
    """The process dies."""


@pytest.fixture
def mirror(terminal: Terminal) -> tuple[PageShop, Callable[[], list[Any]]]:
    shop = PageShop(terminal, lambda: pytest.fail("no server"))
    for step in ("a shop has orders and customers", "the examples are copied"):
        STEPS[step](shop)

    def run() -> list[Any]:
        runpy.run_path("duckdb_mirror.py", run_name="__main__")
        with duckdb.connect("orders.duckdb") as database:
            return database.sql("FROM orders ORDER BY id").fetchall()

    return shop, run


def test_a_mirror_in_duckdb_is_equal_and_repeats_nothing(
    mirror: tuple[PageShop, Callable[[], list[Any]]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shop, run = mirror
    assert run() == [(1, "placed", 40), (2, "placed", 15)]
    shop.paid()
    shop.delete(2)
    shop.ingest()
    (shown,) = checked("docs/examples/index.md", __file__)
    with monkeypatch.context() as dying:
        dying.setattr(Delivery, "acknowledge", dies)
        with pytest.raises(DiesError):
            run()
    printed = capsys.readouterr().out
    assert run() == [(1, "paid", 40)]
    again = capsys.readouterr().out
    assert again.endswith(" was applied before\n")
    assert shop.standins.matches(shown, f"{printed}{again.replace('was applied before', 'applied')}")
    assert run() == [(1, "paid", 40)]
    assert capsys.readouterr().out == ""


def dies(_: Delivery) -> None:
    raise DiesError
