"""Which wanted tables lack something upstream: a snapshot, changes that were missed, or the table itself. Pure.

A table whose changes were missed is snapshotted again, and what the lake has of it from before the signal, and that snapshot
does not bring, is gone. What connector or lake had not read yet when it was asked for counts as brought by it. So unless there
was no such thing, a second one is asked for when the lake has the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lakehold.upstream.connector_config import includes
from lakehold.upstream.found import NO_SNAPSHOT, Found, FoundRepeat, FoundSnapshot
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
        is_due = not _is_under_way(snapshot, has_no_key(table, found)) and not _waits(table.upstream, wanted, found)
        if table.upstream in present and not is_had and is_due:
            yield table


def missed(wanted: Wanted, found: Found) -> Iterator[CapturedTable]:
    """The tables whose changes the connector does not see, or did not for a while: one of those that share a table upstream.

    Somebody took them from its list or from the publication, or had that leave something out. A connector without a position
    snapshots all tables anyway.
    """
    if found.connector is not None and not found.connector.has_position:
        return
    new = {*joining(wanted, found)}
    one_of_each = {table.upstream: table for table in wanted.tables if table not in new}
    for name in there(wanted, found):
        if name in one_of_each and (_is_out(name, found) or _was_out(name, found)):
            yield one_of_each[name]


def unconfirmed(wanted: Wanted, found: Found) -> Iterator[CapturedTable]:
    """The tables of which the lake has a snapshot that was asked for again, and that does not tell of all that is gone."""
    for table, repeats in _repeated(wanted, found):
        is_had = all(is_in_lake(object_id, repeat, wanted) for object_id, repeat in repeats.items())
        if is_had and not all(repeat.is_certain for repeat in repeats.values()):
            yield table


def failed(wanted: Wanted, found: Found) -> Iterator[CapturedTable]:
    """The tables whose changes were missed, with no snapshot of them since or under way, though one can be taken."""
    lacking = {table.upstream for table in wanted.tables if _lacks_repeat(table.object_id, found)}
    one_of_each = {table.upstream: table for table in wanted.tables}
    for name in there(wanted, found):
        if name in lacking and not has_no_key(one_of_each[name], found) and not _waits(name, wanted, found):
            yield one_of_each[name]


def failing(wanted: Wanted, found: Found) -> Iterator[tuple[CapturedTable, str]]:
    """The tables whose last snapshot failed and will be tried again, and why: one of those that share a table upstream."""
    one_of_each = {table.upstream: table for table in wanted.tables}
    for name in there(wanted, found):
        failures = [snapshot.failures[-1] for snapshot in _snapshots(name, wanted, found) if snapshot.again_ms]
        if failures and not has_no_key(one_of_each[name], found):
            yield one_of_each[name], failures[-1]


def coming(wanted: Wanted, found: Found) -> Iterator[CapturedTable]:
    """The tables whose changes were missed and of which the lake lacks what brings them: one of those that share a table."""
    unsure = {table.upstream for table in unconfirmed(wanted, found)}
    for table, repeats in _repeated(wanted, found):
        is_had = all(is_in_lake(object_id, repeat, wanted) for object_id, repeat in repeats.items())
        if not is_had or table.upstream in unsure:
            yield table


def unrepaired(wanted: Wanted, found: Found) -> Iterator[CapturedTable]:
    """The tables whose changes were missed and that cannot be snapshotted alone."""
    present = there(wanted, found)
    for table in wanted.tables:
        if table.upstream in present and has_no_key(table, found) and _lacks_repeat(table.object_id, found):
            yield table


def unnoted(wanted: Wanted, found: Found) -> tuple[str, ...]:
    """The tables in the publication, as the database names them, of which it is not noted how they came into it."""
    members = _members(found)
    return tuple(name for name in there(wanted, found) if name in members and name not in found.members)


def is_made_again(wanted: Wanted, found: Found) -> bool:
    """Whether a connector reads on with a publication that is another than that from which memberships were noted."""
    if found.connector is None or not found.connector.has_position:
        return False
    members = _members(found)
    noted = {found.members[name] for name in wanted.upstream_tables if name in members and name in found.members}
    now = {_publication_of(member) for member in members.values()}
    return any(_publication_of(member) not in now for member in noted)


def is_in_lake(object_id: str, repeat: FoundRepeat, wanted: Wanted) -> bool:
    """Whether the lake has all of a snapshot that was asked for again."""
    return object_id in wanted.lake and wanted.lake[object_id].repeated == repeat.signal_id


def has_no_key(table: CapturedTable, found: Found) -> bool:
    """Whether no snapshot of a table alone can be taken, as far as is known."""
    if found.database is not None and table.upstream in found.database.tables:
        return not found.database.tables[table.upstream].has_key
    return _NO_KEY in found.snapshots.get(table.object_id, NO_SNAPSHOT).failures


def _repeated(wanted: Wanted, found: Found) -> Iterator[tuple[CapturedTable, Mapping[str, FoundRepeat]]]:
    """One of the tables that share a table upstream, and the last repeated snapshots of all of them."""
    for name in there(wanted, found):
        tables = [table for table in wanted.tables if table.upstream == name]
        repeats = {
            table.object_id: found.repeats[table.object_id] for table in tables if table.object_id in found.repeats
        }
        if repeats:
            yield tables[-1], repeats


def _lacks_repeat(object_id: str, found: Found) -> bool:
    repeat = found.repeats.get(object_id)
    return found.snapshots.get(object_id, NO_SNAPSHOT).missed or (repeat is not None and repeat.is_failed)


def _is_out(name: str, found: Found) -> bool:
    publication = found.database.publication if found.database is not None else None
    is_published = publication is None or publication.is_for_all or name in publication.tables
    return not is_published or (found.connector is not None and not includes(found.connector.config, name))


def _was_out(name: str, found: Found) -> bool:
    """Whether a table is in the publication in another way than was noted: it was out of it, or not all of it was in."""
    members = _members(found)
    return name in members and found.members.get(name, members[name]) != members[name]


def _publication_of(member: str) -> str:
    """The publication in which a membership is."""
    return member.partition("/")[0]


def _members(found: Found) -> Mapping[str, str]:
    publication = found.database.publication if found.database is not None else None
    return publication.members if publication is not None else {}


def _snapshots(name: str, wanted: Wanted, found: Found) -> list[FoundSnapshot]:
    return [found.snapshots.get(table.object_id, NO_SNAPSHOT) for table in wanted.tables if table.upstream == name]


def _waits(name: str, wanted: Wanted, found: Found) -> bool:
    """Whether a snapshot of a table failed so often that it is not asked for again yet: the connector stands for each."""
    now_ms = found.now_ms
    return now_ms is not None and any(now_ms < snapshot.again_ms for snapshot in _snapshots(name, wanted, found))


def _is_under_way(snapshot: FoundSnapshot, has_no_key: bool) -> bool:
    """Whether it was asked for and not answered; what cannot be had is not asked for again until the table has a key."""
    return snapshot.asked > len(snapshot.failures) or (has_no_key and _NO_KEY in snapshot.failures)
