"""`lakehold spark`: one Spark for all commands and tasks of this machine.

The command `lakehold` always imports this module, so that the commands below import what only the server needs.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakehold.servers.screen import OutputFormat, directory_option, progress, show_status
from lakehold.spark_server import DEFAULT_PORT

app = typer.Typer(
    help="One Spark for all commands of this machine. Each gets a session of its Spark Connect server at once, instead of "
    "starting its own Spark."
)

Directory = Annotated[Path, directory_option("spark", "LAKEHOLD_SPARK_DIR", "Where the server keeps its log.")]


@app.command()
def up(
    directory: Directory,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, help=f"Port on 127.0.0.1; by default the last one, or {DEFAULT_PORT}."),
    ] = None,
) -> None:
    """Start the server unless it runs, and wait until it answers.

    Evaluate its output to make a shell use the server:

    eval "$(lakehold spark up)"

    The server knows no lake: each client brings its own. LAKEHOLD_SPARK_DRIVER_MEMORY sets its heap, LAKEHOLD_SPARK_MASTER its
    cores, and LAKEHOLD_SPARK_CONF the rest of Spark. Only programs on this machine can reach its port, and they may do there what
    the server's user may.
    """
    from lakehold.settings import load_settings
    from lakehold.spark_server import lifecycle

    remote = lifecycle.up(directory, load_settings(), port, progress())
    typer.echo(f"export LAKEHOLD_SPARK_REMOTE={remote}")


@app.command()
def down(directory: Directory) -> None:
    """Stop the server. Statements that run on it fail; an interrupted ingest continues its batch on the next server."""
    from lakehold.spark_server import lifecycle

    lifecycle.down(directory, progress())


@app.command()
def status(
    directory: Directory,
    output_format: Annotated[OutputFormat, typer.Option("--format", help="Format of the output.")] = OutputFormat.TABLE,
) -> None:
    """Show the state of the server. The exit code is 0 if it is healthy, else 1; the command then names its log."""
    from lakehold.spark_endpoint import ended
    from lakehold.spark_server import lifecycle

    server = lifecycle.status(directory)
    show_status([server], output_format)
    if not server.healthy:
        if server.log.exists():
            typer.echo(f"log: {server.log}: {ended(directory) or 'its process runs, but does not answer.'}", err=True)
        raise typer.Exit(1)
