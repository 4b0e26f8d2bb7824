"""Describes a transaction, or a re-snapshot, that stays incomplete, while all later changes of its source wait.

`boundary.py` finds it. `source_ingest.py` keeps the description with the reader for people to see, and decides when it has waited
so long that the ingest ends with an error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from lakehold.errors import TransactionIncomplete
from lakehold.model.log_positions import transaction_of
from lakehold.model.readers import Waiting
from lakehold.times import iso

_SHOWN_OFFSETS = 3


@dataclass(frozen=True)
class Incomplete:
    """A transaction, or a re-snapshot, that is incomplete and blocks the records after it.

    Args:
        transaction: Its id, as its END or its events write it; empty for a re-snapshot.
        arrived: How many of its events or rows have arrived.
        missing: For each topic that lacks events, how many have arrived and how many its END counts.
        repeats: The topic that repeats from an earlier point, and has not yet come as far as before; empty: none does.
        is_followed: Whether the transaction topic shows a later transaction, to which new records may belong.
        unreadable: Offsets of the transaction topic after its BEGIN that cannot be read, if its END has not arrived.
        came: A number that grows while more of it arrives, even if not all records were read (`whole_transactions.py` sets it).
    """

    transaction: str
    arrived: int
    missing: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    repeats: str = ""
    is_followed: bool = False
    unreadable: Sequence[int] = ()
    came: int = 0


def waiting_for(
    incomplete: Incomplete, topics: Collection[str], tables: Mapping[str, str], before: Waiting | None, now_ms: int
) -> Waiting:
    """Return the state of waiting that is kept with the reader: it waits since more of the transaction last arrived.

    Args:
        incomplete: The transaction that blocks its batches.
        topics: Topics with changes that wait.
        tables: The topic of each table, by full name.
        before: The state that was kept before; None: the source did not wait.
        now_ms: The time, epoch milliseconds.
    """
    concerned = {*topics, *incomplete.missing, incomplete.repeats}
    is_same = before is not None and transaction_of(before.transaction) == transaction_of(incomplete.transaction)
    since_ms, came = (before.since_ms, before.came) if before is not None and is_same else (now_ms, -1)
    return Waiting(
        transaction=incomplete.transaction,
        arrived=incomplete.arrived,
        since_ms=since_ms if incomplete.came <= came else now_ms,
        tables=tuple(sorted(table for table, topic in tables.items() if topic in concerned)),
        detail=_detail(incomplete),
        came=max(incomplete.came, came),
    )


def incomplete_error(source: str, waiting: Waiting) -> TransactionIncomplete:
    """Return the error with which an ingest ends after it has waited too long."""
    return TransactionIncomplete(
        f'{waiting.what} of source "{source}" is incomplete',
        detail=f"{waiting.detail} Nothing more of it has arrived since {iso(waiting.since_ms)} UTC, for longer than the setting "
        "transaction_timeout_ms. The tables contain everything that was committed before it. It and all later changes of "
        f"{', '.join(waiting.tables)} wait.",
        hint="Check that the connector runs, and restart it: when the rest arrives, the next ingest continues. If the rest never "
        "arrives, load the tables again. For a captured database, DROP SOURCE … CASCADE and creating it again does that. For "
        "another source drop the tables, delete their topics and the transaction topic, have the connector snapshot its tables "
        "again, and create the tables again.",
    )


def _detail(incomplete: Incomplete) -> str:
    if not incomplete.transaction:
        return f"{incomplete.arrived:,} of its rows have arrived, and nothing shows yet that these are all."
    if incomplete.repeats:
        return f'Topic "{incomplete.repeats}" repeats changes from this transaction on, and has not yet reached its earlier end.'
    if not incomplete.missing:
        arrived = f"Its END has not arrived; {incomplete.arrived:,} of its changes have."
        return f"{arrived}{_unreadable(incomplete.unreadable)}"
    counts = (
        f'{arrived:,} of {count:,} changes of topic "{topic}"'
        for topic, (arrived, count) in sorted(incomplete.missing.items())
    )
    return f"Its END counts more changes than have arrived: {', '.join(counts)}."


def _unreadable(offsets: Sequence[int]) -> str:
    shown = [*map(str, offsets[:_SHOWN_OFFSETS]), *(["…"] if len(offsets) > _SHOWN_OFFSETS else [])]
    return (
        f" No message can be read at offset {', '.join(shown)} of the transaction topic: that may be its END."
        if shown
        else ""
    )
