"""Stops of captured tables that their database has or publishes no more, because somebody dropped, renamed or removed them. Pure.

A renamed schema renames its tables, too. Such a table stops: nobody can say any more which rows are true. Once the database has
a table of this name again, lakehold has it snapshotted, and the table continues.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lakehold.definitions import Envelope
from lakehold.errors import TableGone, TableUnpublished
from lakehold.object_names import full_name_text, object_text
from lakehold.upstream.differences.gaps import (
    cannot_snapshot_alone,
    missing_tables,
    returned_tables,
    unpublished_tables,
)
from lakehold.upstream.found.found import Found
from lakehold.upstream.types.identifier_quoting import identifier_text, table_text
from lakehold.upstream.wanted.wanted import CapturedTable, Wanted


def stops_of_gone(wanted: Wanted, found: Found) -> Mapping[str, TableGone]:
    """Return the stops of the tables that the database does not have, by object id."""
    return {
        table.object_id: TableGone(
            f'table "{table.full_name}" gets no more changes: {table.upstream} is not in the database any more',
            table=table.full_name,
            detail=_fate(table, wanted, found),
            hint=_way_out(table, wanted, found),
        )
        for table in missing_tables(wanted, found)
    }


def stops_of_unpublished(wanted: Wanted, found: Found) -> Mapping[str, TableUnpublished]:
    """Return the stops of the tables that PostgreSQL does not publish and that lakehold may not publish, by object id."""
    return {
        table.object_id: TableUnpublished(
            f'table "{table.full_name}" gets no more changes: publication "{wanted.capture.publication}" does not list '
            f"{table.upstream}",
            table=table.full_name,
            detail=f'User "{wanted.config["database.user"]}" of source "{wanted.source}" may not put it back, as it does not own '
            "both.",
            hint=f"{_publishing(table, wanted)}: the table then continues after a snapshot. Or DROP TABLE "
            f"{full_name_text(table.full_name)}.",
        )
        for table in unpublished_tables(wanted, found)
    }


def _publishing(table: CapturedTable, wanted: Wanted) -> str:
    """Return the statement that puts a table into the publication."""
    database = wanted.capture.database
    publication = identifier_text(wanted.capture.publication or "", database)
    return f"ALTER PUBLICATION {publication} ADD TABLE {table_text(table.upstream, database)}, by a user who may"


def waits_of_returned(wanted: Wanted, found: Found) -> Mapping[str, TableGone]:
    """Return, by object id, why tables that were missing and exist again do not continue: they need a snapshot."""
    return {
        table.object_id: TableGone(
            f'table "{table.full_name}" waits for a snapshot',
            table=table.full_name,
            detail=f"The database has a table {table.upstream} again, with rows that no change brought.",
            hint=f"ALTER SOURCE {object_text(wanted.source)} RESNAPSHOT: it cannot be snapshotted alone."
            if cannot_snapshot_alone(table, found)
            else "Ingest: the table continues once the snapshot is complete.",
        )
        for table in returned_tables(wanted, found)
    }


def gone_hints(wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield a sentence for each table that the database has or publishes no more, unless a statement is about other tables."""
    if wanted.declared is None:
        for table in unpublished_tables(wanted, found):
            yield (
                f"publication {wanted.capture.publication} does not list {table.upstream} any more, and lakehold may not put it "
                f"back, so the table in the lake stops. {_publishing(table, wanted)}: it then continues after a snapshot"
            )
        for table in missing_tables(wanted, found):
            yield (
                f"table {table.upstream} is not in the database any more, so the table in the lake stops. "
                f"{_fate(table, wanted, found)} {_way_out(table, wanted, found).removesuffix('.')}"
            )


def _fate(table: CapturedTable, wanted: Wanted, found: Found) -> str:
    name = _renamed_to(table, found)
    if name is not None:
        return f"It is called {name} now, and connector {wanted.connector} captures tables by name."
    return "It was dropped." if found.database is not None else "It was dropped or renamed."


def _way_out(table: CapturedTable, wanted: Wanted, found: Found) -> str:
    name = _renamed_to(table, found)
    dropped = f"DROP TABLE {full_name_text(table.full_name)}"
    if name is not None and name in wanted.upstream_tables:
        return f"{dropped}. Or give {table.upstream} its name back: it then continues after a snapshot."
    if name is not None:
        return (
            f"{_creating(table, name, wanted)}; {dropped}. Or give the table its name back in the database"
            f"{_back(table, name, wanted)}: it then continues after a snapshot."
        )
    renamed = (
        "" if found.database is not None else " If it was renamed, CREATE TABLE … FROM SOURCE … (TABLE 'its new name')."
    )
    return (
        f"{dropped}, or leave it for its history.{renamed} If {table.upstream} is created again, the table continues after a "
        "snapshot."
    )


def _creating(table: CapturedTable, name: str, wanted: Wanted) -> str:
    """Return the statement that captures a table under its new name; other clauses of the old definition are left out."""
    envelope = Envelope.DEBEZIUM if table.needs_before else Envelope.DEBEZIUM_UPSERT
    namespace, table_name, literal = table.full_name.split(".")[0], name.partition(".")[2], name.replace("'", "''")
    return (
        f"CREATE TABLE {object_text(namespace)}.{object_text(table_name)} FROM SOURCE {object_text(wanted.source)} "
        f"(TABLE '{literal}') ENVELOPE {envelope.sql}"
    )


def _back(table: CapturedTable, name: str, wanted: Wanted) -> str:
    """Return the statement that gives a table its old name, if the schema is the same."""
    (schema, _), (old_schema, old_name) = name.split(".", 1), table.upstream.split(".", 1)
    database = wanted.capture.database
    renaming = f", ALTER TABLE {table_text(name, database)} RENAME TO {identifier_text(old_name, database)}"
    return renaming if schema == old_schema else ""


def _renamed_to(table: CapturedTable, found: Found) -> str | None:
    """Return the name of the table that had this name at the last inspection; None: it exists no more, or nobody knows."""
    shape = found.shapes.get(table.upstream)
    return found.database.names.get(shape["table"]) if found.database is not None and shape is not None else None
