"""How much a table that catches up reads at once: the others of its source wait for each of its batches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lakehold.ingest.read.reader import Limits

CATCH_UP_S = 30
"""How long an ingest that comes again goes on with tables that are behind: other sources and newer tables wait so long."""
_BATCH_MS = 4_000
"""What a batch may take, more or less. About as long is what it costs whatever it reads, and the others' batch in between."""
_LEAST_RECORDS = 50_000
"""At first, as it is not known how fast they are read; and at least, so that a backfill ends where every batch is slow."""


@dataclass
class Pace:
    """The limits of the next batch of a table that catches up, by how long the last one took.

    Args:
        most: They never exceed these.
    """

    most: Limits
    limits: Limits = field(init=False)

    def __post_init__(self) -> None:
        self.limits = self._of(_LEAST_RECORDS)

    def took(self, records: int, elapsed_ms: int) -> None:
        """Learn from a batch how much the next one may read: from its planning to its commit."""
        if records and elapsed_ms:
            self.limits = self._of(max(records * _BATCH_MS // elapsed_ms, _LEAST_RECORDS))

    def _of(self, records: int) -> Limits:
        return replace(self.most, max_records=min(records, self.most.max_records))
