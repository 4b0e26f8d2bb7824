"""Which wanted tables lack something upstream: a snapshot, changes that were missed, or the table itself. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lakehold.upstream.connector_config import includes
from lakehold.upstream.found import NO_SNAPSHOT, Found, FoundSnapshot
from lakehold.upstream.wanted import CapturedTable, Wanted

_NO_KEY = "NO_PRIMARY_KEY"


def gone(wanted: Wanted, found: Found) -> Iterator[CapturedTable]:
    """The tables that the database does not have; MySQL and MariaDB are not asked."""
    if found.database is not None:
        yield from (table for table in wanted.tables if table.upstream not in found.database.tables)


def there(wanted: Wanted, found: Found) -> tuple[str, ...]:
    """Those of the wanted tables, as the database names them, that are not gone."""
    names = {table.upstream for table in gone(wanted, found)}
    return tuple(name for name in wanted.upstream_tables if name not in names)


def joining(wanted: Wanted, found: Found) -> Iterator[CapturedTable]:
    """The tables of which no snapshot is there or under way."""
    present = there(wanted, found)
    for table in wanted.tables:
        snapshot = found.snapshots.get(table.object_id, NO_SNAPSHOT)
        is_had = snapshot.is_first or snapshot.succeeded
        if table.upstream in present and not is_had and not _is_under_way(snapshot, has_no_key(table, found)):
            yield table


def missed(wanted: Wanted, found: Found) -> Iterator[CapturedTable]:
    """The tables whose changes the connector does not see, though it did: one of those that share a table upstream.

    Somebody took them from its list or from the publication. A connector without a position snapshots all tables anyway.
    """
    if found.connector is not None and not found.connector.has_position:
        return
    new = {table.upstream for table in joining(wanted, found)}
    one_of_each = {table.upstream: table for table in wanted.tables}
    for name in there(wanted, found):
        if name not in new and _is_out(name, found):
            yield one_of_each[name]


def has_no_key(table: CapturedTable, found: Found) -> bool:
    """Whether no snapshot of a table alone can be taken, as far as is known."""
    if found.database is not None and table.upstream in found.database.tables:
        return not found.database.tables[table.upstream].has_key
    return _NO_KEY in found.snapshots.get(table.object_id, NO_SNAPSHOT).failures


def _is_out(name: str, found: Found) -> bool:
    publication = found.database.publication if found.database is not None else None
    is_published = publication is None or publication.is_for_all or name in publication.tables
    return not is_published or (found.connector is not None and not includes(found.connector.config, name))


def _is_under_way(snapshot: FoundSnapshot, has_no_key: bool) -> bool:
    """Whether it was asked for and not answered; what cannot be had is not asked for again until the table has a key."""
    return snapshot.asked > len(snapshot.failures) or (has_no_key and _NO_KEY in snapshot.failures)
