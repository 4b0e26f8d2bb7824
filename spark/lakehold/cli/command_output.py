"""Output of the commands: data on stdout as a table, JSON lines or CSV; notices and errors on stderr."""

from __future__ import annotations

import os
import re
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, TextIO, assert_never

import typer
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from lakehold import spark_log
from lakehold.cli.values import as_json, as_json_text, as_text
from lakehold.console import Console
from lakehold.errors import LakeholdError
from lakehold.printable import printable
from lakehold.sql.result import Result

_ANY_WIDTH = 1_000_000
"""Characters: wider than any table, so that the width a table needs can be measured."""

_UNCAUGHT = 1
"""The exit code with which Python itself ends after an exception."""


class OutputFormat(StrEnum):
    """The format in which rows are written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class Output(ABC):
    """The writer that commands use instead of printing. Notices and errors look the same in every format.

    Args:
        stdout: Takes data only.
        stderr: Takes everything else.
    """

    def __init__(self, stdout: TextIO, stderr: TextIO) -> None:
        self._stdout = stdout
        self._stderr = stderr

    def result(self, result: Result) -> None:
        """Write the rows, then the notices."""
        if result.columns:
            self._write_rows(result.columns, result.rows)
            self._stdout.flush()
        for text in result.notices:
            self.notice(text)

    def begin(self, columns: tuple[str, ...]) -> None:  # noqa: B027 - only some formats have a header
        """Write what comes before rows with these columns, so that a result without rows has it, too."""

    def part(self, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
        """Write some rows of a result that comes in parts, so that they can be seen at once."""
        self._write_rows(columns, rows)
        self._stdout.flush()

    def notice(self, text: str) -> None:
        """Write a line for the person that is not data."""
        self._stderr.write(f"notice: {printable(text)}\n")
        self._stderr.flush()

    def error(self, error: LakeholdError) -> None:
        """Write an error and what to do about it, see `error_lines`, and where Spark's log is if it says more.

        Notices of what was done before the error come first.
        """
        for text in error.notices:
            self.notice(text)
        self._stderr.write("".join(f"{line}\n" for line in (*error_lines(error), *_log_line())))
        self._stderr.flush()

    @abstractmethod
    def _write_rows(self, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
        """Write rows to stdout."""


def error_lines(error: LakeholdError) -> list[str]:
    """Format an error: for a statement of a script its line and a caret, then the detail, hint and code that it has."""
    lines = [f"error: {error.message}"]
    if error.place is not None:
        excerpt = (f"  {line}" for line in error.place.excerpt().split("\n"))
        lines = [f"error: line {error.place.line}: {error.message}", *excerpt]
    parts = (("detail", error.detail), ("hint", error.hint), ("code", error.code))
    return [printable(line) for line in (*lines, *(f"{label}: {text}" for label, text in parts if text))]


def _log_line() -> list[str]:
    log = spark_log.written()
    return [f"log: {log}"] if log is not None else []


class TableOutput(Output):
    """A writer of ruled tables for people: numbers to the right, null in grey.

    Tables wider than the terminal are written one block per row. Control characters are shown by their codes.
    """

    def _write_rows(self, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
        values = list(rows)
        console = Console(file=self._stdout, highlight=False)
        table = _ruled(columns, values)
        needed = console.measure(table, options=console.options.update_width(_ANY_WIDTH)).minimum
        console.print(table if len(columns) == 1 or not values or needed <= console.width else _blocks(columns, values))


def _ruled(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> Table:
    table = Table(show_edge=False, header_style="bold")
    for at, name in enumerate(columns):
        # Single words are not broken: only sentences fold.
        is_word = len(columns) > 1 and not any(" " in _text(row[at]) for row in rows)
        table.add_column(Text(printable(name)), overflow="fold", no_wrap=is_word)
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    return table


def _blocks(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> Table:
    blocks = Table.grid(padding=(0, 2, 0, 0))
    blocks.add_column(style="bold", overflow="fold")
    blocks.add_column(overflow="fold")
    for number, row in enumerate(rows):
        if number:
            blocks.add_row()
        for name, value in zip(columns, row, strict=True):
            blocks.add_row(Text(printable(name)), _cell(value, "left"))
    return blocks


def _cell(value: object, numbers: JustifyMethod = "right") -> Text:
    if value is None:
        return Text(_text(value), style="dim")
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return Text(_text(value), justify=numbers if numeric else "left")


def _text(value: object) -> str:
    return "null" if value is None else printable(as_text(value))


class JsonOutput(Output):
    """A writer of one JSON object a row; a column name that occurs twice is written twice, as the row has it."""

    def _write_rows(self, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
        names = [as_json_text(name) for name in columns]
        for row in rows:
            pairs = [
                f"{n}: {str(v) if type(v) is int else as_json_text(as_json(v))}"
                for n, v in zip(names, row, strict=True)
            ]
            self._stdout.write(f"{{{', '.join(pairs)}}}\n")


class CsvOutput(Output):
    """A writer of comma-separated values with one header (RFC 4180, lines end in a newline).

    Null is empty, and an empty string is quoted.
    """

    _header: tuple[str, ...] = ()

    def begin(self, columns: tuple[str, ...]) -> None:
        """Write the header, unless it was written already."""
        if columns != self._header:
            self._header = columns
            self._write(columns)
            self._stdout.flush()

    def _write_rows(self, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
        self.begin(columns)
        for row in rows:
            self._write(row)

    def _write(self, values: Iterable[Any]) -> None:
        self._stdout.write(",".join([_csv_field(v) for v in values]) + "\n")


_CSV_PLAIN = re.compile(r'[^,"\r\n]+').fullmatch


def _csv_field(value: object) -> str:
    if value is None:
        return ""
    if type(value) is int:
        return str(value)
    text = as_text(value)
    return text if _CSV_PLAIN(text) else '"' + text.replace('"', '""') + '"'


def open_output(wanted: OutputFormat | None, stdout: TextIO, stderr: TextIO) -> Output:
    """Open the output for `wanted`; without a format, a table on a terminal and JSON for programs."""
    match wanted or (OutputFormat.TABLE if stdout.isatty() else OutputFormat.JSON):
        case OutputFormat.TABLE:
            return TableOutput(stdout, stderr)
        case OutputFormat.JSON:
            return JsonOutput(stdout, stderr)
        case OutputFormat.CSV:
            return CsvOutput(stdout, stderr)
        case other:
            assert_never(other)


@contextmanager
def reported(output: Output, code: int = 1) -> Iterator[None]:
    """End the command with an exit code when an error is raised inside; only one that is not lakehold's has a traceback."""
    try:
        yield
    except LakeholdError as error:
        output.error(error)
        raise typer.Exit(code) from None
    except (typer.Exit, typer.BadParameter, BrokenPipeError):
        raise
    except Exception as error:
        if code == _UNCAUGHT:
            raise
        traceback.print_exception(error)
        raise typer.Exit(code) from None


class Commands(TyperGroup):
    """The group of all commands: it ends one whose reader closed the pipe, such as `head`, with exit code 0."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command, and write all of its output."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Python's buffered output would raise again at exit: send it to /dev/null.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        return result
