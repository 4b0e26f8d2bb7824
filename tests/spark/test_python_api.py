"""The programs of the Python API page print the output that the page shows; the programs of other pages run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lakehold
from lakehold.demo.recording import unpack
from lakehold.lake import Lake
from tests.conftest import LakeFactory
from tests.doc_pages import page, section

pytestmark = pytest.mark.spark

PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STATEMENTS = re.compile(r"^```sql\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_programs_print_what_the_page_shows(
    make_lake: LakeFactory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = page("reference/python-api.md")
    first, with_a_client = PROGRAM.findall(text)
    (output,) = OUTPUT.findall(text)

    def connect(warehouse: str) -> Lake:
        return make_lake(Path(warehouse), catalog_name="python_api")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lakehold, "connect", connect)
    unpack(tmp_path / "demo" / "recording")
    capsys.readouterr()
    exec(compile(first, "python-api.md", "exec"), {})
    assert capsys.readouterr().out == output
    exec(compile(with_a_client, "python-api.md", "exec"), {})
    assert capsys.readouterr().out == "True 198\n"


@pytest.mark.parametrize("name", ["reference/errors.md", "operate/status-page.md"])
def test_programs_of_other_pages_run(
    name: str,
    make_lake: LakeFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(lakehold, "connect", lambda warehouse: make_lake(tmp_path / warehouse))
    (program,) = PROGRAM.findall(page(name))
    found: dict[str, str] = {}
    exec(compile(program, name, "exec"), found)
    if name == "reference/errors.md":
        assert capsys.readouterr().out.startswith("table-missing ")
    else:
        assert "<html" in found["page"]


@pytest.mark.parametrize(
    ("name", "heading"),
    [("reference/system-tables.md", None), ("reference/errors.md", "## Bad messages")],
    ids=["system tables", "bad messages"],
)
def test_queries_of_system_tables_run(name: str, heading: str | None, make_lake: LakeFactory) -> None:
    text = page(name) if heading is None else section(page(name), heading)
    lake = make_lake()
    for statements in STATEMENTS.findall(text):
        assert lake.sql(statements).rows == []
