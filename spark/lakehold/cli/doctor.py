"""`lakehold doctor`: a row for each thing that lakehold needs.

The command `lakehold` always imports this module, so that the command below imports what only it needs.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

import sys
from contextlib import ExitStack

import typer

from lakehold.cli.command_output import open_output, reported
from lakehold.cli.option_types import Format, Quiet, Warehouse
from lakehold.cli.progress import open_progress


def doctor(*, output_format: Format = None, quiet: Quiet = False, warehouse: Warehouse = None) -> None:
    """Examine what lakehold needs, and what is missing.

    One line each for Java, jars, the lake and the systems of its connections, with a way to get what is missing. Nothing
    is changed, fetched or started. Exit code 1 when something is missing or does not answer.
    """
    output = open_output(output_format, sys.stdout, sys.stderr)
    with reported(output):
        from lakehold.doctor import COLUMNS, examine
        from lakehold.lake import open_existing
        from lakehold.settings import load_settings
        from lakehold.sql.result import Result

        rows = []
        with open_progress(sys.stderr, quiet=quiet).task("examining", unit="things") as task, ExitStack() as opened:
            for row in examine(
                load_settings(warehouse=warehouse), lambda: opened.enter_context(open_existing(warehouse))
            ):
                rows.append(row)
                task.advance()
        output.result(Result(COLUMNS, rows))
        if any(state != "ok" for _, state, *_ in rows):
            raise typer.Exit(1)
