"""The README's example does what the README shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lakehold
from lakehold.demo.recording import unpack
from lakehold.lake import Lake
from tests.conftest import LakeFactory

pytestmark = pytest.mark.spark

README = (Path(__file__).parents[2] / "README.md").read_text()
EXAMPLE = re.compile(r"^```python\n(?P<program>.*?)^```\n\n```text\n(?P<output>.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_example_prints_what_the_readme_shows(
    make_lake: LakeFactory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    example = EXAMPLE.search(README)
    assert example is not None

    def connect(warehouse: str) -> Lake:
        return make_lake(Path(warehouse))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lakehold, "connect", connect)
    unpack(tmp_path / "demo" / "recording")
    capsys.readouterr()
    exec(compile(example["program"], "README.md", "exec"), {})
    assert capsys.readouterr().out == example["output"]
