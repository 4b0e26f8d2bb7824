"""One SUBSCRIBE on a lake: reads its first window, then the windows that follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lakehold.errors import StatementBounds
from lakehold.state.holds import Holds
from lakehold.subscribe.output_batches import OutputChunk
from lakehold.subscribe.output_shape import Output
from lakehold.subscribe.relation import Relation, TimelinesByName
from lakehold.subscribe.statement import Subscribe
from lakehold.timeline.timelines import Timelines, check_readable, common_window, last_frontier, together
from lakehold.times import iso


@dataclass(frozen=True)
class Window:
    """The timestamps to read: from `as_of_ms` (inclusive) to `until_ms` (exclusive)."""

    as_of_ms: int
    until_ms: int


@dataclass(frozen=True)
class Subscription:
    """A SUBSCRIBE together with the tables that it reads.

    Args:
        statement: The statement.
        tables: Full names of the tables that it reads.
        timelines: Computes the tables' timelines.
        relation: The rows to read.
        output: Shapes the output.
    """

    statement: Subscribe
    tables: tuple[str, ...]
    timelines: Timelines
    relation: Relation
    output: Output

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the output's columns."""
        return self.output.columns

    def timelines_of(self, window: Window) -> TimelinesByName:
        """Load the timelines of the tables, reaching back to the window's beginning."""
        found = self.timelines.of(self.tables)
        return together({name: self.timelines.reaching(timeline, window.as_of_ms) for name, timeline in found.items()})

    def chunks(self, timelines: TimelinesByName, window: Window) -> Iterator[OutputChunk]:
        """Read the output of the first window: with SNAPSHOT all rows at its beginning, then the changes after that."""
        as_of_ms, until_ms = window.as_of_ms, window.until_ms
        if until_ms <= as_of_ms:
            return
        yield from self.output.progressed(as_of_ms, as_of_ms, 0 if self.statement.snapshot else as_of_ms + 1)
        found = 0
        if self.statement.snapshot:
            for chunk in self.output.of(self.relation.rows(timelines, as_of_ms, self.output.sorting)):
                found += 1
                yield chunk
            if not found:
                yield self.output.empty_batch(as_of_ms)
        for chunk in self.changes(timelines, as_of_ms, until_ms):
            found += 1
            yield chunk
        complete_ms = until_ms if until_ms != self.statement.up_to_ms else until_ms - 1
        complete_ms = last_frontier(timelines.values(), complete_ms)
        if not found and complete_ms > as_of_ms:
            yield from self.output.progressed(as_of_ms, complete_ms)

    def changes(
        self, timelines: TimelinesByName, after_exclusive_ms: int, until_exclusive_ms: int
    ) -> Iterator[OutputChunk]:
        """Read the output for the changes after `after_exclusive_ms` and before `until_exclusive_ms`.

        A window after the first one has nothing else. The changes of expired snapshots come with the next one that remains.
        """
        timelines = {name: timeline.remaining_after(after_exclusive_ms) for name, timeline in timelines.items()}
        diffs = self.relation.changes(timelines, after_exclusive_ms, until_exclusive_ms, self.output.sorting)
        yield from self.output.of(diffs)


def window(statement: Subscribe, timelines: TimelinesByName, holds: Callable[[], Holds]) -> Window:
    """Compute the first window: from AS OF to UP TO, or to the end of what can be read now.

    `holds` is only called to describe an error.

    Raises:
        StatementBounds: UP TO is before AS OF.
        NotReadable: Some table is not readable at AS OF.
    """
    _, upper_ms = common_window(list(timelines.values()))
    as_of_ms = statement.as_of.resolve(list(timelines.values()))
    if statement.up_to_ms is not None:
        if statement.up_to_ms < as_of_ms:
            raise StatementBounds(
                f"UP TO {statement.up_to_ms} is before AS OF {as_of_ms}",
                detail=f"{iso(statement.up_to_ms)} UTC is before {iso(as_of_ms)} UTC.",
                hint="UP TO is exclusive: it has to be later than AS OF.",
            )
        upper_ms = min(upper_ms, statement.up_to_ms)
    if statement.up_to_ms != as_of_ms:
        check_readable(list(timelines.values()), as_of_ms, holds)
    return Window(as_of_ms, upper_ms)
