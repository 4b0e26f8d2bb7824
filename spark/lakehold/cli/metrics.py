"""The option `--metrics` of commands that run until Ctrl-C."""
# ruff: noqa: PLC0415

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from lakehold.cli.command_output import Output

if TYPE_CHECKING:
    from lakehold.lake import Lake


@contextmanager
def metrics_of(lake: Lake, address: str | None, output: Output) -> Iterator[None]:
    """Serve the metrics of a lake and of this process until the context ends, if there is an address."""
    if address is None:
        yield
        return
    from lakehold.metrics.endpoint import Address, scraped

    with scraped(lake.settings, Address.parse(address)) as url:
        output.notice(f"metrics are at {url}")
        yield


def refuse_without_follow(address: str | None, *, follow: bool) -> None:
    """Refuse metrics of a command that ends by itself: nobody would scrape it in time."""
    if address is not None and not follow:
        raise typer.BadParameter("needs --follow", param_hint="--metrics")
