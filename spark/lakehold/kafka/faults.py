"""Faults of partitions that stop a source, and how a person loads tables again whose topic lacks messages or has bad ones."""

from __future__ import annotations

from lakehold.errors import UpstreamError
from lakehold.model.offsets import TopicPartition

LOAD_AGAIN = (
    "drop the tables of this topic and create them again. They get the rows that the topic has: if a connector that lakehold "
    "does not manage writes it, first have the connector snapshot them again"
)
"""Advice for tables whose topic lacks messages, as the rest of a sentence."""

STAYS_IN_TOPIC = (
    "After a change upstream, messages that are in the topic already stay as they are: drop the table and create it again. If a "
    "connector that lakehold does not manage writes the topic, delete the topic in between, and have the connector snapshot the "
    "table again."
)
"""Advice for a table that cannot take a message of its topic, after the cause was removed upstream."""


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
