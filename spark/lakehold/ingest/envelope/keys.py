"""The key of a table: which columns identify its rows, and where each change has them: in the message key, or in the row.

A table keeps the key it was created with. When messages have another key, or none any more (a primary key upstream was added,
dropped or changed), merging them by the stored key could mix up rows. So they stop the table before anything of their batch is
written.

`unwrap.py` finds the key of a batch with `key_of`, and adds with `with_left_keys` or `with_former_rows` the deletes that an
update implies where the message key does not show them. SQL here is over the columns of a `Decoded` (`decode/decoded.py`):
`key`, `key_bytes`, `before`, `after`, `op`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from lakehold.definitions import Table
from lakehold.errors import TableStopped
from lakehold.ingest.decode.decoded import Decoded
from lakehold.ingest.decode.message_parts import is_bare_json
from lakehold.kafka.faults import STAYS_IN_TOPIC
from lakehold.spark_sql import literal, quoted
from lakehold.tables.column_types import ColumnType, spark_text
from lakehold.tables.unify import TypeConflict, cast, equal_value, same, unify

_OF_TOPIC = (
    "Drop the table and create it again with KEY (…) and columns that identify its rows, such as those of a new primary key: "
    "they are taken from the rows where message keys lack them. That needs the whole row before each change (PostgreSQL: "
    "REPLICA IDENTITY FULL); without it delete the topic, too, and have the connector snapshot the table again."
)
_OF_CAPTURED = (
    "Drop the table and create it again: its topic goes with it, and it is snapshotted with the primary key that it has then. "
    "Without one it needs KEY (…) and columns that identify its rows."
)
"""The hint for a changed key; a source that captures the database creates the topic again by itself."""


@dataclass(frozen=True)
class Key:
    """The key of a batch's changes.

    Args:
        columns: By name, in order, the value in SQL and the column. Empty: nothing that can be decoded names a key.
        in_messages: Names of the columns that message keys have, by which the key columns of a tombstone can be found.
        only_in_messages: Whether every message that has a key has all columns of this key there, so that rows are not needed.
        is_bare: The condition that a message key is a single value, which does not name the column of rows that it is read as.
        is_partial: The condition that a message key lacks a column of this key, whose null is not one of the row.
        unequal: Conditions in SQL, by column, that the message key has a value which the type of the row's column cannot hold.
    """

    columns: Mapping[str, tuple[str, ColumnType]]
    in_messages: frozenset[str]
    only_in_messages: bool
    is_bare: str = "false"
    is_partial: str = "false"
    unequal: Mapping[str, str] = field(default_factory=dict)

    @property
    def all_null(self) -> str:
        """Write the condition that every part of the key is null; a key with some null parts is valid."""
        values = [value for value, _ in self.columns.values()] or ["key"]
        return f"({' AND '.join(f'{value} IS NULL' for value in values)})"

    @property
    def is_unequal(self) -> str:
        """Write the condition that the message key has a value that its column in rows cannot hold."""
        return f"({' OR '.join(self.unequal.values())})" if self.unequal else "false"

    @property
    def unequal_detail(self) -> str:
        """Write the sentence about a key that differs from its row, as SQL."""
        cases = []
        for name, condition in self.unequal.items():
            text = _as(self.columns[name][1])
            sentence = f'The message key has a value of column "{name}" that {text}, its type in rows, cannot hold.'
            cases.append(f"WHEN {condition} THEN {literal(sentence)}")
        return f"CASE {' '.join(cases)} END" if cases else "NULL"

    @property
    def is_in_message_key(self) -> str:
        """Write the condition that the message key alone identifies one row."""
        return f"(NOT {self.all_null} AND NOT ({self.is_partial}))"

    @property
    def is_in_tombstone(self) -> str:
        """Write the condition that a message without a value identifies one row: it has exactly this key's columns.

        Others identify a row by another key; its delete, which precedes the tombstone, has this key.
        """
        own = [name for name in self.columns if name in self.in_messages]
        if self.in_messages == set(own) or self._is_renamed:
            # A bare key may be another column's value. Its delete has the row.
            return f"({self.is_in_message_key} AND NOT ({self.is_bare}))"
        if not own:
            return "false"
        others = [f"key.{quoted(name)} IS NULL" for name in sorted(self.in_messages - set(own))]
        return f"({' AND '.join([self.is_in_message_key, f'NOT {_all_null(own)}', *others])})"

    @property
    def _is_renamed(self) -> bool:
        return self.only_in_messages and not self.in_messages.intersection(self.columns)


def key_of(
    decoded: Decoded, table: Table, stored_key: Sequence[ColumnType], *, row: str, filled: Collection[str] = ()
) -> Key:
    """Find the key of a batch: the columns that the table declares in KEY (…), else those of message keys, else the stored ones.

    Args:
        decoded: The messages.
        table: The definition.
        stored_key: The key of the Iceberg table, if it exists.
        row: The row of a message, in SQL.
        filled: Names of columns that have values in rows which are older than the column.

    Returns:
        The key; one without columns if nothing that can be decoded names any.

    Raises:
        TableStopped: A column of the key is in no message, or holds values that cannot be a key, or the messages have another key
            than the table.
    """
    in_key = {c.name: c for c in decoded.key_columns}
    in_row = {c.name: c for c in decoded.columns}
    stored = {c.name: c for c in stored_key}
    names = table.key or tuple(in_key) or tuple(stored)
    if not names or (not in_row and any(name not in in_key and name not in stored for name in names)):
        # Each message is an error, or has no key: `require_keys` decides by the messages.
        return Key({}, frozenset(in_key), only_in_messages=True)
    if table.key:
        _require_whole(decoded, table, stored, filled)
    else:
        _require_one(decoded.keys, table, stored)
    if len(names) == 1 and len(in_key) == 1 and names[0] not in in_key and names[0] not in in_row:
        only = next(iter(in_key.values()))
        _require_single(table, [only])
        renamed = {names[0]: (f"key.{quoted(only.name)}", ColumnType(names[0], only.type))}
        return Key(renamed, frozenset(in_key), only_in_messages=True)
    # A bare key is always the column `key`. It may be another one, or only the customer by whom orders are partitioned.
    is_bare = is_bare_json("key_bytes") if decoded.has_declared_keys and "key" not in names else "false"
    found: dict[str, tuple[str, ColumnType]] = {}
    unequal: dict[str, str] = {}
    for name in names:
        # Where nothing but keys has come, the table says what their values are in rows.
        of_rows = in_row.get(name) if in_row else stored.get(name)
        if name in in_key and of_rows is not None:
            value, column = _of_both(table, in_key[name], of_rows)
            if value != f"key.{quoted(name)}":
                unequal[name] = f"(key.{quoted(name)} IS NOT NULL AND {value} IS NULL)"
            if in_row:
                value = _first(value, cast(f"{row}.{quoted(name)}", of_rows.type, column.type), is_bare)
            found[name] = (value, column)
        elif name in in_key:
            found[name] = (f"key.{quoted(name)}", in_key[name])
        elif name in in_row:
            found[name] = (f"{row}.{quoted(name)}", in_row[name])
        elif name in stored:
            found[name] = (f"CAST(NULL AS {spark_text(stored[name].type)})", stored[name])
        else:
            raise TableStopped(
                f'key column "{name}" of table "{table.full_name}" is in no message',
                table=table.full_name,
                code="key-missing",
                detail=f"Message keys hold {sorted(in_key) or 'nothing'}, rows hold {sorted(in_row) or 'nothing'}."
                + "".join(f" {part.text}" for part in decoded.left_out if part.path == name),
                hint="Name columns of the message key or of the row in KEY (…).",
            )
    only_in_messages = not table.key or (bool(decoded.keys) and all(keys.issuperset(names) for keys in decoded.keys))
    _require_single(table, [column for _, column in found.values()])
    is_partial = _is_partial(decoded, names) if table.key else "false"
    return Key(found, frozenset(in_key), only_in_messages, is_bare, is_partial, unequal)


def _is_partial(decoded: Decoded, names: Collection[str]) -> str:
    """Write the condition that a message key lacks one of the columns, rather than having a null there."""
    in_key = {c.name for c in decoded.key_columns}
    if not in_key.issuperset(names):
        return "true"
    if len(names) == 1:
        return "false"
    has_null = " OR ".join(f"key.{quoted(name)} IS NULL" for name in names)
    if decoded.has_declared_keys:
        text, wanted = "CAST(key_bytes AS STRING)", f"array({', '.join(map(literal, names))})"
        members = (f"json_object_keys({each})" for each in (text, f"get_json_object({text}, '$.payload')"))
        lacks = " AND ".join(f"({each} IS NULL OR size(array_except({wanted}, {each})) > 0)" for each in members)
        return f"(({has_null}) AND {lacks})"
    return f"({has_null})" if any(not keys.issuperset(names) for keys in decoded.keys) else "false"


def _first(in_key: str, in_row: str, is_bare: str) -> str:
    """Write the value of a column that message key and row may have: that of the row where the key does not name the column."""
    first = f"coalesce({in_key}, {in_row})"
    return first if is_bare == "false" else f"CASE WHEN {is_bare} THEN coalesce({in_row}, {in_key}) ELSE {first} END"


def _of_both(table: Table, in_key: ColumnType, in_row: ColumnType) -> tuple[str, ColumnType]:
    """Write the value of a message key, and the column, if the row has a column of that name, too.

    Raises:
        TableStopped: The column's values in rows and in message keys are never equal.
    """
    value = f"key.{quoted(in_key.name)}"
    if same(in_key.type, in_row.type):
        return value, in_key
    for one, other in ((in_row.type, in_key.type), (in_key.type, in_row.type)):
        with suppress(TypeConflict):
            column = replace(in_row, type=unify(one, other))
            return cast(value, in_key.type, column.type), column
    equal = equal_value(value, in_key.type, in_row.type)
    if equal is None:
        raise TableStopped(
            f'key column "{in_key.name}" of table "{table.full_name}" is {_as(in_key)} in message keys and '
            f"{_as(in_row)} in rows",
            table=table.full_name,
            code="key-type",
            detail="No value of one type equals one of the other, so message keys do not say which row they are of.",
            hint="Drop the table and create it with columns in KEY (…) that identify rows; or give the column one type upstream, "
            f"in keys and values. {STAYS_IN_TOPIC}",
        )
    return equal, in_row


def _require_single(table: Table, key: Iterable[ColumnType]) -> None:
    """Refuse a key that is a structure, an array or a map: tables cannot be ordered, bucketed or searched by one."""
    for column in key:
        if not column.type.is_primitive:
            raise TableStopped(
                f'key column "{column.name}" of table "{table.full_name}" is {_as(column)}',
                table=table.full_name,
                code="unsupported-key",
                detail="Rows are identified by columns with single values: numbers, texts, dates, times and bytes.",
                hint="Create the table with KEY (…) and columns of the row that have such values.",
            )


def _as(column: ColumnType) -> str:
    text = spark_text(column.type)
    return f"{'an' if text[0] in 'aeiou' else 'a'} {text}"


def with_left_keys(decoded: Decoded, table: Table) -> Decoded:
    """Add a delete of the key that a row leaves beside each update that changes the key, if the message key lacks a column of it.

    Debezium writes an update of the message key as a delete and a create, but does not know a key that the table declares.
    """
    in_key, in_row = {c.name for c in decoded.key_columns}, {c.name for c in decoded.columns}
    names = [name for name in table.key if name in in_row]
    if not names:
        return decoded
    is_bare = [is_bare_json("key_bytes")] if decoded.has_declared_keys else []
    has_no_key = " OR ".join(
        ["key IS NULL", *is_bare, *(f"key.{quoted(n)} IS NULL" if n in in_key else "true" for n in names)]
    )
    leaves = f"{_changed(names)} AND ({has_no_key})"
    return _with_deletes(decoded, leaves)


def with_former_rows(decoded: Decoded) -> Decoded:
    """Add a delete of the row before beside each update: without a key, an update removes one row and adds another."""
    return _with_deletes(decoded, "op = 'u' AND before IS NOT NULL")


def _with_deletes(decoded: Decoded, leaves: str) -> Decoded:
    """Add a delete of the row before an update, ahead of the update, if `leaves` is true."""
    doubled = decoded.frame.selectExpr(
        "*", f"explode(CASE WHEN {leaves} THEN array(true, false) ELSE array(false) END) AS _leaves"
    )
    instead = {"op": "'d'", "key": "NULL", "after": "NULL", "unavailable": "NULL", "is_readable": "NULL"}
    shown = (
        f"CASE WHEN _leaves THEN {instead[n]} ELSE {n} END AS {n}" if n in instead else n for n in decoded.frame.columns
    )
    return replace(decoded, frame=doubled.selectExpr(*shown))


def is_keyless(table: Table, key: Key) -> str:
    """Write the condition that a message changes a row and has no key, though the table takes its key from there."""
    return (
        "false" if table.key and key.columns else "(key_bytes IS NULL AND coalesce(op IN ('c', 'r', 'u', 'd'), false))"
    )


def has_null_part(table: Table, decoded: Decoded) -> str:
    """Write the condition that a message changes a row by a key with a null, and the table takes its key from there."""
    parts = [f"key.{quoted(column.name)} IS NULL" for column in decoded.key_columns]
    if table.key or not parts:
        return "false"
    return f"(key_bytes IS NOT NULL AND ({' OR '.join(parts)}) AND coalesce(op IN ('c', 'r', 'u', 'd'), false))"


def _changed(names: Iterable[str]) -> str:
    differ = " OR ".join(f"NOT (before.{quoted(name)} <=> after.{quoted(name)})" for name in names)
    return f"op = 'u' AND before IS NOT NULL AND ({differ})"


def _all_null(names: Iterable[str]) -> str:
    return f"({' AND '.join(f'key.{quoted(name)} IS NULL' for name in names)})"


def _require_one(keys: Collection[frozenset[str]], table: Table, stored: Collection[str]) -> None:
    """Refuse messages with different keys, or with another one than the table's, unless the table declares its own."""
    kinds = {frozenset(stored), *keys} if stored else {*keys}
    if len(kinds - {frozenset()}) < 2:  # noqa: PLR2004 - two are different
        return
    found = " and ".join(sorted(f"({', '.join(sorted(kind))})" for kind in kinds if kind))
    raise key_changed(
        table,
        f"Its rows, and the messages of topic {table.topic}, are identified by {found}: the primary key upstream has changed.",
    )


def _require_whole(decoded: Decoded, table: Table, stored: Collection[str], filled: Collection[str]) -> None:
    """Refuse rows that lack some columns of the table's own key: rows that differ only there would become one.

    Rows that lack all of them are errors, each by itself: there is no key by which they could be mixed up. Rows from before a
    column was added are null there in the database, too. A column that nothing has, and never had, is missing in `key_of`.
    """
    in_all_keys = frozenset.intersection(*decoded.keys) if decoded.keys else frozenset[str]()
    known = {c.name for c in (*decoded.columns, *decoded.key_columns)}.union(stored)
    for place, version in enumerate(decoded.versions):
        missing = [name for name in table.key if name not in version | in_all_keys]
        gone = [n for n in missing if n in known and (n in filled or not _was_added(n, decoded.versions, place))]
        if version and gone and len(missing) < len(table.key):
            raise key_changed(
                table,
                f'It has KEY ({", ".join(table.key)}). Column "{gone[0]}" is neither in rows with the columns '
                f"({', '.join(sorted(version))}) nor in their message keys: it was renamed, dropped or added with a default "
                "upstream.",
            )


def _was_added(name: str, versions: Sequence[frozenset[str]], place: int) -> bool:
    """Return whether a column came after the version at a place, beside all columns of this; a renamed one replaces another."""
    later = next((version for version in versions[place:] if name in version), None)
    return later is not None and versions[place] < later and not any(name in earlier for earlier in versions[:place])


def key_changed(table: Table, found: str) -> TableStopped:
    """Return the error of a table whose messages have another key than before."""
    return TableStopped(
        f'the key of the messages for table "{table.full_name}" changed',
        table=table.full_name,
        code="key-changed",
        detail=f"{found} Nothing of this batch was written to the table.",
        hint=_OF_CAPTURED if table.upstream is not None else _OF_TOPIC,
    )
