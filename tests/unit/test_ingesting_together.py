"""Sources that are ingested together, of which one fails in an unusual place: the others go on, and it is let go of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lakehold.errors import UpstreamUnavailable
from lakehold.ingest.several_sources import SourceFailed, drain_together


@dataclass
class Sources:
    """Sources with one batch each.

    Attributes:
        failing: What fails, as `(source, what)`.
        let_go: Those that are not held any more.
    """

    failing: set[tuple[str, str]]
    let_go: list[str] = field(default_factory=list)

    @contextmanager
    def held(self, source: str) -> Iterator[Any]:
        try:
            yield _One(self, source)
        finally:
            self.let_go.append(source)
            self.may_fail(source, "close")

    def may_fail(self, source: str, what: str) -> None:
        if (source, what) in self.failing:
            raise UpstreamUnavailable(f"{source} fails to {what}")

    def drained(self) -> list[Any]:
        """What each says, or fails with."""
        found = drain_together(["first", "second"], self.held)
        return [f"{at.source}: {at.error.message}" if isinstance(at, SourceFailed) else at for at in found]


@dataclass
class _One:
    sources: Sources
    source: str

    def drain(self) -> Iterator[str]:
        self.sources.may_fail(self.source, "drain")
        yield self.source

    def go_on(self) -> Iterator[str]:
        yield from ()


def test_one_that_cannot_be_let_go_of_is_told_with_why_it_should_be() -> None:
    sources = Sources({("first", "drain"), ("first", "close")})
    assert sources.drained() == ["first: first fails to drain", "second"]
    assert sources.let_go == ["first", "second"]


def test_one_that_cannot_be_let_go_of_at_its_end_is_told_beside_the_others() -> None:
    sources = Sources({("first", "close")})
    assert sources.drained() == ["first", "second", "first: first fails to close"]
    assert sources.let_go == ["first", "second"]
