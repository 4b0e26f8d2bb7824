"""Unwraps decoded messages: applies the table's envelope, so that each message becomes a change of a row.

`docs/reference/envelopes.md` begins with a comparison of the envelopes, and `change_columns.py` has the columns of a change. In
short:

NONE                each value is one more row; a null value is an error
UPSERT              a null value deletes, any other is the row's new state
DEBEZIUM FLATTENED  as UPSERT; a row that says that it was deleted deletes, too, and a placeholder keeps the stored value
DEBEZIUM …          `after` is the row's new state, `d` deletes, `t` truncates, `m` is not about rows
DEBEZIUM UPSERT     a tombstone after a `d` deletes once more, harmlessly, and is all that compaction leaves of a delete
DEBEZIUM            in a table without a key each event adds a row, removes one of the equal rows, or does both

A new envelope is a member of `lakehold.definitions.Envelope`, which has its properties, and a function here, which maps its
messages to changes. Nothing else names an envelope. If its values are neither rows nor Debezium's events, it also is a `Shape` of
`ingest/decode/decoded.py`, with a module there for its fields.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakehold.definitions import Envelope, Table
from lakehold.ingest.decode.decoded import Decoded
from lakehold.ingest.envelope.change_columns import (
    BEFORE_MISSING,
    CONNECTOR,
    DETAIL,
    ERROR,
    KEPT,
    KEY_BYTES,
    KEYLESS,
    LACKS,
    NULL_IN_KEY,
    OF_ONE_TABLE,
    OFFSET,
    OP,
    PARTITION,
    PHASE,
    POSITION,
    POSITION_TYPE,
    SOURCE_MS,
    TRANSACTION,
    UNORDERED,
    Changes,
    Op,
    Phase,
)
from lakehold.ingest.envelope.column_history import ColumnHistory, absent_columns, kept_columns, present_columns
from lakehold.ingest.envelope.header_columns import header_of_change
from lakehold.ingest.envelope.included import IncludedColumn, included_columns
from lakehold.ingest.envelope.keys import Key, has_null_part, is_keyless, key_of, with_former_rows, with_left_keys
from lakehold.ingest.envelope.listed_columns import listed_columns
from lakehold.ingest.envelope.position import POSTGRES, is_ad_hoc, position_of
from lakehold.spark_sql import literal, quoted
from lakehold.tables.column_names import folded, require_case, require_names
from lakehold.tables.column_types import ColumnType

_OF_FLAT = {
    POSITION: f"CAST(NULL AS {POSITION_TYPE})",
    SOURCE_MS: "CAST(NULL AS bigint)",
    PHASE: f"'{Phase.STREAM}'",
    KEPT: "CAST(NULL AS array<string>)",
    KEY_BYTES: "key_bytes",
    CONNECTOR: "CAST(NULL AS string)",
    BEFORE_MISSING: "false",
}
"""The internal columns that describe a message whose value is the row: it has no position and no commit time."""


@dataclass(frozen=True)
class _Mapped:
    """The effects of messages on rows.

    Args:
        decoded: The messages.
        key: The key's columns.
        row: The row of a message, in SQL.
        change: SQL for the internal columns that describe the effect of a message.
        first: SQL for columns that `change` refers to by name, so that each is computed once.
        is_multiset: Whether rows have no key, and a change adds or removes one of the equal rows.
    """

    decoded: Decoded
    key: Key
    row: str
    change: Mapping[str, str]
    first: Mapping[str, str] = field(default_factory=dict)
    is_multiset: bool = False


def changes_of(
    decoded: Decoded,
    table: Table,
    stored_key: Sequence[ColumnType] = (),
    history: ColumnHistory = ColumnHistory(),  # noqa: B008 - a frozen value
    *,
    has_keyless_rows: bool = False,
) -> Changes:
    """Return the changes that `decoded` messages make to `table`: one per message, including errors.

    An update that also removes a row (by a key that it leaves, or as its table has no key) makes two: a delete comes before it.

    Args:
        decoded: The messages.
        table: The definition.
        stored_key: The key of the Iceberg table, if it exists: the key of a batch whose messages show none.
        history: The history of the columns.
        has_keyless_rows: Whether the Iceberg table was written without a key.

    Raises:
        TableStopped: See `key_of` and `included_columns`; or a table cannot have columns of these names.
    """
    is_multiset = table.envelope.takes_keyless and not (table.key or stored_key)
    is_multiset = is_multiset and (has_keyless_rows or not decoded.key_columns)
    has_key = table.envelope.has_keys and not is_multiset
    own_key = [c for c in decoded.key_columns if has_key and (not table.key or c.name in table.key)]
    included = included_columns(
        table, decoded.key_columns, [c.name for c in decoded.columns], [c.name for c in own_key]
    )
    require_names(table, [*_table_columns(decoded, table, own_key), *(each.column for each in included)])
    if not decoded.names_may_differ_in_case:
        for columns in (decoded.key_columns, decoded.columns):
            require_case(table, columns)
    filled = history.initial.known.keys() | history.initial.unknown
    match table.envelope:
        case Envelope.NONE:
            mapped = _none(decoded)
        case Envelope.UPSERT | Envelope.DEBEZIUM_FLATTENED:
            mapped = _upsert(decoded, table, stored_key, filled)
        case Envelope.DEBEZIUM_UPSERT | Envelope.DEBEZIUM:
            mapped = (
                _debezium_multiset(decoded, table) if is_multiset else _debezium(decoded, table, stored_key, filled)
            )
    return _assembled(mapped, table, included, history)


def columns_without_messages(table: Table, row: Sequence[ColumnType], key: Collection[str]) -> tuple[ColumnType, ...]:
    """Return the columns of a table that is created before its first message, which shows the columns that INCLUDE KEY adds.

    Args:
        table: The definition.
        row: The columns of its rows, from the database or a column list.
        key: Names of its key's columns.

    Raises:
        TableStopped: See `included_columns`; or a table cannot have columns of these names.
    """
    included = included_columns(table, (), [c.name for c in row], key)
    columns = (*row, *(each.column for each in included))
    require_names(table, columns)
    return columns


def _table_columns(decoded: Decoded, table: Table, key: Sequence[ColumnType]) -> list[ColumnType]:
    """Return the messages' columns that the table would have, and those that Spark cannot distinguish from one of them."""
    names = {folded(name) for name in (*(c.name for c in table.columns), *(c.name for c in key))}
    row = [c for c in decoded.columns if not table.columns or folded(c.name) in names]
    in_row = {c.name for c in row}
    return [*(c for c in key if c.name not in in_row), *row]


def _none(decoded: Decoded) -> _Mapped:
    return _Mapped(
        decoded,
        Key({}, frozenset(), only_in_messages=True),
        row="value",
        change={
            **_OF_FLAT,
            OP: f"CASE WHEN error IS NULL AND value IS NOT NULL THEN '{Op.UPSERT}' END",
            ERROR: "CASE WHEN error IS NULL AND value IS NULL THEN 'null-value' ELSE error END",
            DETAIL: "CASE WHEN error IS NULL AND value IS NULL THEN 'the message has no value, and so no row'"
            " ELSE error_detail END",
        },
    )


def _upsert(decoded: Decoded, table: Table, stored_key: Sequence[ColumnType], filled: Collection[str]) -> _Mapped:
    key = key_of(decoded, table, stored_key, row="value", filled=filled)
    # An undecodable value still has its key, so that only messages without one are reported to lack a key.
    null_key = f"(error IS NULL AND value IS NOT NULL AND {key.all_null})"
    without_key = "null-key" if key.columns else KEYLESS
    has_no_key = f"{'key' if decoded.key_columns else 'key_bytes'} IS NULL"
    is_lost = f"(error IS NULL AND value IS NULL AND NOT ({has_no_key}) AND NOT {key.is_in_message_key})"
    is_error = f"(error IS NOT NULL OR {key.is_unequal})"
    deletes = "value IS NULL OR deleted" if table.envelope.is_flattened else "value IS NULL"
    return _Mapped(
        decoded,
        key,
        row="value",
        change={
            **_OF_FLAT,
            **({KEPT: "unavailable"} if table.envelope.is_flattened else {}),
            OP: f"CASE WHEN {null_key} OR {is_lost} OR {is_error} THEN NULL"
            f" WHEN value IS NULL AND {has_no_key} THEN '{Op.NOTHING}'"
            f" WHEN {deletes} THEN '{Op.DELETE}' ELSE '{Op.UPSERT}' END",
            ERROR: f"CASE WHEN error IS NULL AND {key.is_unequal} THEN 'key-type'"
            f" WHEN {is_lost} THEN 'null-key' WHEN {null_key} THEN '{without_key}' ELSE error END",
            DETAIL: f"CASE WHEN error IS NULL AND {key.is_unequal} THEN {key.unequal_detail}"
            f" WHEN {is_lost} THEN 'the message has no value, and its key does not say which row to delete'"
            f" WHEN {null_key} THEN 'the message has a value but no key' ELSE error_detail END",
        },
    )


def _debezium(decoded: Decoded, table: Table, stored_key: Sequence[ColumnType], filled: Collection[str]) -> _Mapped:
    found = key_of(decoded, table, stored_key, row="coalesce(after, before)", filled=filled)
    values = {f"_lh_key{number}": sql for number, (sql, _) in enumerate(found.columns.values())}
    key = replace(
        found, columns={n: (value, c) for value, (n, (_, c)) in zip(values, found.columns.items(), strict=True)}
    )
    errors = {
        KEYLESS: is_keyless(table, key),
        NULL_IN_KEY: has_null_part(table, decoded),
        "key-type": key.is_unequal,
        "null-key": f"op IN ('c', 'r', 'u', 'd') AND {key.all_null}",
    }
    details = {
        "key-type": key.unequal_detail,
        "null-key": literal("neither the message key nor the row holds the key's columns"),
    }
    deletes = "op = 'd'"
    if table.envelope is Envelope.DEBEZIUM_UPSERT:
        deletes = f"(op = 'd' OR op IS NULL AND {key.is_in_tombstone})"
    change, first = _of_events(decoded, table, deletes, errors, details, lacks_before="op = 'u' AND before IS NULL")
    return _Mapped(with_left_keys(decoded, table), key, row="after", change=change, first={**values, **first})


def _debezium_multiset(decoded: Decoded, table: Table) -> _Mapped:
    """Map events of rows without a key: each adds a row, removes one of the equal rows, or does both.

    Only its position distinguishes an event from a repetition of it. One INSERT of several rows may log them at one `lsn` of
    PostgreSQL, where only `total_order` distinguishes them; MySQL and MariaDB number the rows at one `pos`.
    """
    is_postgres = f"source.connector IN ({', '.join(map(literal, POSTGRES))})"
    errors = {
        OF_ONE_TABLE: is_ad_hoc("source", "op"),
        UNORDERED: f"op IN ('c', 'u', 'd') AND {is_postgres} AND transaction.total_order IS NULL",
    }
    lacks_before = "(op IN ('u', 'd') AND before IS NULL OR op <> 'd' AND size(unavailable) > 0)"
    change, first = _of_events(decoded, table, "op = 'd'", errors, {}, lacks_before=lacks_before)
    key = Key({}, frozenset(), only_in_messages=True)
    row = "coalesce(after, before)"
    return _Mapped(with_former_rows(decoded), key, row, change, first, is_multiset=True)


def _of_events(  # noqa: PLR0913 - events, a table, and what depends on its key
    decoded: Decoded,
    table: Table,
    deletes: str,
    errors: Mapping[str, str],
    details: Mapping[str, str],
    *,
    lacks_before: str,
) -> tuple[dict[str, str], dict[str, str]]:
    """Write SQL for the internal columns of Debezium's events, and for those of them that others refer to by name.

    Args:
        decoded: The events.
        table: The definition.
        deletes: The condition that an event deletes a row.
        errors: Conditions of errors, by code.
        details: SQL of the text that describes an error, by code.
        lacks_before: The condition that an event lacks the row before it.
    """
    writes = "op IN ('c', 'r', 'u')"
    done = {Op.UPSERT: writes, Op.DELETE: deletes}
    if table.applies_truncates:
        done[Op.TRUNCATE] = "op = 't'"
    cases = " ".join(f"WHEN {condition} THEN {literal(op)}" for op, condition in done.items())
    all_errors = {
        **errors,
        "after-missing": f"{writes} AND after IS NULL",
        # A row of a snapshot that denies to be one would begin a snapshot, which deletes all rows that it does not have.
        "unknown-op": "(op NOT IN ('c', 'r', 'u', 'd', 't', 'm') OR op = 'r' AND source.snapshot = 'false')",
    }
    found = " ".join(f"WHEN {condition} THEN {literal(code)}" for code, condition in all_errors.items())
    described = " ".join(f"WHEN {literal(code)} THEN {detail}" for code, detail in details.items())
    detail = f"CASE {ERROR} {described} ELSE concat('op is ', op) END" if described else "concat('op is ', op)"
    heads = {TRANSACTION: header_of_change()} if decoded.has_heads else {}
    return (
        {
            OP: f"CASE WHEN {ERROR} IS NULL THEN CASE {cases} ELSE '{Op.NOTHING}' END END",
            POSITION: POSITION,
            SOURCE_MS: _source_ms(table.envelope),
            PHASE: _phase("source", "op"),
            KEPT: "unavailable",
            KEY_BYTES: "key_bytes",
            CONNECTOR: "source.connector",
            BEFORE_MISSING: f"coalesce(error IS NULL AND {lacks_before}, false)",
            ERROR: ERROR,
            DETAIL: f"CASE WHEN {ERROR} IS NOT NULL THEN coalesce(error_detail, {detail}) END",
            **heads,
        },
        {
            ERROR: f"CASE WHEN error IS NOT NULL THEN error {found} END",
            POSITION: position_of("source", "transaction", "op"),
        },
    )


def _source_ms(envelope: Envelope) -> str:
    """Write the SQL of the commit's time, where changes are put into the order of their positions; null elsewhere.

    ENVELOPE DEBEZIUM always uses positions. DEBEZIUM UPSERT does not for streamed changes of MySQL: they arrive in the server's
    order, and a replica that takes over continues at another position, which must not count as going back.
    """
    if envelope is Envelope.DEBEZIUM:
        return "source.ts_ms"
    compared = " OR ".join(["op = 'r'", *(f"source.connector = {literal(name)}" for name in POSTGRES)])
    return f"CASE WHEN {compared} THEN source.ts_ms END"


def _phase(source: str, op: str) -> str:
    """Write the SQL of a change's `Phase`, from `op` and Debezium's `source.snapshot`.

    That field is `true`, `first…` or `last…` in a snapshot, `incremental` in one of a single table, `false` or null in the
    stream.
    """
    return (
        f"CASE WHEN {is_ad_hoc(source, op)} THEN '{Phase.AD_HOC}'"
        f" WHEN {op} = 'r' AND {source}.snapshot IN ('last', 'last_in_data_collection') THEN '{Phase.SNAPSHOT_END}'"
        f" WHEN {op} = 'r' AND {source}.snapshot IN ('first', 'first_in_data_collection') THEN '{Phase.SNAPSHOT_START}'"
        f" WHEN {op} = 'r' THEN '{Phase.SNAPSHOT}' ELSE '{Phase.STREAM}' END"
    )


def _assembled(mapped: _Mapped, table: Table, included: Sequence[IncludedColumn], history: ColumnHistory) -> Changes:
    """Return the changes, with the columns of rows, then those that INCLUDE adds.

    The columns are written as SQL text: Spark parses all of it in the time that it takes to build a few column objects.
    """
    decoded, key = mapped.decoded, mapped.key
    in_row = present_columns(decoded, mapped.row, history)
    kept = mapped.change[KEPT] if mapped.is_multiset else kept_columns(decoded, mapped.change[KEPT], history)
    added = {each.column.name: (each.value, each.column) for each in included}
    found = in_row | dict(key.columns) | added
    order = [*(name for name in key.columns if name not in in_row), *in_row]
    if table.columns:
        listed, order = listed_columns(table, key.columns, found)
        found |= listed
    order += [name for name in added if name not in order]
    lacks = {LACKS: absent_columns(decoded, history)} if mapped.is_multiset and decoded.partial else {}
    frame = decoded.frame.selectExpr("*", *(f"{value} AS {name}" for name, value in mapped.first.items())).selectExpr(
        f"partition AS {PARTITION}",
        f"offset AS {OFFSET}",
        *(f"{value} AS {name}" for name, value in {**mapped.change, KEPT: kept, **lacks}.items()),
        *(f"{found[name][0]} AS {quoted(name)}" for name in order),
    )
    needs_before = table.envelope.needs_before or (mapped.row == "after" and not key.only_in_messages)
    names = {name for name in order if name in in_row and name not in added}
    return Changes(
        frame,
        tuple(key.columns),
        tuple(found[name][1] for name in order),
        tuple(name for name in order if name in names) if mapped.is_multiset else None,
        needs_before,
        knows_rows=bool(decoded.columns and (key.columns or mapped.is_multiset or not table.envelope.has_keys)),
        lacks_before=decoded.lacks_before,
        left_out=tuple(part.text for part in decoded.left_out),
        unknown=history.initial.unknown & set(order),
        renamed=history.renamed,
        numbers=history.numbers,
        unfilled=history.unfilled & set(order),
        partial=decoded.partial,
    )
