"""Options that several commands have, and those of a read that ends by itself."""

from __future__ import annotations

from pathlib import Path
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
Metrics = Annotated[
    str | None,
    typer.Option(
        "--metrics", metavar="[HOST:]PORT", help="Serve metrics for Prometheus there; by default only to this machine."
    ),
]
MaxRows = Annotated[
    int | None,
    typer.Option("--max-rows", min=1, metavar="N", help="End after the timestamp with which there are N rows."),
]
Timeout = Annotated[
    float | None, typer.Option("--timeout", min=0, metavar="SECONDS", help="Wait so long for more changes, then end.")
]
ResumeFile = Annotated[
    Path | None,
    typer.Option("--resume-file", metavar="FILE", help="Continue where the last read with this file ended."),
]
