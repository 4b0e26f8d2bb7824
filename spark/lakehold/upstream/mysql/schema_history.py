"""Finds tables of MySQL and MariaDB whose rows changed without messages, by the statements in a connector's schema history. Pure.

`ALTER TABLE … MODIFY` may change values, `DROP PARTITION` removes rows, and no message shows either. The connector writes each
statement that defines tables to its schema history, in the order of the log. `gaps.py` lists the tables that need a snapshot.

The record of a statement lists the tables that it changed. A statement that Debezium cannot read is recorded without any
table. The connector skips it, and may then have other columns of the table than the database.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lakehold.upstream.found.snapshots import FoundAlteration
from lakehold.upstream.mysql.alter_clauses import (
    Columns,
    Effect,
    Structure,
    TableStatement,
    effect,
    redefines,
    reuses_a_name,
    table_statement,
)


class SchemaHistory:
    """The statements of a schema history, and the tables that they altered.

    Attributes:
        altered: The last statements that may have changed rows of a table without messages, by `database.table` in lower case.
        undefined: Tables whose definition in a snapshot Debezium could not read, `database.table` in lower case.
    """

    def __init__(self) -> None:
        self.altered: dict[str, FoundAlteration] = {}
        self.undefined: set[str] = set()
        self._columns: dict[str, Structure] = {}
        self._seen: dict[str, set[str]] = {}
        self._taken: set[tuple[object, ...]] = set()

    def take(self, offset: int, record: Mapping[str, Any]) -> None:
        """Read the next record of the history, and add to `altered` the tables whose rows its statement may have changed.

        Args:
            offset: The offset of the record in the topic of the history.
            record: The record; each has one statement.

        Raises:
            KeyError, TypeError, ValueError: The record is not one of Debezium's.
        """
        position, before = record["position"], {}
        for change in record.get("tableChanges") or ():
            name, earlier = _name(change["id"]), _name(change.get("previousId") or change["id"])
            before[name] = self._columns.pop(earlier, {})
            self._columns[name] = {column["name"]: column for column in (change.get("table") or {}).get("columns", ())}
            if change.get("type") == "CREATE":
                self._define(name)
        statement = table_statement(record.get("ddl") or "", record.get("databaseName") or "")
        if statement is not None and position.get("snapshot"):
            self.undefined |= statement.names if statement.verb == "CREATE" and not before else set()
        elif statement is not None and self._is_new(position, record):
            # Somebody may have changed what Debezium could not read.
            self.undefined -= statement.names
            self._take_statement(offset, statement, before)
        for name, columns in self._columns.items():
            self._seen.setdefault(name, set()).update(column.lower() for column in columns)

    def _define(self, name: str) -> None:
        """Forget that Debezium did not know a table's columns."""
        self.undefined.discard(name)
        if name in self.altered:
            self.altered[name] = replace(self.altered[name], unread_at=-1)

    def _is_new(self, position: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
        """Return whether a statement was not read before; a connector that was killed writes its record again."""
        key = (position.get("ts_sec"), position.get("file"), position.get("pos"), record.get("ddl"))
        is_new = key not in self._taken
        self._taken.add(key)
        return is_new

    def _take_statement(self, offset: int, statement: TableStatement, before: Mapping[str, Structure]) -> None:
        in_dropped_databases = {name for name in self._seen if name.partition(".")[0] in statement.databases}
        for name in statement.names | in_dropped_databases:
            columns = Columns(before.get(name, {}), self._columns.get(name, {}), self._seen.get(name, ()))
            is_skipped = redefines(statement) and self._is_skipped(statement, name, before)
            found = Effect.REMOVES if is_skipped else effect(statement, columns)
            if found is not Effect.NONE:
                last = self.altered.get(name, FoundAlteration(offset))
                # For a table that exists, Debezium ignores the columns of CREATE OR REPLACE TABLE: the record lists no change
                # of the table, and the connector reads the new rows by the old columns.
                is_replaced = statement.verb == "REPLACE" and name not in before
                is_unread = is_skipped or is_replaced or reuses_a_name(statement, columns)
                self.altered[name] = FoundAlteration(
                    changed_at=offset,
                    removed_at=offset if found is Effect.REMOVES else last.removed_at,
                    unread_at=offset if is_unread else last.unread_at,
                )

    def _is_skipped(self, statement: TableStatement, name: str, before: Mapping[str, Structure]) -> bool:
        """Return whether Debezium could not read a statement about a table, as its record lists no tables.

        It also lists none for CREATE TABLE IF NOT EXISTS of a table that exists, and for others of a table that does not.
        """
        is_known = bool(self._columns.get(name))
        return not before and name in statement.names and is_known is (statement.verb != "CREATE")


def _name(quoted: str) -> str:
    """Return the name of a table that a record quotes, in lower case."""
    database, _, table = quoted.strip('"').partition('"."')
    return f"{database}.{table}".replace('""', '"').lower()


def schema_record(value: bytes) -> Mapping[str, Any]:
    """Read the record of a message; the history is JSON, whatever format other topics have."""
    record = json.loads(value)
    if not isinstance(record, dict):
        raise TypeError("not a record of a schema history")
    return record
