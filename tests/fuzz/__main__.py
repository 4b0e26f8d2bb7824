"""`make fuzz` tries random bad input for a time, prints what became of it, and fails if an answer was wrong."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from enum import StrEnum
from random import Random, SystemRandom
from typing import Annotated

import typer
from rich.console import Console

from tests.fuzz import files, messages, names, statements, transactions
from tests.fuzz.faults import Tried

_SHOWN = 20


class Kind(StrEnum):
    """A kind of input."""

    STATEMENTS = "statements"
    NAMES = "names"
    FILES = "files"
    MESSAGES = "messages"
    TRANSACTIONS = "transactions"


_TRIED: dict[Kind, Callable[[Random], Iterator[Tried]]] = {
    Kind.STATEMENTS: statements.tried,
    Kind.NAMES: names.tried,
    Kind.FILES: files.tried,
    Kind.MESSAGES: messages.tried,
    Kind.TRANSACTIONS: transactions.tried,
}


def main(
    seconds: Annotated[int, typer.Option(help="How long to try, for each kind.")] = 60,
    seed: Annotated[int | None, typer.Option(help="Repeat the inputs of a run that printed this seed.")] = None,
    only: Annotated[list[Kind] | None, typer.Option(help="What to try, instead of everything.")] = None,
) -> None:
    """Try random bad input; exit with 1 if an answer was wrong."""
    screen = Console(soft_wrap=True, highlight=False)
    seed = SystemRandom().randrange(10**6) if seed is None else seed
    screen.print(f"seed {seed}")
    wrong = 0
    for kind in only or list(Kind):
        inputs, counts = 0, Counter[str]()
        until = time.monotonic() + seconds
        for tried in _TRIED[kind](Random(seed)):
            inputs += tried.inputs
            counts.update(tried.counts)
            for fault in tried.faults:
                wrong += 1
                if wrong <= _SHOWN:
                    screen.print(f"{kind}: {fault.given!r}\n{fault.found}", markup=False)
            if time.monotonic() > until:
                break
        screen.print(f"{kind}: {inputs:,} inputs; " + ", ".join(f"{n:,} {name}" for name, n in counts.most_common()))
    screen.print(f"wrong answers: {wrong}")
    raise typer.Exit(1 if wrong else 0)


if __name__ == "__main__":
    typer.run(main)
