"""Ingesting several sources in one process, so that those over the same topics read and decode once.

They take turns, a batch each. Sources that stand at the same offsets so read the same stretch of a topic one right after the
other, and the second takes what the first has decoded. One that is new, or was stopped, reads by itself until it stands where the
others do; these go on meanwhile with what arrives. Each has a lease, timestamps and errors of its own: one that fails keeps none
of the others from it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import dataclass

from lakehold.errors import LakeholdError
from lakehold.ingest.batch import BatchReport
from lakehold.ingest.run import Ingesting

Held = Callable[[str], AbstractContextManager[Ingesting]]
"""Holds a source by name until the context ends."""


@dataclass(frozen=True)
class SourceFailed:
    """A source that could not be ingested, or not to the end."""

    source: str
    error: LakeholdError


Progressed = BatchReport | SourceFailed
"""What is told of sources that are ingested together."""


def drain_together(sources: Sequence[str], held: Held) -> Generator[Progressed, None, None]:
    """Bring every table of `sources` to what their topics held at the call, one report a batch; sources are held until the end.

    Each ends with an empty batch as `Ingesting.drain` does, and reads on while another has not come to its end. The turn of one
    that waits out how far partitions may lag keeps the others for that time, in which what they would wait for grows old as well.
    """
    turns: list[_Turns] = []
    with ExitStack() as stack:
        for source in sources:
            try:
                turns.append(stack.enter_context(closing(_Turns(source, held))))
            except LakeholdError as error:
                yield SourceFailed(source, error)
        while not all(turn.is_done for turn in turns):
            for turn in tuple(turns):
                try:
                    yield from turn.take()
                except LakeholdError as error:
                    turns.remove(turn)
                    # That it could not be let go of says less than why it should be.
                    with suppress(LakeholdError):
                        turn.close()
                    yield SourceFailed(turn.source, error)
        for turn in turns:
            try:
                turn.close()
            except LakeholdError as error:
                yield SourceFailed(turn.source, error)


class _Turns:
    """One source's turns."""

    def __init__(self, source: str, held: Held) -> None:
        self.source = source
        self.is_done = False
        self._stack = ExitStack()
        self._ingesting = self._stack.enter_context(held(source))
        self._reports = self._stack.enter_context(closing(self._ingesting.drain()))

    def take(self) -> Iterator[BatchReport]:
        """Run its next batch, or after its end what arrived for its tables meanwhile."""
        if self.is_done:
            yield from self._ingesting.go_on()
        else:
            try:
                yield next(self._reports)
            except StopIteration:
                self.is_done = True

    def close(self) -> None:
        """Let go of the source."""
        self._stack.close()
