"""`lakehold serve`: a lake for programs that are not Python, until Ctrl-C.

The command `lakehold` always imports this module, so that the command below imports what only the server needs.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from lakehold.cli.command_output import OutputFormat, open_output, reported
from lakehold.cli.interrupt import stop_on_signal
from lakehold.cli.metrics import metrics_of
from lakehold.cli.option_types import Metrics, Warehouse


def serve(  # noqa: PLR0913 - a command's options
    *,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="Port; 0 takes a free one.")] = 32_010,
    tokens: Annotated[
        Path | None, typer.Option("--tokens", metavar="FILE", help="One token a line, then the role that it has.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", metavar="FILE", help="Certificate of TLS, as PEM.")
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", metavar="FILE", help="Key of the certificate, as PEM.")] = None,
    max_statements: Annotated[
        int, typer.Option("--max-statements", min=1, metavar="N", help="Statements that run at the same time, at most.")
    ] = 32,
    metrics: Metrics = None,
    warehouse: Warehouse = None,
) -> None:
    """Serve the lake to ADBC and JDBC, over Arrow Flight SQL.

    Clients read tables and follow changes; of all that changes a lake they may run statements on holds only. The address
    is written once clients can connect. Ctrl-C ends the server.
    """
    output = open_output(OutputFormat.TABLE, sys.stdout, sys.stderr)
    with reported(output):
        from lakehold.lake import connect
        from lakehold.serve.server import has_abandoned_requests
        from lakehold.serve.serving import Door, served

        stop = stop_on_signal()
        door = Door(host, port, tokens, certificate, key, max_statements)
        with connect(warehouse) as lake, metrics_of(lake, metrics, output), served(lake, door) as address:
            typer.echo(address)
            stop.wait()
    if has_abandoned_requests():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
