"""Every block of the documentation that needs no server runs, in a lake of its page, and prints what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.catalog_servers import s3_server
from tests.page_steps import STEPS, PageShop
from tests.page_terminal import Terminal, read
from tests.page_terminal import terminal as terminal  # noqa: PLC0414 - pytest finds fixtures by name
from tests.runnable_pages import PAGES, parts

__all__ = ["s3_server"]

pytestmark = pytest.mark.spark

RUNNABLE = [page for page in PAGES if any(part.runs and not part.is_live for part in parts(page.read_text()))]


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.stem)
def test_a_page_does_what_it_shows(page: Path, terminal: Terminal, request: pytest.FixtureRequest) -> None:
    shop = PageShop(terminal, lambda: request.getfixturevalue("s3_server"))
    read(page, terminal, lambda name: STEPS[name](shop))


def test_every_step_is_on_a_page() -> None:
    steps = [part for page in PAGES for part in parts(page.read_text()) if part.kind == "step"]
    assert {step.text for step in steps if not step.is_live} == set(STEPS)
