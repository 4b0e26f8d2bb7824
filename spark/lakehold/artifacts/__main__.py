"""`python -m lakehold.artifacts`: fetch sets before their use; renew a set's sums after its versions changed."""

from __future__ import annotations

from typing import Annotated

import typer

from lakehold.artifacts import cache
from lakehold.artifacts.sets import STACK
from lakehold.errors import LakeholdError

SetNames = Annotated[list[str], typer.Argument(help="Names of sets; 'stack' means all sets of the stack.")]

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


def _progress(line: str) -> None:
    typer.echo(line, err=True)


@app.command()
def fetch(sets: SetNames) -> None:
    """Fetch sets into the cache directory and write their directories to standard output."""
    for name in _expanded(sets):
        typer.echo(cache.directory(name, on_event=_progress))


@app.command()
def lock(sets: SetNames) -> None:
    """Write SHA256SUMS from what the sets' poms bring now (for maintainers, after changing a version)."""
    for name in _expanded(sets):
        typer.echo(cache.lock(name, on_event=_progress))


def _expanded(sets: list[str]) -> list[str]:
    return [name for given in sets for name in (STACK if given == "stack" else (given,))]


def main() -> None:
    """Run the command line; errors go to standard error and end with exit code 1."""
    try:
        app()
    except LakeholdError as error:
        typer.echo(f"error: {error}", err=True)
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
