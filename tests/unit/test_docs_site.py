"""The documentation as a site: it has every page, all links resolve, and a reader needs no other server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doc_pages import ROOT

_FROM_ELSEWHERE = re.compile(r"<(?:script|img|link)\b[^>]*?(?:src|href)=\"?(https?:[^\s\">]+)")

_TEXT_BLOCKS = re.compile(r"```text\n(.*?)```", re.DOTALL)
_PICTURE_COLUMNS = 100
"""The columns of a block that a window of 1,300 pixels shows (`docs/stylesheets/pictures.css`)."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; `--strict` refuses pages missing from the menu, and links and anchors without a target."""
    directory = tmp_path_factory.mktemp("site")
    config = str(ROOT / ".mkdocs.yml")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", config, "-d", str(directory)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(build, capture_output=True, text=True, check=False, env=environment)
    assert built.returncode == 0, built.stderr
    return directory


def test_every_page_is_built(site: Path) -> None:
    pages = {page.relative_to(ROOT / "docs").with_suffix("") for page in (ROOT / "docs").rglob("*.md")}
    wanted = {site / page.parent / ("" if page.name == "index" else page.name) / "index.html" for page in pages}
    assert {page for page in wanted if not page.exists()} == set()


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = {found for page in site.rglob("*.html") for found in _FROM_ELSEWHERE.findall(page.read_text())}
    assert loaded == set()


def test_the_search_finds_pages(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text()
    assert "replication slot" in index


def test_pictures_fit_on_a_page() -> None:
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for block in _TEXT_BLOCKS.findall(page.read_text()):
            if any(arrow in block for arrow in "▶▲▼◀"):
                assert max(map(len, block.splitlines())) <= _PICTURE_COLUMNS, f"{page.name}: {block}"
