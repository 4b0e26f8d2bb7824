"""Timelines for a reader who takes the changes of an interval as one: nothing in between is shown. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lakehold.timeline.table_timeline import Timeline


def net_timelines(
    timelines: Mapping[str, Timeline], after_exclusive_ms: int, until_exclusive_ms: int
) -> dict[str, Timeline]:
    """Return timelines that show all changes of an interval together, at the timestamp of its last change.

    So that tables which changed at different times are joined as they are at the end, all of them change at that timestamp.
    """
    changes = {name: line.between(after_exclusive_ms, until_exclusive_ms) for name, line in timelines.items()}
    last_ms = max((versions[-1].mz_timestamp for versions in changes.values() if versions), default=None)
    found = dict(timelines)
    for name, versions in changes.items():
        if versions and last_ms is not None:
            line = timelines[name]
            before = (version for version in line.shown if version.mz_timestamp <= after_exclusive_ms)
            after = (version for version in line.shown if version.mz_timestamp >= until_exclusive_ms)
            found[name] = replace(line, versions=(*before, replace(versions[-1], mz_timestamp=last_ms), *after))
    return found
