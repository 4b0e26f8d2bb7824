"""The programs of the Python API page do what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lakehold
from lakehold.demo.recording import unpack
from lakehold.lake import Lake
from tests.conftest import LakeFactory
from tests.doc_pages import page

pytestmark = pytest.mark.spark

PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_programs_print_what_the_page_shows(
    make_lake: LakeFactory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = page("reference/python-api.md")
    first, with_a_client = PROGRAM.findall(text)
    (output,) = OUTPUT.findall(text)

    def connect(warehouse: str) -> Lake:
        return make_lake(Path(warehouse))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lakehold, "connect", connect)
    unpack(tmp_path / "demo" / "recording")
    capsys.readouterr()
    exec(compile(first, "python-api.md", "exec"), {})
    assert capsys.readouterr().out == output
    exec(compile(with_a_client, "python-api.md", "exec"), {})
    assert capsys.readouterr().out == "True 198\n"
