"""The progress that a command shows: bars on a terminal, log lines elsewhere, nothing when quiet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import rich.progress
from rich.text import Text

from lakehold.console import Console
from lakehold.printable import printable
from lakehold.progress import LogProgress, NoProgress, Progress, Task


def open_progress(stderr: TextIO, *, quiet: bool = False) -> Progress:
    """Open the progress for a command whose stderr is `stderr`."""
    if quiet:
        return NoProgress()
    return RichProgress(Console(file=stderr)) if stderr.isatty() else LogProgress()


class RichProgress:
    """A bar for each task, gone when the task ends; a spinner while the total is unknown."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def task(self, what: str, *, unit: str, total: int | None = None) -> Iterator[Task]:
        """Show a bar for the length of the `with` block."""
        columns = (
            rich.progress.SpinnerColumn(),
            rich.progress.TextColumn("{task.description}", markup=False),
            rich.progress.BarColumn(),
            _Counted(unit),
            rich.progress.TimeElapsedColumn(),
        )
        with rich.progress.Progress(*columns, console=self._console, transient=True) as bars:
            yield _Bar(bars, bars.add_task(printable(what), total=total, note=""))


class _Counted(rich.progress.ProgressColumn):
    """A column with how many units are done, the total if it is known, and what is going on."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: rich.progress.Task) -> Text:
        """Render the column of one bar."""
        of = "" if task.total is None else f" of {task.total:,.0f}"
        return Text(f"{task.completed:,.0f}{of} {self._unit} {printable(task.fields['note'])}")


class _Bar:
    def __init__(self, bars: rich.progress.Progress, task_id: rich.progress.TaskID) -> None:
        self._bars = bars
        self._task_id = task_id

    def advance(self, amount: int = 1, note: str = "") -> None:
        """Move the bar."""
        self._bars.update(self._task_id, advance=amount, note=note)

    def expect(self, total: int) -> None:
        """Set the total of the bar."""
        self._bars.update(self._task_id, total=total)
