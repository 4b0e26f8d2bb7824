"""Sources ingested together, of which one fails at an unusual moment: the others go on, and its lease is released."""

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
        failing: Failing actions, as `(source, action)`.
        released: Sources whose leases were released.
    """

    failing: set[tuple[str, str]]
    released: list[str] = field(default_factory=list)

    @contextmanager
    def leased(self, source: str) -> Iterator[Any]:
        try:
            yield _One(self, source)
        finally:
            self.released.append(source)
            self.may_fail(source, "close")

    def may_fail(self, source: str, action: str) -> None:
        if (source, action) in self.failing:
            raise UpstreamUnavailable(f"{source} fails to {action}")

    def drained(self) -> list[Any]:
        """Drain both sources, and return what each reports or the message of its error."""
        found = drain_together(["first", "second"], self.leased)
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


def test_a_failed_source_whose_lease_cannot_be_released_is_reported_with_its_first_error() -> None:
    sources = Sources({("first", "drain"), ("first", "close")})
    assert sources.drained() == ["first: first fails to drain", "second"]
    assert sources.released == ["first", "second"]


def test_a_source_whose_lease_cannot_be_released_at_its_end_is_reported_beside_the_others() -> None:
    sources = Sources({("first", "close")})
    assert sources.drained() == ["first", "second", "first: first fails to close"]
    assert sources.released == ["first", "second"]
