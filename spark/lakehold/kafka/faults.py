"""Faults of partitions that stop a source."""

from __future__ import annotations

from lakehold.errors import UpstreamError
from lakehold.model.offsets import TopicPartition

LOAD_AGAIN = "drop the tables of this topic and create them again, so that they are loaded again"


def offsets_lost(tp: TopicPartition, position: int, earliest: int) -> UpstreamError:
    """Return the error of records that were deleted before they were read."""
    return UpstreamError(
        f'records of topic "{tp.topic}" partition {tp.partition} were deleted before they were read',
        code="offsets-lost",
        detail=f"The next offset to read is {position}, but the partition now begins at {earliest}: "
        f"offsets {position} to {earliest - 1} are gone. The topic's retention (retention.ms, retention.bytes) "
        "or a deletion removed them.",
        hint=f"Raise the topic's retention above the longest pause between runs; then {LOAD_AGAIN}.",
    )
