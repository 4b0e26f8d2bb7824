"""Planning of upstream effects, for statements on sources that capture a database. Pure.

Such a source has a Debezium connector of its own. Upstream are the objects that it needs: the connector, topics and, of
PostgreSQL, a replication slot and a publication. To reconcile a source is to bring these to what the definitions say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lakehold.definitions import Definition, Source, Table
from lakehold.errors import DefinitionError
from lakehold.model.lake_definitions import Definitions
from lakehold.sql.plan.statement_effects import Reconcile, Release


def with_topic(table: Table, source: Source) -> Table:
    """Add the topic of the upstream table to a table of a captured database.

    Raises:
        DefinitionError: The statement names an upstream table but the source captures no database, or the reverse.
    """
    if (source.capture is None) == (table.upstream is None):
        return table if source.capture is None else replace(table, topic=source.capture.topic(table.upstream or ""))
    captures = source.capture is not None
    raise DefinitionError(
        f'source "{source.name}" captures {"a database" if captures else "no database"}',
        code="feed-kind",
        detail="Its topics are those of the tables upstream." if captures else "It reads topics that others write.",
        hint="Write FROM SOURCE … (TABLE 'schema.table')." if captures else "Write FROM SOURCE … (TOPIC '…').",
    )


def reconciling(table: Table, definitions: Definitions) -> tuple[Reconcile, ...]:
    """Plan what a new table needs upstream: its source is reconciled after the commit; nothing if it captures no database."""
    return (Reconcile(table.source),) if definitions.source(table.source).capture is not None else ()


def releasing(dropped: Sequence[Definition], definitions: Definitions) -> tuple[Release, ...]:
    """Plan what is removed upstream with the definitions `dropped`: one release for each capturing source of a dropped table."""
    names = dict.fromkeys(definition.source for definition in dropped if isinstance(definition, Table))
    return tuple(Release(name) for name in names if definitions.source(name).capture is not None)


def altered(name: str, *, resnapshot: bool, definitions: Definitions) -> Reconcile:
    """Plan ALTER SOURCE `name` REPAIR, or RESNAPSHOT: the connector then reads all its tables again.

    Raises:
        DefinitionError: The source captures no database.
    """
    if definitions.source(name).capture is None:
        raise DefinitionError(
            f'source "{name}" captures no database',
            code="feed-kind",
            hint="REPAIR and RESNAPSHOT are for sources FROM POSTGRES, FROM MYSQL and FROM MARIADB.",
        )
    return Reconcile(name, resnapshot=resnapshot)
