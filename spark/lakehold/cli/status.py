"""`lakehold status`: every table in a line, or the page that draws them."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from lakehold.cli.output import Output
from lakehold.errors import LakeholdError
from lakehold.lake import Lake
from lakehold.overview import gather, render
from lakehold.status import status_of


def run_status(lake: Lake, html: str | None, output: Output, stdout: TextIO) -> None:
    """Write how every table is to `output`; with `html` a page instead, to that file or with `-` to `stdout`."""
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
