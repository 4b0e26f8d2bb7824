"""What is refused before anything upstream changes: something is another's, is missing, or has lost changes.

Each raises `UpstreamError`, which says what to do.
"""

from __future__ import annotations

from lakehold.errors import UpstreamError
from lakehold.upstream.connector_config import SideTopics
from lakehold.upstream.found import Found, FoundDatabase
from lakehold.upstream.wanted import MARK, Wanted

_ANEW = "ALTER SOURCE {} RESNAPSHOT brings all of its tables to what the database has."


def refuse_foreign(wanted: Wanted, found: Found) -> None:
    """Refuse what is somebody else's: connector, topics, slot."""
    if found.connector is not None and found.connector.config.get(MARK) != wanted.source_id:
        raise UpstreamError(
            f'connector "{wanted.connector}" exists and is not of source "{wanted.source}"',
            code="connector-foreign",
            detail="A source has a connector of its own, which is called by its topic prefix.",
            hint="Create the source with another TOPIC PREFIX, or delete the connector if nobody needs it.",
        )
    if not _is_fresh(wanted, found):
        return
    taken = sorted(topic.name for topic in wanted.topics if topic.name in found.topics)
    if taken and wanted.tables:
        raise UpstreamError(
            f'topic "{taken[0]}" exists and is not of source "{wanted.source}"',
            code="topic-foreign",
            detail=f"Topics that begin with {wanted.capture.topic_prefix} are written by somebody else, or were left behind.",
            hint="Create the source with another TOPIC PREFIX, or delete the topics if nobody needs them.",
        )
    if wanted.tables and found.database is not None and found.database.slot is not None:
        raise UpstreamError(
            f'replication slot "{wanted.capture.slot}" exists and is not of source "{wanted.source}"',
            code="slot-foreign",
            hint="Create the source with another SLOT, or drop the slot if nobody needs it.",
        )


def refuse_unfit(wanted: Wanted, database: FoundDatabase) -> None:
    """Refuse a database that cannot be captured as it is, and tables declared now that it does not have."""
    for table in wanted.tables:
        if table.object_id in (wanted.declared or ()) and table.upstream not in database.tables:
            close = database.like(table.upstream)
            there = sorted({*database.tables, *database.other_tables})
            raise UpstreamError(
                f'table "{table.upstream}" is not in the database of source "{wanted.source}"',
                code="upstream-table-missing",
                detail=f"Its tables: {', '.join(there) or 'none'}.",
                hint=f"Did you mean {close}?" if close else "Write schema and table as the database has them.",
            )
    if database.wal_level != "logical":
        raise UpstreamError(
            "the database does not write what logical replication needs",
            code="wal-level",
            detail=f"Its setting wal_level is {database.wal_level}.",
            hint="Set wal_level to logical and restart PostgreSQL.",
        )
    if wanted.passed is not None and database.position < wanted.passed:
        raise UpstreamError(
            f'the database of source "{wanted.source}" has gone back',
            code="database-restored",
            detail=f"Its log stands at {_lsn(database.position)}, and the lake has changes up to {_lsn(wanted.passed)}: "
            "it was restored from a backup, or is another one. New changes would be taken for old ones.",
            hint=f"Load it anew: DROP SOURCE {wanted.source} CASCADE, then create the source and its tables again.",
        )


def refuse_lost(wanted: Wanted, found: Found, database: FoundDatabase) -> None:
    """Refuse to go on where changes between the connector's place and now cannot be had any more."""
    connector = found.connector
    if connector is not None and connector.has_position and database.slot in (None, "lost"):
        raise UpstreamError(
            f'replication slot "{wanted.capture.slot}" is lost',
            code="slot-lost",
            detail="Changes since the connector last ran are not kept any more: the slot was dropped, or the log outgrew "
            "max_slot_wal_keep_size.",
            hint=_ANEW.format(wanted.source),
        )
    if connector is not None and database.publication is None and (connector.has_position or database.slot is not None):
        raise UpstreamError(
            f'publication "{wanted.capture.publication}" is lost',
            code="publication-lost",
            detail="It was dropped. PostgreSQL reads what it logged before there is one again without it, which fails: "
            "changes since the connector last read cannot be had.",
            hint=_ANEW.format(wanted.source),
        )


def _lsn(position: int) -> str:
    """As PostgreSQL writes it."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def _is_fresh(wanted: Wanted, found: Found) -> bool:
    """Whether nothing of the source was ever made."""
    return found.connector is None and SideTopics(wanted.capture.topic_prefix).signals not in found.topics
