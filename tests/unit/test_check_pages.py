"""Deletion of old pages of checks that nothing needs any more; other files in their directory are never deleted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyiceberg.io import load_file_io

from lakehold.quality.pages import Pages

OLD_S = 1_000


@pytest.fixture
def pages(tmp_path: Path) -> Pages:
    """Return three old pages, a young one, and a file that is no page."""
    for name in ("shop.orders/1.html", "shop.orders/2.html", "shop.größe x/3.html", "shop.orders/notes.txt"):
        path = tmp_path / "pages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("page")
        os.utime(path, (OLD_S, OLD_S))
    (tmp_path / "pages/shop.orders/young.html").write_text("page")
    return Pages(f"file://{tmp_path}/pages", load_file_io({}))


def names(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "pages").rglob("*") if path.is_file()}


def test_only_old_pages_go_that_a_verdict_named(pages: Pages, tmp_path: Path) -> None:
    below = [f"shop.orders/{name}" for name in ("1.html", "young.html", "gone.html")]
    named = {f"{tmp_path}/pages/{page}" for page in (*below, "shop.größe x/3.html")} | {f"{tmp_path}/other/4.html", ""}
    before_ms = OLD_S * 1000 + 1
    assert pages.unneeded(before_ms - 1, named) == []
    old = pages.unneeded(before_ms, named)
    assert {Path(page).name for page in old} == {"1.html", "3.html"}
    assert len(names(tmp_path)) == 5
    assert not pages.delete(old)
    assert names(tmp_path) == {"2.html", "young.html", "notes.txt"}


def test_a_directory_may_be_given_with_a_slash_at_its_end(pages: Pages, tmp_path: Path) -> None:
    named = {f"{tmp_path}/pages/shop.orders/1.html"}
    with_slash = Pages(f"{pages.directory}/", pages.io)
    assert with_slash.unneeded(OLD_S * 1000 + 1, named) == pages.unneeded(OLD_S * 1000 + 1, named) != []


def test_a_lake_without_pages_has_nothing_to_delete(tmp_path: Path) -> None:
    pages = Pages(f"file://{tmp_path}/pages", load_file_io({}))
    assert pages.unneeded(OLD_S, {f"{tmp_path}/pages/shop.orders/1.html"}) == []
