"""How much each partition contributes to a bounded batch."""

from __future__ import annotations

from collections.abc import Mapping

from lakehold.ingest.read.reader import Limits
from lakehold.model.offsets import TopicPartition


def record_budget(limits: Limits, record_bytes: float) -> int:
    """How many records of `record_bytes` on average both limits allow, at least one."""
    return max(1, min(limits.max_records, int(limits.max_bytes / max(record_bytes, 1.0))))


def fair_shares(backlogs: Mapping[TopicPartition, int], budget: int) -> dict[TopicPartition, int]:
    """Split `budget` over partitions: small backlogs whole, large ones equally (max-min fairness).

    Every partition with a backlog gets at least one, whatever the budget: a share of none would let a partition wait
    for ever behind busier ones.

    Returns:
        For each partition with a backlog its share, never more than the backlog.
    """
    shares: dict[TopicPartition, int] = {}
    waiting = sorted(((backlog, tp) for tp, backlog in backlogs.items() if backlog > 0))
    left = budget
    for done, (backlog, tp) in enumerate(waiting):
        equal_share = left // (len(waiting) - done)
        shares[tp] = max(1, min(backlog, equal_share))
        left = max(0, left - shares[tp])
    return shares
