"""The result of a round: how much was tried, and the inputs with wrong answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Fault:
    """One input with a wrong answer.

    Attributes:
        given: The input, as text.
        found: What was wrong: a traceback, or what was expected and found.
    """

    given: str
    found: str


@dataclass(frozen=True)
class Tried:
    """One round.

    Attributes:
        inputs: How many inputs it had.
        faults: Those with a wrong answer.
        counts: What became of them, by name, for the summary.
    """

    inputs: int
    faults: tuple[Fault, ...]
    counts: Mapping[str, int] = field(default_factory=dict)
