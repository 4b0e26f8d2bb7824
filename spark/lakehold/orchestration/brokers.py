"""Asks brokers how many messages sources have to read; a broker that does not answer is not asked for its other sources."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING

from lakehold.errors import LakeholdError, UpstreamUnavailable

if TYPE_CHECKING:
    from lakehold.ingest.several_sources import Progressed
    from lakehold.lake import Lake
    from lakehold.model.lake_definitions import Definitions


class Brokers:
    """The brokers, or directories, of a lake's sources, and which of them have not answered.

    Args:
        lake: The lake.
        defined: Its definitions as they were read once: a person may drop a source meanwhile.
    """

    def __init__(self, lake: Lake, defined: Definitions) -> None:
        self._lake = lake
        self._defined = defined
        self._down: dict[Hashable, UpstreamUnavailable] = {}

    def pending(self, source: str) -> int | LakeholdError:
        """Return about how many messages an ingest of a source would read, or why that is not known."""
        known = self.down(source)
        if known is not None:
            return known
        try:
            return self._lake.pending(source)
        except UpstreamUnavailable as error:
            self._down[self.place_of(source)] = error
            return error
        except LakeholdError as error:
            return error

    def down(self, source: str) -> UpstreamUnavailable | None:
        """Return the error if the broker of a source has not answered."""
        return self._down.get(self.place_of(source))

    def place_of(self, source: str) -> Hashable:
        """Return a key for the broker or directory of a source."""
        of = self._defined.source(source)
        return of.connection, of.path


def ingest_groups(
    lake: Lake, defined: Definitions, groups: Sequence[Sequence[str]], turn_s: float
) -> Iterator[Progressed]:
    """Ingest groups of sources one after the other; those whose broker did not answer for an earlier one fail at once.

    Args:
        lake: The lake.
        defined: Its definitions, as for `Brokers`.
        groups: Sources that share reads are a group.
        turn_s: How many seconds a group begins batches.
    """
    from lakehold.ingest.several_sources import SourceFailed  # noqa: PLC0415 - Airflow imports this to read the DAGs

    brokers = Brokers(lake, defined)
    for group in groups:
        down = next(filter(None, map(brokers.down, group)), None)
        if down is not None:
            yield from (SourceFailed(source, down) for source in group)
            continue
        for report in lake.batches_together(group, turn_s=turn_s):
            yield report
            is_unavailable = isinstance(report, SourceFailed) and isinstance(report.error, UpstreamUnavailable)
            if is_unavailable and group is not groups[-1]:
                # If its database or Kafka Connect is what does not answer, other sources of the broker can be ingested.
                brokers.pending(report.source)
