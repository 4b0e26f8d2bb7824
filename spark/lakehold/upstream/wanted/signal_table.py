"""The table in the database in which the connector marks its snapshot of a joining table. Pure.

Debezium reads some rows between two marks, and sends them when the second mark arrives in the change stream. Then it reads the
next rows; between the marks it streams changes. Without the table Debezium asks the database which transactions are done, and
the source's other tables wait until all rows are read. So lakehold captures PostgreSQL without a signal table only where the
source's user may not have one. In MySQL and MariaDB a sync point is a write to that table, and by the sync point lakehold knows
when the other tables are as far as the rows: without it no table joins.
"""

from __future__ import annotations

from dataclasses import replace

from lakehold.upstream.found.found import FoundSignals
from lakehold.upstream.wanted import connector_config
from lakehold.upstream.wanted.wanted import Wanted


def with_signal_table(wanted: Wanted, signals: FoundSignals) -> Wanted:
    """Return what is wanted, with a signal table if the database can have one."""
    if not wanted.tables or not signals.may_be_had:
        return wanted
    options = connector_config.signal_table(wanted.capture.topic_prefix, wanted.signal_table)
    return replace(wanted, config={**wanted.config, **options})


def wants_signal_table(wanted: Wanted) -> bool:
    """Return whether the connector is to have a signal table."""
    return connector_config.has_signal_table(wanted.config)


def lacks_signals(wanted: Wanted, signals: FoundSignals) -> bool:
    """Return whether the wanted signal table is missing, or its changes are not published."""
    return wants_signal_table(wanted) and not signals.is_ready
