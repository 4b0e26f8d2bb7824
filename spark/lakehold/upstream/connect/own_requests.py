"""Recognizes repeated snapshots that a table of this lake requested: the table has the id of its last request in a property.

A request says by an Iceberg sequence number of the table which rows its snapshot replaces. A lake that was restored from a
backup has other rows under the same number if the request came after the backup. The connector's topics still have the request,
but the table does not. lakehold then deletes nothing by it, and requests the snapshot again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lakehold.iceberg.data_tables import DataTables
from lakehold.upstream.differences.gaps import is_in_lake
from lakehold.upstream.found.snapshots import FoundRepeat
from lakehold.upstream.wanted.wanted import Wanted

REQUESTED = "lakehold.requested-snapshot"
"""The property of a table with the signal that requested its last repeated snapshot."""


def with_others_failed(
    repeats: Mapping[str, FoundRepeat], wanted: Wanted, tables: DataTables
) -> Mapping[str, FoundRepeat]:
    """Return the last repeated snapshots by object id, as failed where the table of the lake did not request it."""
    names = {table.object_id: table.full_name for table in wanted.tables}
    return {
        object_id: repeat
        if object_id not in names or is_in_lake(object_id, repeat, wanted) or _is_own(repeat, names[object_id], tables)
        else replace(repeat, succeeded=False, is_done=True)
        for object_id, repeat in repeats.items()
    }


def _is_own(repeat: FoundRepeat, full_name: str, tables: DataTables) -> bool:
    """Return whether a table requested a snapshot. One that replaces no rows may be anybody's."""
    if not repeat.replaces_through:
        return True
    state = tables.table_state(full_name)
    return state is not None and state.properties.get(REQUESTED) == repeat.signal_id
