"""Envelope in: decoded messages become changes (`envelopes.md`, "Description"; design, "Envelopes in").

UPSERT         a null value deletes, any other is the row's new state
DEBEZIUM …     `after` is the row's new state, `d` deletes, `t` truncates, `m` says nothing of rows; a tombstone behind a `d`
               deletes once more, harmlessly, and is all that compaction leaves of a delete
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from lakehold.definitions import Envelope, Table
from lakehold.errors import TableStopped
from lakehold.ingest.changes import (
    BEFORE_MISSING,
    CONNECTOR,
    DETAIL,
    ERROR,
    KEPT,
    KEY_BYTES,
    OFFSET,
    OP,
    PARTITION,
    PHASE,
    POSITION,
    POSITION_TYPE,
    Changes,
    Op,
    Phase,
)
from lakehold.ingest.decode.decoded import Decoded
from lakehold.ingest.decode.types import ColumnType, from_spark, spark_text
from lakehold.ingest.decode.unify import TypeConflict, same, unify
from lakehold.ingest.position import is_ad_hoc, position_of


def changes_of(decoded: Decoded, table: Table, stored_key: Sequence[ColumnType] = ()) -> Changes:
    """The changes that `decoded` messages make to `table`, one per message, errors included.

    Args:
        decoded: The messages.
        table: The definition.
        stored_key: The key of the Iceberg table, if there is one, for batches in which no message has a key.

    Raises:
        TableStopped: No key is known: neither the messages nor `KEY (…)` name one.
    """
    if table.envelope is Envelope.UPSERT:
        return _upsert(decoded, table, stored_key)
    return _debezium(decoded, table, stored_key)


def _upsert(decoded: Decoded, table: Table, stored_key: Sequence[ColumnType]) -> Changes:
    value = F.col("value")
    key = _key(decoded, table, stored_key, row=value)
    op = (
        F.when(F.col("error").isNotNull(), F.lit(None))
        .when(value.isNull(), F.lit(Op.DELETE.value))
        .otherwise(F.lit(Op.UPSERT.value))
    )
    # An undecodable value stands for its key all the same, so the key's absence is said only of messages without one.
    null_key = F.col("error").isNull() & F.col("key_bytes").isNull() & _all_null(key)
    cleared = null_key & value.isNull()
    return _assembled(
        decoded,
        table,
        key=key,
        row=value,
        op=F.when(cleared, F.lit(Op.NOTHING.value)).when(~null_key, op),
        phase=F.lit(Phase.STREAM.value),
        position=F.lit(None).cast(POSITION_TYPE),
        kept=F.lit(None).cast("array<string>"),
        connector=F.lit(None).cast("string"),
        before_missing=F.lit(False),
        error=F.when(null_key & ~cleared, F.lit("null-key")).otherwise(F.col("error")),
        detail=F.when(null_key & ~cleared, F.lit("the message has a value but no key")).otherwise(
            F.col("error_detail")
        ),
    )


def _debezium(decoded: Decoded, table: Table, stored_key: Sequence[ColumnType]) -> Changes:
    op, before, after = F.col("op"), F.col("before"), F.col("after")
    row = F.coalesce(after, before)
    key = _key(decoded, table, stored_key, row=row)
    tombstone = op.isNull() & F.col("error").isNull()
    writes = op.isin("c", "r", "u")
    keyless = _all_null(key) & (writes | (op == "d"))
    tombstone_op = F.lit(Op.DELETE.value) if table.envelope is Envelope.DEBEZIUM_UPSERT else F.lit(Op.NOTHING.value)
    truncate_op = F.lit((Op.TRUNCATE if table.options.get("truncate") == "apply" else Op.NOTHING).value)
    error = (
        F.when(F.col("error").isNotNull(), F.col("error"))
        .when(keyless, F.lit("null-key"))
        .when(writes & after.isNull(), F.lit("after-missing"))
        .when(op.isNotNull() & ~op.isin("c", "r", "u", "d", "t", "m"), F.lit("unknown-op"))
    )
    detail = (
        F.when(F.col("error").isNotNull(), F.col("error_detail"))
        .when(keyless, F.lit("neither the message key nor the row holds the key's columns"))
        .when(error.isNotNull(), F.concat(F.lit("op is "), op))
    )
    change = (
        F.when(writes, F.lit(Op.UPSERT.value))
        .when(op == "d", F.lit(Op.DELETE.value))
        .when(op == "t", truncate_op)
        .when(tombstone & ~_all_null(key), tombstone_op)
        .otherwise(F.lit(Op.NOTHING.value))
    )
    return _assembled(
        decoded,
        table,
        key=key,
        row=after,
        op=F.when(error.isNull(), change),
        phase=_phase(F.col("source"), op),
        position=position_of(F.col("source"), F.col("transaction"), op),
        kept=F.col("unavailable"),
        connector=F.col("source.connector"),
        before_missing=F.coalesce((op == "u") & before.isNull(), F.lit(False)),
        error=error,
        detail=detail,
    )


def _phase(source: SparkColumn, op: SparkColumn) -> SparkColumn:
    """`source.snapshot` as observed: true, first…, last… in a snapshot, incremental, false or null when streaming."""
    snapshot = source.getField("snapshot")
    return (
        F.when(is_ad_hoc(source, op), F.lit(Phase.AD_HOC.value))
        .when((op == "r") & snapshot.isin("last", "last_in_data_collection"), F.lit(Phase.SNAPSHOT_END.value))
        .when(op == "r", F.lit(Phase.SNAPSHOT.value))
        .otherwise(F.lit(Phase.STREAM.value))
    )


def _key(
    decoded: Decoded, table: Table, stored_key: Sequence[ColumnType], *, row: SparkColumn
) -> dict[str, tuple[SparkColumn, ColumnType]]:
    """The key's columns by name: from the message key, and for names it lacks from the row."""
    in_key = {c.name: c for c in decoded.key_columns}
    in_row = {c.name: c for c in decoded.columns}
    stored = {c.name: c for c in stored_key}
    names = table.key or tuple(in_key) or tuple(stored)
    if not names:
        raise TableStopped(
            f'table "{table.full_name}" has no key',
            table=table.full_name,
            code="key-missing",
            detail=f"The messages of topic {table.topic} carry no key, and the table names none.",
            hint="Create the table with KEY (column, …), or give the upstream table a primary key.",
        )
    if len(names) == 1 and len(in_key) == 1 and names[0] not in in_key and names[0] not in in_row:
        only = next(iter(in_key.values()))
        return {names[0]: (F.col("key").getField(only.name), ColumnType(names[0], only.type))}
    found: dict[str, tuple[SparkColumn, ColumnType]] = {}
    for name in names:
        if name in in_key and name in in_row:
            column = in_row[name] if in_row[name].type != in_key[name].type else in_key[name]
            found[name] = (F.coalesce(F.col("key").getField(name), row.getField(name)), column)
        elif name in in_key:
            found[name] = (F.col("key").getField(name), in_key[name])
        elif name in in_row:
            found[name] = (row.getField(name), in_row[name])
        elif name in stored:
            found[name] = (F.lit(None).cast(stored[name].spark_type), stored[name])
        else:
            raise TableStopped(
                f'key column "{name}" of table "{table.full_name}" is in no message',
                table=table.full_name,
                code="key-missing",
                detail=f"Message keys hold {sorted(in_key) or 'nothing'}, rows hold {sorted(in_row) or 'nothing'}.",
                hint="Name columns of the message key or of the row in KEY (…).",
            )
    return found


def _contracted(
    table: Table, key: Collection[str], found: Mapping[str, tuple[SparkColumn, ColumnType]]
) -> tuple[dict[str, tuple[SparkColumn, ColumnType]], list[str]]:
    """The declared columns, and those of the key: what the messages have besides is left out, what they lack is null.

    Raises:
        TableStopped: The messages have a column in a type that the declared one does not hold.
    """
    contracted: dict[str, tuple[SparkColumn, ColumnType]] = {}
    for declared in table.columns:
        wanted = from_spark(DataType.fromDDL(declared.type))
        value, incoming = found.get(declared.name, (F.lit(None), ColumnType(declared.name, wanted)))
        try:
            fits = same(unify(wanted, incoming.type, declared.name), wanted)
        except TypeConflict:
            fits = False
        if not fits:
            raise TableStopped(
                f'column "{declared.name}" of table "{table.full_name}" is declared as {declared.type}, '
                f"the messages have {incoming.spark_type}",
                table=table.full_name,
                code="contract-broken",
                detail="Not every value of the messages' type has an equal in the declared one.",
                hint="Declare the messages' type, or change the column upstream.",
            )
        contracted[declared.name] = (value.cast(spark_text(wanted)), ColumnType(declared.name, wanted))
    missing = {name: found[name] for name in key if name not in contracted and name in found}
    return {**missing, **contracted}, [*missing, *contracted]


def _all_null(key: Mapping[str, tuple[SparkColumn, ColumnType]]) -> SparkColumn:
    """Whether no part of the key is there: a compound key with some null parts is a key (Materialize, KUP-11)."""
    condition = F.col("key").isNull()
    for value, _ in key.values():
        condition = condition & value.isNull()
    return condition


def _assembled(  # noqa: PLR0913 - one argument for each column of a change
    decoded: Decoded,
    table: Table,
    *,
    key: Mapping[str, tuple[SparkColumn, ColumnType]],
    row: SparkColumn,
    op: SparkColumn,
    phase: SparkColumn,
    position: SparkColumn,
    kept: SparkColumn,
    connector: SparkColumn,
    before_missing: SparkColumn,
    error: SparkColumn,
    detail: SparkColumn,
) -> Changes:
    in_row = {c.name: c for c in decoded.columns}
    found = {c.name: (row.getField(c.name), c) for c in decoded.columns} | dict(key)
    order = [*(name for name in key if name not in in_row), *in_row]
    if table.columns:
        found, order = _contracted(table, key, found)
    columns = tuple(found[name][1] for name in order)
    values = [found[name][0].alias(name) for name in order]
    frame = decoded.frame.select(
        F.col("partition").alias(PARTITION),
        F.col("offset").alias(OFFSET),
        op.alias(OP),
        position.alias(POSITION),
        phase.alias(PHASE),
        kept.alias(KEPT),
        F.col("key_bytes").alias(KEY_BYTES),
        connector.alias(CONNECTOR),
        before_missing.alias(BEFORE_MISSING),
        error.alias(ERROR),
        detail.alias(DETAIL),
        *values,
    )
    return Changes(frame, tuple(key), columns)
