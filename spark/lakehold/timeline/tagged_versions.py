"""Versions that only lakehold's tags still show.

A snapshot log can lose its beginning: Iceberg drops all entries before a snapshot that another tool expires. Earlier metadata
files have these entries, but a table keeps only some (`write.metadata.previous-versions-max`). Tags stay as long as their hold.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType

from lakehold.iceberg.refs import FOREVER_MS
from lakehold.timeline.versions import Version, begins_empty

HOLD_TAG = "hold_"
"""With the name of a hold: the tag of the snapshot that the table showed at the time of the hold."""

VERSION_TAG = re.compile(r"mz_(\d+)")
"""The tag of the snapshot that the table showed from this timestamp onward."""

_UNKNOWN_SNAPSHOT = -1


def own_tags(table: Table) -> list[str]:
    """List the tags that lakehold put: tags of people may have similar names, but usually expire by age."""
    return [
        name
        for name, ref in table.metadata.refs.items()
        if ref.max_ref_age_ms == FOREVER_MS
        and ref.snapshot_ref_type is SnapshotRefType.TAG
        and (name.startswith(HOLD_TAG) or VERSION_TAG.fullmatch(name))
    ]


def with_tagged(known: tuple[Version, ...], table: Table, held_ms: Mapping[str, int]) -> tuple[Version, ...]:
    """Return `known` with the versions before it that lakehold's tags show.

    Where a version may be missing between two of them, an expired one stands for it: nobody may read there what the table showed
    before.

    Args:
        known: The versions that metadata files show, oldest first.
        table: The table as loaded from the catalog.
        held_ms: The times of the holds on the table, by the name of the hold.
    """
    if not known or begins_empty(table, known[0]):
        return known
    tagged = {time_ms: id_ for time_ms, id_ in _tagged(table, held_ms).items() if time_ms < known[0].mz_timestamp}
    earlier = [Version(time_ms, tagged[time_ms]) for time_ms in sorted(tagged)]
    found: list[Version] = []
    for before, after in pairwise((*earlier, known[0])):
        found.append(before)
        if not _follows(table, after, before) and before.mz_timestamp + 1 < after.mz_timestamp:
            found.append(Version(before.mz_timestamp + 1, _UNKNOWN_SNAPSHOT, remains=False))
    return (*found, *known)


def _tagged(table: Table, held_ms: Mapping[str, int]) -> dict[int, int]:
    """Return the snapshots with tags by the times at which the table showed them.

    A hold may have moved since its tag was put: it counts unless a version is known to be later than its snapshot, or its
    snapshot to be a later version. A tag with an earlier name of a hold counts, too.
    """
    tags = {name: table.metadata.refs[name].snapshot_id for name in own_tags(table)}
    versions = {int(match[1]): id_ for name, id_ in tags.items() if (match := VERSION_TAG.fullmatch(name))}
    renamed = _of_renamed(tags, held_ms)
    held: dict[int, int] = {}
    for hold, time_ms in held_ms.items():
        snapshot_id = tags.get(HOLD_TAG + hold, renamed)
        last_ms = max((version_ms for version_ms in versions if version_ms <= time_ms), default=None)
        is_later = any(id_ == snapshot_id and version_ms > time_ms for version_ms, id_ in versions.items())
        if snapshot_id is not None and not is_later and (last_ms is None or versions[last_ms] == snapshot_id):
            held[time_ms] = snapshot_id
    return held | versions


def _of_renamed(tags: Mapping[str, int], held_ms: Mapping[str, int]) -> int | None:
    """Return the snapshot of the only hold without a tag, if the tag of only one name without a hold is left."""
    wanted = {HOLD_TAG + hold for hold in held_ms}
    left = [snapshot_id for name, snapshot_id in tags.items() if name.startswith(HOLD_TAG) and name not in wanted]
    return left[0] if len(left) == 1 and len(wanted - tags.keys()) == 1 else None


def _follows(table: Table, after: Version, before: Version) -> bool:
    """Return whether the table showed no other snapshot between two versions."""
    snapshot = table.snapshot_by_id(after.snapshot_id)
    parent = snapshot.parent_snapshot_id if snapshot is not None else None
    return before.snapshot_id in (after.snapshot_id, parent)
