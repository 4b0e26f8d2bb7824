"""Installations that pages name: the checks begin with the same command, so every test shows that it works."""

from __future__ import annotations

import pytest

from tests.doc_pages import ROOT
from tests.make_targets import commands
from tests.runnable_pages import checked


def test_the_page_shows_the_installation_of_the_stack() -> None:
    assert checked("docs/start/real-stack.md", __file__) == ["make setup-stack\n"]


def test_every_check_begins_with_the_installation_of_the_stack() -> None:
    assert (ROOT / ".ci" / "run").read_text().endswith("exec make test\n")
    assert commands("test")[:1] == commands("setup-stack")


@pytest.mark.parametrize("target", ["demo-live", "demo-cluster", "airflow", "stack-up"])
def test_targets_that_need_the_stack_install_it_first(target: str) -> None:
    assert commands(target)[:-1] == commands("setup-stack")
