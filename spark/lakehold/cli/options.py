"""Options that many commands have, and their examples."""

from __future__ import annotations

from typing import Annotated

import typer

from lakehold.cli.command_output import OutputFormat

Warehouse = Annotated[
    str | None,
    typer.Option(
        "--warehouse", "-w", metavar="PATH|URI", help="The lake; else LAKEHOLD_WAREHOUSE, lakehold.toml, ./lake."
    ),
]
Format = Annotated[
    OutputFormat | None,
    typer.Option("--format", help="Default: table on a terminal, json (one object a line) otherwise."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


def examples(*commands: str) -> str:
    """Join example commands into the text below the options; the backspace keeps each on a line of its own."""
    return "\n".join(["\b", *commands])
