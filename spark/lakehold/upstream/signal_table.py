"""The table in PostgreSQL where the connector marks what it reads of a table that joins. Pure.

Rows that were read between two marks are sent when the second comes in the stream: Debezium reads the next ones then, and streams
in between. Without the table it asks the database which transactions are done, and reads rows at each of those that it is late
with: the other tables stand still until all rows are read. So it does without only where the user of the source may not have one.
"""

from __future__ import annotations

from dataclasses import replace

from lakehold.upstream import connector_config
from lakehold.upstream.found import FoundDatabase
from lakehold.upstream.wanted import Wanted


def settled(wanted: Wanted, database: FoundDatabase | None) -> Wanted:
    """What is wanted, with a signal table if the database can have it."""
    if database is None or not wanted.tables or not _may_have(wanted, database):
        return wanted
    options = connector_config.signal_table(wanted.capture.topic_prefix, wanted.signal_table)
    return replace(wanted, config={**wanted.config, **options})


def is_settled(wanted: Wanted) -> bool:
    """Whether the connector is to have a signal table."""
    return connector_config.has_signal_table(wanted.config)


def lacks_signals(wanted: Wanted, database: FoundDatabase) -> bool:
    """Whether the table that the connector is to have is missing, or its changes are not published."""
    return is_settled(wanted) and not _is_ready(wanted, database)


def _may_have(wanted: Wanted, database: FoundDatabase) -> bool:
    if _is_ready(wanted, database):
        return True
    existing, publication = database.signal_table, database.publication
    may_publish = database.may_create if publication is None else publication.is_for_all or publication.may_change
    may_have = database.may_make_signal_table if existing is None else existing.is_owned and existing.may_write
    return may_publish and may_have


def _is_ready(wanted: Wanted, database: FoundDatabase) -> bool:
    existing, publication = database.signal_table, database.publication
    if existing is None or publication is None or not existing.may_write:
        return False
    return publication.is_for_all or wanted.signal_table in publication.tables
