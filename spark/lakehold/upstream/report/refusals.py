"""Refusals before anything upstream changes: an object is somebody else's, is missing, or has lost changes.

`capture_plan.py` calls these checks before it plans steps. Every refusal raises an `UpstreamError`, or one of its subclasses,
that says what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lakehold.errors import ConnectorError, UpstreamError, UpstreamRefused
from lakehold.object_names import object_text
from lakehold.upstream.differences.failover import RESNAPSHOT_HINT, refuse_uncertain_failover, slot_lost
from lakehold.upstream.differences.gaps import existing_tables, is_unpublishable, whole_row_tables
from lakehold.upstream.differences.log_settings import WHOLE_ROWS, row_image
from lakehold.upstream.differences.partitions import full_identity, is_misidentified, weak_leaves
from lakehold.upstream.differences.publication_gaps import is_completed, narrowed, unpublished_operations
from lakehold.upstream.found.found import NOTHING, OTHER_COLUMNS, Found, FoundDatabase
from lakehold.upstream.types.identifier_quoting import identifier_text
from lakehold.upstream.wanted.account import rights_hint, signal_rights_hint
from lakehold.upstream.wanted.connector_config import SideTopics
from lakehold.upstream.wanted.signal_table import wants_signal_table
from lakehold.upstream.wanted.wanted import MARK, Wanted

_NAMED_AT_MOST = 50
ROW_IMAGE_HINT = (
    "SET GLOBAL binlog_row_image = FULL, and in the server's configuration; sessions that are open keep their own value, so let "
    "applications connect again"
)


def refuse_foreign(wanted: Wanted, found: Found) -> None:
    """Refuse a connector, publication, topics or a slot that belong to somebody else.

    A publication that somebody made by hand may be used; one of another source of lakehold may not.
    """
    others = ", PUBLICATION and SLOT" if wanted.capture.publication is not None else ""
    if found.connector is not None and found.connector.config.get(MARK) != wanted.source_id:
        raise UpstreamError(
            f'connector "{wanted.connector}" exists and is not of source "{wanted.source}"',
            code="connector-foreign",
            detail="A source has a connector of its own, which is named after its topic prefix.",
            hint=f"Create the source with another TOPIC PREFIX{others}, or delete the connector if nobody needs it.",
        )
    publication = found.database.publication if found.database is not None else None
    if wanted.tables and publication is not None and publication.is_foreign:
        raise UpstreamError(
            f'publication "{wanted.capture.publication}" exists and is not of source "{wanted.source}"',
            code="publication-foreign",
            detail="Another source made it, takes tables from it and drops it with its last table.",
            hint="Create the source with another PUBLICATION, or drop the publication if nobody needs it.",
        )
    if not is_fresh(wanted, found):
        return
    existing = sorted(topic.name for topic in wanted.topics if topic.name in found.topics)
    if existing and wanted.tables:
        raise UpstreamError(
            f'topic "{existing[0]}" exists and is not of source "{wanted.source}"',
            code="topic-foreign",
            detail=f"Topics that begin with {wanted.capture.topic_prefix} are written by somebody else, or were left behind.",
            hint=f"Create the source with another TOPIC PREFIX{others}, or delete the topics if nobody needs them.",
        )
    if wanted.tables and found.database is not None and found.database.slot is not None:
        raise UpstreamError(
            f'replication slot "{wanted.capture.slot}" exists and is not of source "{wanted.source}"',
            code="slot-foreign",
            detail="A slot belongs to one connector: another one that reads it would consume its changes.",
            hint="Create the source with another SLOT, or drop the slot if nobody needs it.",
        )


def left_hints(wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield a sentence for each object that a removed source leaves behind, because it may be somebody else's."""
    if is_fresh(wanted, found) and found.database is not None and found.database.slot is not None:
        yield (
            f'replication slot "{wanted.capture.slot}" stays, as nothing says that source "{wanted.source}" made it: '
            "drop it if nobody needs it"
        )


def refuse_unfit(wanted: Wanted, database: FoundDatabase) -> None:
    """Refuse a database whose settings prevent capturing, and tables of this statement that the database does not have."""
    for table in wanted.tables:
        if table.object_id in (wanted.declared or ()) and table.upstream not in database.tables:
            close = database.meant_by(table.upstream)
            raise UpstreamError(
                f'table "{table.upstream}" is not in the database of source "{wanted.source}"',
                code="upstream-table-missing",
                detail=f"Its tables: {_some_of(database.table_names)}.",
                hint=f"Did you mean {close}?" if close else "Write schema and table as the database has them.",
            )
    if database.wal_level != "logical":
        raise UpstreamError(
            "the database does not write what logical replication needs",
            code="wal-level",
            detail=f"Its setting wal_level is {database.wal_level}.",
            hint="Set wal_level to logical and restart PostgreSQL.",
        )


def refuse_unpublishable(wanted: Wanted, found: Found) -> None:
    """Refuse a table of this statement whose rows nothing identifies: once it is published, nobody could change them."""
    for table in wanted.tables:
        if table.object_id in (wanted.declared or ()) and is_unpublishable(table.upstream, found):
            weak = weak_leaves(found.database, table.upstream, {NOTHING})
            raise UpstreamError(
                f'{"partitions of " if weak else ""}table "{table.upstream}" {"have" if weak else "has"} no replica identity',
                code="replica-identity",
                detail="PostgreSQL refuses UPDATE and DELETE of a published table, for everybody, if neither a primary key "
                "that is not DEFERRABLE nor REPLICA IDENTITY says what it logs of the row before. So lakehold does not publish "
                "the table.",
                hint=f"{full_identity(table.upstream, weak)}; then create the table again.",
            )


def refuse_misidentified(wanted: Wanted, found: Found) -> None:
    """Refuse a declared table whose deleted rows PostgreSQL logs without columns of the key."""
    for table in wanted.tables:
        columns = found.columns.get(table.upstream, ())
        if table.object_id in (wanted.declared or ()) and is_misidentified(table, found.database, columns):
            weak = weak_leaves(found.database, table.upstream, {OTHER_COLUMNS})
            raise UpstreamError(
                f'{"partitions of " if weak else ""}table "{table.upstream}" {"log" if weak else "logs"} other columns than the '
                "key of deleted rows",
                code="replica-identity",
                detail="REPLICA IDENTITY names an index that lacks columns of the key, so PostgreSQL does not log them when a "
                "row is deleted or gets another key: the row would stay in the lake, or another one would be deleted.",
                hint=f"{full_identity(table.upstream, weak)}; then create the table again.",
            )


def refuse_partial_rows(wanted: Wanted, found: Found) -> None:
    """Refuse a declared table without a key whose changes MySQL or MariaDB does not log as whole rows."""
    for table in whole_row_tables(wanted, found):
        if table.object_id in (wanted.declared or ()) and row_image(found) != WHOLE_ROWS:
            raise UpstreamError(
                f'table "{table.upstream}" has no primary key, and the database does not log whole rows',
                code="row-image",
                detail=f"Its setting binlog_row_image is {row_image(found)}. Only a row's values in all columns identify a row "
                "without a key.",
                hint=f"{ROW_IMAGE_HINT}; or give the table a primary key.",
            )


def refuse_partial(wanted: Wanted, found: Found) -> None:
    """Refuse a publication that leaves changes out and that the source may not complete, mostly because somebody else made it."""
    if is_completed(wanted, found):
        return
    name, unpublished, of_tables = (
        wanted.capture.publication,
        unpublished_operations(wanted, found),
        narrowed(wanted, found),
    )
    detail = [f"It does not publish {', '.join(unpublished)}."] if unpublished else []
    detail += [f"For {table} it leaves out {what}." for table, what in of_tables.items()]
    quoted = identifier_text(name or "", wanted.capture.database)
    raise UpstreamError(
        f'publication "{name}" leaves out changes of source "{wanted.source}"',
        code="publication-partial",
        detail=" ".join(detail),
        hint=f"ALTER PUBLICATION {quoted} SET (publish = 'insert, update, delete, truncate', publish_via_partition_root = true), "
        "and list tables without WHERE and without columns. lakehold then fetches what was missed. Or create the source with a "
        "PUBLICATION that does not exist: lakehold makes it.",
    )


def refuse_lost(wanted: Wanted, found: Found, database: FoundDatabase) -> None:
    """Refuse to continue where changes between the connector's position and now are lost."""
    connector = found.connector
    if connector is None:
        return
    if connector.has_position and database.slot in (None, "lost"):
        raise slot_lost(
            wanted,
            "Changes since the connector last ran are not kept any more: the slot was dropped, the log outgrew "
            "max_slot_wal_keep_size, or a standby that had not copied the slot was promoted.",
        )
    if connector.has_position:
        refuse_uncertain_failover(wanted, found, database)
    if database.publication is None and (connector.has_position or database.slot is not None):
        raise publication_lost(wanted.capture.publication or "", wanted.source)


def publication_lost(publication: str, source: str) -> UpstreamError:
    """Describe a publication that was missing while the database logged something."""
    return UpstreamError(
        f'publication "{publication}" is lost',
        code="publication-lost",
        detail="It was dropped. PostgreSQL cannot decode what it logged while there was no publication: "
        "changes since the connector last read are lost.",
        hint=RESNAPSHOT_HINT.format(object_text(source)),
    )


def refuse_denied(wanted: Wanted, found: Found) -> None:
    """Refuse what the source's user lacks rights for, and a configuration that Kafka Connect would refuse."""
    if found.database is not None:
        _refuse_unowned(wanted, found, found.database)
    if found.objections:
        raise ConnectorError(
            f'Kafka Connect refuses the configuration of connector "{wanted.connector}"',
            detail=" ".join(found.objections),
            hint="Correct the source's connections, or what they lead to, and what the database's user may do.",
        )


def _refuse_unowned(wanted: Wanted, found: Found, database: FoundDatabase) -> None:
    """Refuse to put tables into a publication unless the source's user owns both."""
    existing, name, user = database.publication, wanted.capture.publication, wanted.config["database.user"]
    published = existing.tables if existing is not None else frozenset()
    added = [table for table in existing_tables(wanted, found) if table not in published]
    if not added or (existing is not None and existing.is_for_all):
        return
    not_owned = [table for table in added if not database.tables[table].is_owned]
    if existing is None and not database.may_create:
        denied = f'make publication "{name}"'
    elif existing is not None and not existing.may_change:
        denied = f'add {", ".join(added)} to publication "{name}", which is another\'s'
    elif not_owned:
        denied = f'add {", ".join(not_owned)} to publication "{name}", as it does not own them'
    else:
        return
    raise UpstreamRefused(f'user "{user}" of source "{wanted.source}" may not {denied}', hint=rights_hint(user))


def refuse_without_signal_table(wanted: Wanted, found: Found) -> None:
    """Refuse the snapshot of a single table of MySQL or MariaDB without a signal table."""
    # Of MySQL and MariaDB no database is found, and a signal table is wanted if the user may have one.
    if found.database is None and not wants_signal_table(wanted):
        user = wanted.config["database.user"]
        raise UpstreamRefused(
            f'user "{user}" of source "{wanted.source}" cannot have the signal table {wanted.signal_table}',
            detail="Without it the connector cannot snapshot a single table consistently with the others.",
            hint=signal_rights_hint(user),
        )


def _some_of(names: Sequence[str]) -> str:
    shown, more = ", ".join(names[:_NAMED_AT_MOST]), len(names) - _NAMED_AT_MOST
    return f"{shown} and {more} more" if more > 0 else shown or "none"


def is_fresh(wanted: Wanted, found: Found) -> bool:
    """Return whether nothing of the source exists upstream: the topic of signals is made first and deleted last."""
    return found.connector is None and SideTopics(wanted.capture.topic_prefix).signals not in found.topics
