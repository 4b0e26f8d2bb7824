"""The batch size of a table that catches up: the others of its source wait for each of its batches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lakehold.ingest.read.reader import Limits

_BATCH_MS = 4_000
"""Target duration of a batch. Its fixed cost, with the others' batch in between, takes about as long."""
LEAST_RECORDS = 50_000
"""Records of the first batch, whose speed is unknown; and of any batch at least, so that a slow backfill ends, too."""


@dataclass
class BatchSize:
    """The limits of the next batch of a table that catches up, derived from the duration of the last one.

    Args:
        most: The upper bounds of these limits.

    Attributes:
        limits: The limits of the next batch.
    """

    most: Limits
    limits: Limits = field(init=False)

    def __post_init__(self) -> None:
        self.limits = self._of(LEAST_RECORDS)

    def took(self, records: int, elapsed_ms: int) -> None:
        """Set the limits of the next batch from the records and the duration, planning to commit, of the last one."""
        if records and elapsed_ms:
            self.limits = self._of(max(records * _BATCH_MS // elapsed_ms, LEAST_RECORDS))

    def _of(self, records: int) -> Limits:
        return replace(self.most, max_records=min(records, self.most.max_records))
