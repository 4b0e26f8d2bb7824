"""`lakehold status`: a row for each table, an HTML page, or metrics of Prometheus.

The command `lakehold` always imports this module, so that the command below imports what only the status needs.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from lakehold.cli.command_output import Output, open_output, reported
from lakehold.cli.option_types import Format, Warehouse
from lakehold.errors import LakeholdError

if TYPE_CHECKING:
    from lakehold.lake import Lake


def status(
    *,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Write an HTML page to a file instead ('-': stdout).")
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option("--prometheus", metavar="FILE", help="Write metrics for Prometheus instead ('-': stdout)."),
    ] = None,
    output_format: Format = None,
    warehouse: Warehouse = None,
) -> None:
    """Show the readable window, the rows and the errors of every table.

    A stopped table shows the error that stopped it. Starts no Spark.
    """
    if html is not None and prometheus is not None:
        raise typer.BadParameter("give one of them", param_hint="--html, --prometheus")
    output = open_output(output_format, sys.stdout, sys.stderr)
    with reported(output):
        from lakehold.lake import connect

        with connect(warehouse) as lake:
            if html is not None:
                from lakehold.overview import gather, render

                _write(render(gather(lake)), html, "the page is", output, sys.stdout)
            elif prometheus is not None:
                _write(_metrics(lake), prometheus, "the metrics are", output, sys.stdout)
            else:
                from lakehold.status import status_of

                output.result(status_of(lake))


def _metrics(lake: Lake) -> str:
    from contextlib import closing

    from prometheus_client import CollectorRegistry, generate_latest

    from lakehold.metrics.status_collector import StatusReader

    with closing(StatusReader(lake, lake.settings.upstream_timeout_ms / 1000)) as reader:
        registry = CollectorRegistry()
        registry.register(reader)
        return generate_latest(registry).decode()


def _write(text: str, file: str, what: str, output: Output, stdout: TextIO) -> None:
    """Write a text to a file, which other programs see whole or not at all; `-`: to `stdout`."""
    if file == "-":
        stdout.write(text)
        return
    path = Path(file)
    new = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise LakeholdError(f'file "{file}" cannot be written', code="usage", detail=f"{error.strerror}.") from error
    output.notice(f"{what} in {file}")
