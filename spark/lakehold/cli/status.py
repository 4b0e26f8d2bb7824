"""`lakehold status`: a row for each table, or an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from lakehold.cli.command_output import Output
from lakehold.errors import LakeholdError
from lakehold.lake import Lake
from lakehold.overview import gather, render
from lakehold.status import status_of


def run_status(lake: Lake, html: str | None, output: Output, stdout: TextIO) -> None:
    """Write the status of each table to `output`; with `html`, write a page to that file (`-`: to `stdout`) instead."""
    if html is None:
        output.result(status_of(lake))
        return
    page = render(gather(lake))
    if html == "-":
        stdout.write(page)
        return
    try:
        Path(html).parent.mkdir(parents=True, exist_ok=True)
        Path(html).write_text(page, encoding="utf-8")
    except OSError as error:
        raise LakeholdError(f'file "{html}" cannot be written', code="usage", detail=f"{error.strerror}.") from error
    output.notice(f"the page is in {html}")
