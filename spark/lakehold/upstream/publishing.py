"""What a publication of PostgreSQL leaves out of the changes that the lake wants. Pure.

A publication that the source made is completed, and tables that lacked changes meanwhile are snapshotted again. One of others is
refused. How the tables were in it then is noted before, so that it is seen later that it was mended, and what was missed comes.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakehold.upstream.connector_config import skips_truncates
from lakehold.upstream.found import OPERATIONS, Found
from lakehold.upstream.wanted import Wanted


def lacking_operations(wanted: Wanted, found: Found) -> tuple[str, ...]:
    """What the publication does not publish and the connector is to send."""
    publication = found.database.publication if found.database is not None else None
    if publication is None:
        return ()
    needed = OPERATIONS - ({"truncate"} if skips_truncates(wanted.config) else set())
    return tuple(sorted(needed - publication.operations))


def narrowed(wanted: Wanted, found: Found) -> Mapping[str, str]:
    """The wanted tables of which the publication has not all, with what it leaves out in words."""
    publication = found.database.publication if found.database is not None else None
    of_all = publication.narrowed if publication is not None else {}
    return {name: of_all[name] for name in wanted.upstream_tables if name in of_all}


def left_out(wanted: Wanted, found: Found) -> frozenset[str]:
    """The wanted tables of which not all changes are published."""
    return frozenset(wanted.upstream_tables if lacking_operations(wanted, found) else narrowed(wanted, found))


def is_completed(wanted: Wanted, found: Found) -> bool:
    """Whether what the publication leaves out, if anything, is the source's to put in."""
    publication = found.database.publication if found.database is not None else None
    return not left_out(wanted, found) or (
        publication is not None and publication.is_own and publication.may_change and not publication.is_for_all
    )


def changed_unnoted(wanted: Wanted, found: Found) -> tuple[str, ...]:
    """The tables whose changes are left out of what a connector reads, of which it is not noted that they are."""
    publication = found.database.publication if found.database is not None else None
    if publication is None or found.connector is None or not found.connector.has_position:
        return ()
    now = publication.members
    return tuple(
        name for name in sorted(left_out(wanted, found)) if name in now and found.members.get(name) != now[name]
    )
