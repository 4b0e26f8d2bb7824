"""Marks: what a Debezium table remembers between batches, kept in its snapshots' summaries and beside its reader.

`passed` is the high-water mark of `envelopes.md`: per partition the highest position applied; what lies at or below it was
applied before. `snapshot` says which of the connector's snapshots the table shows and whether it is whole. `latest_ms` tells a
change that is sent again from one of a log that has gone back, which is newer than all that was seen. `repeated` names the last
snapshot of this table alone that was taken again (`lakehold.ingest.write.repeats`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Position = tuple[int, int, int, int]
"""See `lakehold.ingest.envelope.position`; compared from the left."""


@dataclass(frozen=True)
class SnapshotProgress:
    """One snapshot of a connector, as far as it was read.

    Args:
        position: Where it stands upstream; all its rows share it.
        end_seen: Its last row was read.
        complete: All of it was read.
        replaces_through: Rows whose last change has at most this Iceberg sequence number are not of this snapshot: those
            it does not bring are gone once it is complete. None when there were none before it.
        until: By partition an offset below which all of its rows lie, as far as that is known; of a complete one it is not kept.
    """

    position: Position
    end_seen: bool = False
    complete: bool = False
    replaces_through: int | None = None
    until: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Marks:
    """The high-water marks of a Debezium table."""

    passed: Mapping[int, Position] = field(default_factory=dict)
    snapshot: SnapshotProgress | None = None
    latest_ms: int | None = None
    """The latest commit upstream of any change, epoch milliseconds; None where no change told."""
    repeated: str | None = None
    """The signal that asked for the last repeated snapshot of which all is in the table; None: there was none."""

    @property
    def is_whole(self) -> bool:
        """Return whether no snapshot is half read."""
        return self.snapshot is None or self.snapshot.complete

    def to_json(self) -> str:
        """Return compact text for a snapshot summary."""
        snapshot = self.snapshot
        content: dict[str, Any] = {"passed": {str(p): list(at) for p, at in sorted(self.passed.items())}}
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
    def from_json(cls, text: str | None) -> Marks:
        """Return the inverse of `to_json`; no text is no marks."""
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
        passed = {int(p): _position(at) for p, at in content["passed"].items()}
        return cls(passed, snapshot, content.get("latest_ms"), content.get("repeated"))


NO_MARKS = Marks()
"""Of a table that has passed nothing, or whose changes have no positions."""


def _position(numbers: list[int]) -> Position:
    a, b, c, d = numbers
    return (a, b, c, d)
