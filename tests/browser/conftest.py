"""A headless browser that shows pages: the Chromium that the machine has, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

_PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


@dataclass
class Shown:
    """A page in a window, with the messages that it logged and the addresses that it requested."""

    page: Page
    messages: list[str] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)


Show = Callable[..., Shown]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = os.environ.get("LAKEHOLD_CHROMIUM") or next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        pytest.fail("there is no Chromium: `make setup-browser` installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        yield browser
        browser.close()


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Show]:
    """Return a function that opens a text as a page, in a window of some width, with a light or dark color scheme."""
    contexts: list[BrowserContext] = []

    def open_page(text: str, width: int = 1280, scheme: str = "light") -> Shown:
        file = tmp_path / "page.html"
        file.write_text(text, encoding="utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if scheme == "dark" else "light"
        )
        contexts.append(context)
        shown = Shown(context.new_page())
        shown.page.on("console", lambda message: shown.messages.append(message.text))
        shown.page.on("pageerror", lambda error: shown.messages.append(str(error)))
        shown.page.on("request", lambda request: shown.requested.append(request.url))
        shown.page.goto(file.as_uri())
        return shown

    yield open_page
    for context in contexts:
        context.close()
