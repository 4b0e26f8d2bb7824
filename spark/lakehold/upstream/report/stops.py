"""Stops of captured tables of which their connector sends no changes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakehold.errors import TableStopped
from lakehold.upstream.differences.unfit import stops_of_left_out
from lakehold.upstream.found.found import Found
from lakehold.upstream.report.gone import stops_of_gone, stops_of_unpublished, waits_of_returned
from lakehold.upstream.wanted.wanted import Wanted


@dataclass(frozen=True)
class Stops:
    """The errors of tables that an inspection found, by object id.

    Attributes:
        tables: Tables that stop.
        returned: Tables that do not continue if they stopped because the database did not have them.
    """

    tables: Mapping[str, TableStopped] = field(default_factory=dict)
    returned: Mapping[str, TableStopped] = field(default_factory=dict)

    def with_earlier(self, earlier: Stops) -> Stops:
        """Return these stops and those of an earlier inspection, after which steps were applied."""
        return Stops({**earlier.tables, **self.tables}, {**earlier.returned, **self.returned})


def stops_of(wanted: Wanted, found: Found) -> Stops:
    """Return the stops of tables that the connector leaves out, and of those that the database does not have or publish."""
    stops = {**stops_of_left_out(wanted, found), **stops_of_gone(wanted, found), **stops_of_unpublished(wanted, found)}
    return Stops(stops, waits_of_returned(wanted, found))
