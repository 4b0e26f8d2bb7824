"""The demo's output: coloured on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from lakehold.console import Console
from lakehold.ingest.batch_report import BatchReport
from lakehold.sql.result import Result
from lakehold.stack import ServerEvent

_PLAIN_WIDTH = 200
"""Columns of the output where there is no terminal: wide enough that no row is folded."""


class Screen:
    """A writer of the demo's output to one stream.

    Args:
        stdout: The stream for everything.
    """

    def __init__(self, stdout: TextIO) -> None:
        self._console = Console(file=stdout, highlight=False, width=None if stdout.isatty() else _PLAIN_WIDTH)

    def heading(self, text: str) -> None:
        """Begin a section of the output."""
        self._console.print()
        self._console.print(Text(text, style="bold"))

    def line(self, text: str, style: str = "") -> None:
        """Print a line of text, never folded."""
        self._console.print(Text(text, style=style), soft_wrap=True)

    def sql(self, text: str) -> None:
        """Print statements."""
        if self._console.is_terminal:
            self._console.print(
                Syntax(text.strip(), "sql", theme="ansi_dark", background_color="default", word_wrap=True)
            )
        else:
            self.line(text.strip())

    def table(self, result: Result) -> None:
        """Print rows under their column names."""
        table = Table(box=None, pad_edge=False, header_style="underline")
        for position, column in enumerate(result.columns):
            numeric = all(isinstance(row[position], int) for row in result.rows)
            table.add_column(Text(column), overflow="fold", justify="right" if numeric else "left")
        for row in result.rows:
            table.add_row(*("null" if value is None else Text(str(value)) for value in row))
        self._console.print(table)

    def batch(self, report: BatchReport) -> None:
        """Print a line for each table that a batch changed, and for each that stopped."""
        for table in report.tables:
            self.line(
                f"batch {report.timestamp_ms}  {table.table:<17}"
                f" {table.inserted:>5} inserted {table.updated:>5} updated {table.deleted:>5} deleted"
            )
        for name, error in report.stopped.items():
            self.line(f"batch {report.timestamp_ms}  {name:<17} stopped: {error.message}", style="red")

    def stack_event(self, event: ServerEvent) -> None:
        """Print an event of a part of the stack."""
        self.line(f"{event.server:<9} {event.state:<15} {event.detail}".rstrip(), style="dim")

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show what takes a while: with a spinner on a terminal."""
        if not self._console.is_terminal:
            self.line(what)
            yield
            return
        with self._console.status(what):
            yield
