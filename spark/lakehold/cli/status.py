"""`lakehold status`: a row for each table, a picture on a terminal, an HTML page, or metrics of Prometheus.

The command `lakehold` always imports this module, so that the command below imports what only it needs.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from lakehold.cli.command_output import Output, error_lines, open_output, reported
from lakehold.cli.interrupt import stop_on_signal
from lakehold.cli.option_types import Format, Warehouse
from lakehold.cli.whole_file import write_whole
from lakehold.errors import LakeholdError

if TYPE_CHECKING:
    from prometheus_client.registry import Collector
    from rich.console import RenderableType

    from lakehold.lake import Lake


def status(  # noqa: PLR0913 - a command has one argument for each option
    *,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Write an HTML page to a file instead ('-': stdout).")
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option("--prometheus", metavar="FILE", help="Write metrics for Prometheus instead ('-': stdout)."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh the terminal until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option("--every", min=0.1, metavar="SECONDS", help="Pause of --watch.")] = 2.0,
    output_format: Format = None,
    warehouse: Warehouse = None,
) -> None:
    """Show the state, the rows, the lag and the errors of every table.

    A terminal shows what needs a person first, and how far each table lagged during the last day. With --format, one row
    for each table instead. Starts no Spark.
    """
    if html is not None and prometheus is not None:
        raise typer.BadParameter("give one of them", param_hint="--html, --prometheus")
    if watch and not (sys.stdout.isatty() and output_format is None and html is None and prometheus is None):
        raise typer.BadParameter(
            "it needs a terminal; programs repeat: lakehold status --format json", param_hint="--watch"
        )
    output = open_output(output_format, sys.stdout, sys.stderr)
    with reported(output):
        from lakehold.lake import open_existing

        if prometheus is not None:
            _write_metrics(warehouse, prometheus, sys.stdout)
            _notice_file(output, "the metrics are", prometheus)
            return
        with open_existing(warehouse) as lake:
            if html is not None:
                from lakehold.overview import gather, render

                _write(render(gather(lake)), html, sys.stdout)
                _notice_file(output, "the page is", html)
            elif watch:
                _watch(lake, every)
            elif output_format is None and sys.stdout.isatty():
                from lakehold.console import Console

                Console(highlight=False).print(_drawn(lake))
            else:
                from lakehold.status import status_of

                output.result(status_of(lake))


def _write_metrics(warehouse: str | None, file: str, stdout: TextIO) -> None:
    """Write the metrics of a lake; of one that cannot be read `lakehold_up 0`, in place of values from an earlier time."""
    from contextlib import closing, suppress

    from lakehold.lake import open_existing
    from lakehold.metrics.status_collector import StatusReader, UnreadableCollector

    try:
        with (
            open_existing(warehouse) as lake,
            closing(StatusReader(lake, lake.settings.upstream_timeout_ms / 1000)) as reader,
        ):
            text = _exposition(reader)
    except Exception:
        with suppress(LakeholdError):
            _write(_exposition(UnreadableCollector()), file, stdout)
        raise
    _write(text, file, stdout)


def _exposition(collector: Collector) -> str:
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry).decode()


def _write(text: str, file: str, stdout: TextIO) -> None:
    """Write a text to a file; `-`: to `stdout`."""
    if file == "-":
        stdout.write(text)
        return
    try:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        write_whole(Path(file), text)
    except OSError as error:
        raise LakeholdError(f'file "{file}" cannot be written', code="usage", detail=f"{error.strerror}.") from error


def _notice_file(output: Output, what: str, file: str) -> None:
    if file != "-":
        output.notice(f"{what} in {file}")


def _watch(lake: Lake, every_s: float) -> None:
    """Draw the lake again and again until Ctrl-C; the last picture stays on the terminal."""
    from rich.live import Live
    from rich.text import Text

    from lakehold.console import Console

    stop = stop_on_signal()
    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        while not stop.is_set():
            try:
                live.update(_drawn(lake), refresh=True)
            except LakeholdError as error:
                if not error.retryable:
                    raise
                live.update(Text("\n".join(error_lines(error)), style="red"), refresh=True)
            stop.wait(every_s)


def _drawn(lake: Lake) -> RenderableType:
    from lakehold.cli.status_picture import picture
    from lakehold.overview import gather
    from lakehold.status import notices_of

    return picture(gather(lake), notices_of(lake))
