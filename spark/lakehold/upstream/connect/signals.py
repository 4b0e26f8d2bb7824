"""Builds the signals that lakehold sends through a connector's topic of signals, from which the journal reads them. Pure.

Some request the snapshot of one table. The others only record something for lakehold: the connector just logs them.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from lakehold.model.log_positions import LogPosition
from lakehold.upstream.found.server_log import FoundLog
from lakehold.upstream.found.shapes import Shape

_WORD = re.compile(r"\w+")
SNAPSHOT_REQUEST = "execute-snapshot"
RECORD = "log"
OF_ITS_OWN = "/"
"""Separates the object id in a signal's id from the part that makes the id unique."""
ALTERED = "altered_until"
"""The part of a signal, which the connector does not read, with the end of the schema history when lakehold sent the signal."""
_PORTION_LENGTH = 100_000
"""The length of a signal with the shapes of several tables. A table of PostgreSQL takes about 90 bytes a column or partition."""


def new_signal_id(object_id: str) -> str:
    """Make the id of a signal about a table, which no other signal has."""
    return f"{object_id}{OF_ITS_OWN}{uuid.uuid4().hex}"


def requested_snapshot(
    signal_id: str,
    upstream: str,
    replaces_through: Mapping[str, int] | None = None,
    *,
    is_certain: bool = False,
    altered_until: int = 0,
) -> str:
    """Build the signal that requests a snapshot of one table.

    Args:
        signal_id: Id of the signal (`new_signal_id`).
        upstream: The table in the database.
        replaces_through: For a repeated snapshot, by object id of each table of the lake; see `FoundRepeat`.
        is_certain: See `FoundRepeat`.
        altered_until: See `FoundSnapshot`.
    """
    data: dict[str, Any] = {"type": "incremental", "data-collections": [_collection(upstream)]}
    data |= {ALTERED: altered_until} if altered_until else {}
    if replaces_through is not None:
        # The connector does not read it.
        data["repeat"] = {"replaces_through": replaces_through, "is_certain": is_certain}
    return json.dumps({"id": signal_id, "type": SNAPSHOT_REQUEST, "data": data})


def _collection(upstream: str) -> str:
    """Return the table as a signal names it: in double quotes unless both parts are plain words."""
    parts = upstream.split(".", 1)
    return upstream if all(_WORD.fullmatch(part) for part in parts) else ".".join(f'"{part}"' for part in parts)


def recorded_first_snapshot(object_id: str, upstream: str, notified_from: int, altered_until: int = 0) -> str:
    """Build a signal that records, for lakehold: the table is in the connector's next first snapshot.

    Args:
        object_id: Object id of the table.
        upstream: The table in the database.
        notified_from: End offset of the notification topic now: notifications before it are not about that snapshot.
        altered_until: See `FoundSnapshot`.
    """
    data: dict[str, Any] = {"message": f"{upstream} is in the first snapshot", "said_until": notified_from}
    data |= {ALTERED: altered_until} if altered_until else {}
    return json.dumps({"id": object_id, "type": RECORD, "data": data})


def recorded_missed(object_id: str, upstream: str, altered_until: int = 0) -> str:
    """Build a signal that records, for lakehold: changes of the table were missed, and it cannot be snapshotted alone."""
    data: dict[str, Any] = {"message": f"changes of {upstream} were missed", "missed": True}
    data |= {ALTERED: altered_until} if altered_until else {}
    return json.dumps({"id": object_id, "type": RECORD, "data": data})


def recorded_members(source_id: str, publication: str, members: Mapping[str, str]) -> str:
    """Build a signal that records, for lakehold: the memberships of tables in a publication, by the tables' names upstream.

    A membership differs once the table has left the publication and come back (`FoundPublication.members`).
    """
    data = {"message": f"{', '.join(sorted(members))} in publication {publication}", "members": dict(members)}
    return json.dumps({"id": source_id, "type": RECORD, "data": data})


def recorded_shapes(source_id: str, shapes: Mapping[str, Shape]) -> list[str]:
    """Build signals that record, for lakehold: the shapes of tables, by their names upstream.

    A shape is what PostgreSQL's catalogue says of a table's columns, files and partitions. A later inspection that finds
    another one shows whether rows changed without messages (`silent_changes.py`).

    Each signal has whole shapes. If only some of the signals are sent, the next inspection records the other tables.
    """
    return [
        json.dumps(
            {
                "id": source_id,
                "type": RECORD,
                "data": {"message": f"shape of {', '.join(sorted(portion))}", "shapes": portion},
            }
        )
        for portion in _portions(shapes)
    ]


def _portions(shapes: Mapping[str, Shape]) -> Iterator[dict[str, Shape]]:
    """Split shapes into portions, each much smaller than the largest message that brokers take."""
    portion, length = dict[str, Shape](), 0
    for name, shape in shapes.items():
        added = len(json.dumps([name, name, shape]))
        if portion and length + added > _PORTION_LENGTH:
            yield portion
            portion, length = {}, 0
        portion[name] = shape
        length += added
    if portion:
        yield portion


def recorded_log(source_id: str, log: FoundLog) -> str:
    """Build a signal that the connector only logs: the log of PostgreSQL that fills the topics."""
    data = {"message": f"timeline {log.timeline} of system {log.system}", "wal": asdict(log)}
    return json.dumps({"id": source_id, "type": RECORD, "data": data})


def recorded_sync_point(object_id: str, upstream: str, log_position: LogPosition) -> str:
    """Build a signal that records, for lakehold: a log position from which a table that joined is consistent with the others."""
    where = f"{log_position.log} {'/'.join(map(str, log_position.at))}"
    data = {
        "message": f"{upstream} fits the other tables from {where} on",
        "fits_from": [log_position.log, *log_position.at],
    }
    return json.dumps({"id": object_id, "type": RECORD, "data": data})
