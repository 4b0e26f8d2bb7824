"""`make soak` does random commands on lakes for a time, prints what became of them, and fails if one differs from its model."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from pathlib import Path
from random import SystemRandom
from typing import Annotated

import typer
from rich.console import Console

from lakehold.lake import Lake, connect
from tests.whole.running import run
from tests.whole.world import SETTINGS


def main(
    minutes: Annotated[float, typer.Option(help="How long to begin new runs.")] = 60,
    commands: Annotated[int, typer.Option(help="How many commands a run has.")] = 60,
    seed: Annotated[int | None, typer.Option(help="Repeat only the run of a seed that was printed.")] = None,
) -> None:
    """Do random commands on lakes, each compared with its model; exit with 1 at the first difference."""
    screen = Console(soft_wrap=True, highlight=False)
    until = time.monotonic() + minutes * 60
    counts: Counter[str] = Counter()
    while True:
        this = SystemRandom().randrange(10**6) if seed is None else seed
        screen.print(f"seed {this}")
        with tempfile.TemporaryDirectory(prefix="lakehold-whole-") as name:

            def open_lake(name: str = name, this: int = this) -> Lake:
                return connect(str(Path(name) / "lake"), catalog_name=f"whole{this}", **SETTINGS)

            counts += run(open_lake, Path(name) / "topics", this, commands) + Counter(lakes=1)
        screen.print(", ".join(f"{count:,} {what}" for what, count in sorted(counts.items())))
        if seed is not None or time.monotonic() > until:
            break


if __name__ == "__main__":
    typer.run(main)
