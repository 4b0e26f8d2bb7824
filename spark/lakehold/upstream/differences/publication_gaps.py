"""Changes that the lake wants and that a PostgreSQL publication leaves out. Pure.

lakehold completes a publication that the source created, and snapshots again the tables that lacked changes meanwhile. It refuses
an incomplete publication of somebody else, and records the memberships that the tables have in it: texts that change with the
publication (`FoundPublication.members`). When somebody completes it, the memberships differ from the recorded ones, and lakehold
fetches what was missed.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakehold.upstream.found.found import OPERATIONS, Found
from lakehold.upstream.wanted.connector_config import skips_truncates
from lakehold.upstream.wanted.wanted import Wanted


def unpublished_operations(wanted: Wanted, found: Found) -> tuple[str, ...]:
    """Return the kinds of changes that the connector is to send and the publication does not publish."""
    publication = found.database.publication if found.database is not None else None
    if publication is None:
        return ()
    needed = OPERATIONS - ({"truncate"} if skips_truncates(wanted.config) else set())
    return tuple(sorted(needed - publication.operations))


def narrowed(wanted: Wanted, found: Found) -> Mapping[str, str]:
    """Return the wanted tables that are only partly published, each with a phrase about what the publication leaves out."""
    publication = found.database.publication if found.database is not None else None
    of_all = publication.narrowed if publication is not None else {}
    return {name: of_all[name] for name in wanted.upstream_tables if name in of_all}


def partly_published(wanted: Wanted, found: Found) -> frozenset[str]:
    """Return the wanted tables that lack some of their changes in the publication."""
    return frozenset(wanted.upstream_tables if unpublished_operations(wanted, found) else narrowed(wanted, found))


def is_completed(wanted: Wanted, found: Found) -> bool:
    """Return whether the publication leaves nothing out, or the source may complete it."""
    publication = found.database.publication if found.database is not None else None
    return not partly_published(wanted, found) or (
        publication is not None and publication.is_own and publication.may_change and not publication.is_for_all
    )


def changed_unrecorded(wanted: Wanted, found: Found) -> tuple[str, ...]:
    """Return the tables that lack changes in a running connector's publication, and whose membership is not recorded yet."""
    publication = found.database.publication if found.database is not None else None
    if publication is None or found.connector is None or not found.connector.has_position:
        return ()
    now = publication.members
    return tuple(
        name for name in sorted(partly_published(wanted, found)) if name in now and found.members.get(name) != now[name]
    )
