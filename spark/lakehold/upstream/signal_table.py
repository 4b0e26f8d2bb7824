"""The table in the database where the connector marks what it reads of a table that joins. Pure.

Rows that were read between two marks are sent when the second comes in the stream: Debezium reads the next ones then, and streams
in between. Without the table it asks the database which transactions are done, and reads rows at each of those that it is late
with: the other tables stand still until all rows are read. So PostgreSQL is captured without only where the source's user may not
have one. In MySQL and MariaDB nothing else can mark the log, by which is known when the others are as far as the rows: no table
joins without it.
"""

from __future__ import annotations

from dataclasses import replace

from lakehold.upstream import connector_config
from lakehold.upstream.found import FoundSignals
from lakehold.upstream.wanted import Wanted


def settled(wanted: Wanted, signals: FoundSignals) -> Wanted:
    """What is wanted, with a signal table if the database can have it."""
    if not wanted.tables or not signals.may_be_had:
        return wanted
    options = connector_config.signal_table(wanted.capture.topic_prefix, wanted.signal_table)
    return replace(wanted, config={**wanted.config, **options})


def is_settled(wanted: Wanted) -> bool:
    """Whether the connector is to have a signal table."""
    return connector_config.has_signal_table(wanted.config)


def lacks_signals(wanted: Wanted, signals: FoundSignals) -> bool:
    """Whether the table that the connector is to have is missing, or its changes are not published."""
    return is_settled(wanted) and not signals.is_ready
