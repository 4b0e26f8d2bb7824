"""The first page works as written: its commands run in order, and print what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lakehold.demo.recording import unpack
from tests.conftest import LakeFactory
from tests.doc_pages import ROOT
from tests.page_reader import PageReader, blocks
from tests.signal_handlers import handlers_restored as handlers_restored  # noqa: PLC0414 - pytest finds fixtures by name

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("handlers_restored")]

PAGE = (ROOT / "docs" / "start" / "embedded.md").read_text()


def test_a_reader_of_the_first_page_sees_what_it_shows(
    make_lake: LakeFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reader = PageReader(make_lake, monkeypatch, tmp_path)
    script, printed = "", None
    for block in blocks(PAGE):
        if block.language == "sql":
            script = block.text
        elif block.language == "sh":
            for command in block.commands:
                printed = types(reader, command, script)
        elif printed is not None:
            reader.sees(block.text, printed)
            printed = None


def types(reader: PageReader, command: str, script: str) -> str | None:
    """Type a command. `script` is what the page has the reader save before."""
    if command == "make setup":
        return None
    if command == "lakehold demo --directory demo":
        # `tests/integration/test_demo.py` runs the demo. The page needs the recording that it leaves.
        unpack(Path("demo/recording"))
        return None
    if saved := re.fullmatch(r"lakehold sql -f (\S+)", command):
        Path(saved[1]).write_text(script)
    return reader.types(command)
