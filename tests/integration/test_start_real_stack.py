"""The page on the real stack works as written: PostgreSQL changes as it says, and lakehold prints what it shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from lakehold.stack import StackAddresses, StackPorts
from tests.conftest import LakeFactory
from tests.doc_pages import ROOT
from tests.page_reader import Block, PageReader, blocks
from tests.signal_handlers import handlers_restored as handlers_restored  # noqa: PLC0414 - pytest finds fixtures by name
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.usefixtures("handlers_restored")]

PAGE = (ROOT / "docs" / "start" / "real-stack.md").read_text()
SHOWN = StackAddresses.of(StackPorts())
"""The addresses that the page names."""


class StackReader:
    """A reader with a terminal for `psql` and one that follows the source."""

    def __init__(self, reader: PageReader, stack: StackAddresses) -> None:
        self._reader = reader
        self._stack = stack
        self._script = ""
        self._database = "postgres"
        self._ingest = ""
        self._printed: str | None = None

    def reads(self, block: Block) -> None:
        """Do what the page says, or compare what it shows."""
        match block.language:
            case "sql":
                self._script = block.text
            case "sh":
                for command in block.commands:
                    self._types(command)
            case "postgresql":
                self._in_psql(block.text)
            case "text" if self._printed is not None:
                self._reader.sees(block.text, self._printed)
                self._printed = None
            case _:
                pass  # a picture

    def _types(self, command: str) -> None:
        if command.startswith(("make ", "lakehold stack ")):
            return  # the session's stack runs
        if saved := re.match(r"lakehold sql -f (\S+)", command):
            Path(saved[1]).write_text(self._script)
        if " --follow" in command:
            self._ingest = command.replace(" --follow", "")
            self._printed = self._follows()
        else:
            self._printed = self._reader.types(command)

    def _in_psql(self, statements: str) -> None:
        with psycopg.connect(self._stack.postgres(self._database), autocommit=True) as connection:
            connection.execute(statements.encode())
        if created := re.match(r"CREATE DATABASE (\w+)", statements):
            self._database = created[1]
        if self._ingest:
            self._follows()

    def _follows(self) -> str:
        """Ingest until a batch has changed something, as `--follow` does."""
        printed: list[str] = []

        def has_printed() -> bool:
            printed.append(self._reader.types(self._ingest))
            return bool(printed[-1])

        wait_for(has_printed, "a batch has changed something")
        return printed[-1]


@pytest.fixture
def reader(
    make_lake: LakeFactory, stack: StackAddresses, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[PageReader]:
    monkeypatch.setenv("LAKEHOLD_SECRET_PG_PASSWORD", stack.postgres_password)
    reader = PageReader(make_lake, monkeypatch, tmp_path)
    yield reader
    reader.types('lakehold sql --warehouse app-lake "DROP SOURCE IF EXISTS app CASCADE"')
    with psycopg.connect(stack.postgres(), autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS app WITH (FORCE)")


def test_a_reader_of_the_page_sees_what_it_shows(reader: PageReader, stack: StackAddresses) -> None:
    page = PAGE.replace(f"PORT {SHOWN.postgres_port}", f"PORT {stack.postgres_port}")
    for shown, there in ((SHOWN.kafka, stack.kafka), (SHOWN.connect, stack.connect)):
        assert shown in page
        page = page.replace(shown, there)
    following = StackReader(reader, stack)
    for block in blocks(page):
        following.reads(block)
