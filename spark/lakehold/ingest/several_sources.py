"""Ingests several sources in one process, so that sources over the same topics read and decode them once.

The sources take turns, a batch each. Sources at the same offsets read the same range of a topic one right after the other,
and the second one takes what the first one has decoded. A source that is new, or was stopped, reads by itself until it
reaches the position of the others, which continue meanwhile. Each source has a lease, timestamps and errors of its own: one
that fails does not stop the others.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import dataclass

from lakehold.errors import LakeholdError
from lakehold.ingest.batch_report import BatchReport
from lakehold.ingest.metrics import count_failures
from lakehold.ingest.source_ingest import Ingesting

Leased = Callable[[str], AbstractContextManager[Ingesting]]
"""Holds the lease of a source, by name, until the context ends."""


@dataclass(frozen=True)
class SourceFailed:
    """A source that could not be ingested, or not completely."""

    source: str
    error: LakeholdError


Progressed = BatchReport | SourceFailed
"""A report about one of the sources that are ingested together."""


def drain_together(sources: Sequence[str], leased: Leased) -> Generator[Progressed, None, None]:
    """Apply everything in the topics of `sources` at the call, one report a batch; leases are held until the end.

    Each source ends with an empty batch as `Ingesting.drain` does, and continues with new records while another has not
    ended. While one source waits in its turn for lagging partitions, the others wait, too; that shortens their own waits.
    """
    turns: list[_Turns] = []
    with ExitStack() as stack:
        for source in sources:
            try:
                turns.append(stack.enter_context(closing(_Turns(source, leased))))
            except LakeholdError as error:
                yield _failed(source, error)
        while not all(turn.is_done for turn in turns):
            for turn in tuple(turns):
                try:
                    yield from turn.take()
                except LakeholdError as error:
                    turns.remove(turn)
                    # The first error matters more than one from releasing the source.
                    with suppress(LakeholdError):
                        turn.close()
                    yield _failed(turn.source, error)
        for turn in turns:
            try:
                turn.close()
            except LakeholdError as error:
                yield _failed(turn.source, error)


def _failed(source: str, error: LakeholdError) -> SourceFailed:
    count_failures(source, [error])
    return SourceFailed(source, error)


class _Turns:
    """The turns of one source."""

    def __init__(self, source: str, leased: Leased) -> None:
        self.source = source
        self.is_done = False
        self._stack = ExitStack()
        self._ingesting = self._stack.enter_context(leased(source))
        self._reports = self._stack.enter_context(closing(self._ingesting.drain()))

    def take(self) -> Iterator[BatchReport]:
        """Run its next batch; after its end, read what arrived for its tables meanwhile."""
        if self.is_done:
            yield from self._ingesting.go_on()
        else:
            try:
                yield next(self._reports)
            except StopIteration:
                self.is_done = True

    def close(self) -> None:
        """Release the source."""
        self._stack.close()
