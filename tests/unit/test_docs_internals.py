"""The pages for developers name existing code and tests, and only reference pages are long."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.doc_pages import ROOT, inline_code

INTERNALS = sorted((ROOT / "docs" / "internals").glob("*.md"))
PROMISES = (ROOT / "docs" / "guarantees.md", ROOT / "docs" / "security.md")
PAGES = sorted((ROOT / "docs").rglob("*.md"))
REFERENCE = {ROOT / "docs" / "benchmarks.md", *(ROOT / "docs" / "reference").glob("*.md")}
PYTHON = [*(ROOT / "spark").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "dags").rglob("*.py")]
MOST_WORDS = 1_500

_TESTS = "\n".join(path.read_text() for path in sorted((ROOT / "tests").rglob("test_*.py")))
_TEST = re.compile(r"^test_[a-z0-9_]+$")
_MODULE = re.compile(r"^[a-z_]+(/[a-z_]+)*\.py$")
_PATH = re.compile(r"^(?:tests|spark|docs)/[\w./-]+$")
_NAME = re.compile(r"\b(?:[a-z]*_[a-z_]+|(?:[A-Z][a-z]+){2,})\b")


@pytest.mark.parametrize("page", [page for page in PAGES if page not in REFERENCE], ids=lambda page: page.name)
def test_a_page_has_no_more_words_than_a_reader_can_take_in(page: Path) -> None:
    without_blocks = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert len(without_blocks.split()) <= MOST_WORDS


@pytest.mark.parametrize("page", [*INTERNALS, *PROMISES], ids=lambda page: page.name)
def test_every_test_and_path_that_is_named_exists(page: Path) -> None:
    for name in inline_code(page.read_text()):
        if _TEST.match(name):
            assert f"def {name}(" in _TESTS, name
        elif _PATH.match(name):
            assert (ROOT / name).exists(), name


def test_every_guarantee_is_attacked_by_each_run_of_the_checks() -> None:
    named = {name for name in inline_code((ROOT / "docs" / "guarantees.md").read_text()) if _PATH.match(name)}
    assert named
    for name in named:
        text = (ROOT / name).read_text()
        soaks = re.findall(r"^@pytest\.mark\.soak$", text, re.MULTILINE)
        assert len(soaks) < len(re.findall(r"^def test_", text, re.MULTILINE)), name
        assert not re.search(r"^pytestmark = .*\bsoak\b", text, re.MULTILINE), name


@pytest.mark.parametrize("page", INTERNALS, ids=lambda page: page.name)
def test_every_function_class_and_field_that_is_named_exists(page: Path) -> None:
    code = {path.stem for path in PYTHON}.union(*(re.findall(r"\w+", path.read_text()) for path in PYTHON))
    spans = [name for name in inline_code(page.read_text()) if not (_TEST.match(name) or _PATH.match(name))]
    assert {name for span in spans for name in _NAME.findall(span)} <= code


@pytest.mark.parametrize("page", INTERNALS, ids=lambda page: page.name)
def test_every_module_that_is_named_exists(page: Path) -> None:
    modules = {path.relative_to(ROOT / "spark").as_posix() for path in (ROOT / "spark" / "lakehold").rglob("*.py")}
    for name in inline_code(page.read_text()):
        if _MODULE.match(name) and not _PATH.match(name):
            assert any(f"/{module}".endswith(f"/{name}") for module in modules), name
