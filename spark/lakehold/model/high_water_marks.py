"""High-water marks of a Debezium table, kept between batches in its snapshots' summaries and with its reader.

`positions` has the high-water marks (`docs/reference/envelopes.md`, "High-water marks of DEBEZIUM"): per partition the highest
position applied. Changes at or below it were applied before. `snapshot` names the connector snapshot that the table shows, and
whether it is complete. `latest_ms` distinguishes a change that is sent again from a log that has gone back: the changes of the
latter are newer than all before. `repeated` names the last snapshot of this table alone that was repeated
(`lakehold.ingest.write.repeats`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Position = tuple[int, int, int, int]
"""A log position, see `lakehold.ingest.envelope.position`; compared from the left."""


@dataclass(frozen=True)
class SnapshotProgress:
    """The progress of reading one connector snapshot.

    Args:
        position: Its log position, which all its rows share.
        end_seen: Whether all of it is known to be sent: its last row or a later change was read, or upstream reported it.
        complete: Whether all of it was read.
        replaces_through: Rows whose last change has at most this Iceberg sequence number are older than this snapshot. Once it is
            complete, those that it does not contain are deleted. None if the table had no rows before it.
        until: By partition an offset below which all of its rows lie, if known; not kept for a complete snapshot.
    """

    position: Position
    end_seen: bool = False
    complete: bool = False
    replaces_through: int | None = None
    until: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class HighWaterMarks:
    """The high-water marks of a Debezium table."""

    positions: Mapping[int, Position] = field(default_factory=dict)
    snapshot: SnapshotProgress | None = None
    latest_ms: int | None = None
    """The latest upstream commit time of any change, epoch milliseconds; None if no change has one."""
    repeated: str | None = None
    """The signal that asked for the last repeated snapshot that is complete in the table; None: there was none."""

    @property
    def is_whole(self) -> bool:
        """Return whether no snapshot is partly read."""
        return self.snapshot is None or self.snapshot.complete

    @property
    def shows_snapshot(self) -> bool:
        """Return whether a connector snapshot was read completely."""
        return self.snapshot is not None and self.snapshot.complete

    def to_json(self) -> str:
        """Convert them to compact text for a snapshot summary."""
        snapshot = self.snapshot
        content: dict[str, Any] = {"passed": {str(p): list(at) for p, at in sorted(self.positions.items())}}
        if snapshot is not None:
            content["snapshot"] = {
                "position": list(snapshot.position),
                "end_seen": snapshot.end_seen,
                "complete": snapshot.complete,
                "replaces_through": snapshot.replaces_through,
            }
            if snapshot.until:
                content["snapshot"]["until"] = {str(p): at for p, at in sorted(snapshot.until.items())}
        if self.latest_ms is not None:
            content["latest_ms"] = self.latest_ms
        if self.repeated is not None:
            content["repeated"] = self.repeated
        return json.dumps(content, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | None) -> HighWaterMarks:
        """Read the text of `to_json`; empty text means no high-water marks."""
        if not text:
            return cls()
        content = json.loads(text)
        kept = content.get("snapshot")
        snapshot = None
        if kept is not None:
            snapshot = SnapshotProgress(
                _position(kept["position"]),
                kept["end_seen"],
                kept["complete"],
                kept["replaces_through"],
                {int(p): at for p, at in kept.get("until", {}).items()},
            )
        positions = {int(p): _position(at) for p, at in content["passed"].items()}
        return cls(positions, snapshot, content.get("latest_ms"), content.get("repeated"))


NO_HIGH_WATER_MARKS = HighWaterMarks()
"""The high-water marks of a table that has applied nothing, or whose changes have no positions."""


def _position(numbers: list[int]) -> Position:
    a, b, c, d = numbers
    return (a, b, c, d)
