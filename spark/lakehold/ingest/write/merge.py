"""Merges: the applied changes become one commit of the table. SQL text and paths, no decisions about data.

Three paths, cheapest first:

    nothing      no row changes: no snapshot
    append       no key of the batch can be in the table: rows are added without a join
    MERGE        everything else; one shuffle, of the batch to the table's buckets

A plain Iceberg append checks nothing, so a writer that lost its lease would add its rows twice. The append path therefore
overwrites the batch's key range, which contains no live row, validated under serializable isolation from the snapshot
the range was chosen on: the second committer fails, and no file is rewritten. MERGE checks commits since it was planned,
and `lakehold.tables.write_audit_publish` those before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehold.iceberg.data_tables import TableState
from lakehold.ingest.deduplicate.carriers import APPLIED
from lakehold.ingest.envelope.change_columns import KEPT, OP, Changes, Op
from lakehold.session import snapshot_properties, temp_view
from lakehold.spark_sql import literal, quoted
from lakehold.tables.bounds import Bounds, range_literals
from lakehold.tables.column_types import ColumnType
from lakehold.tables.unify import cast

_SOURCE = "lakehold_changes"


@dataclass(frozen=True)
class Append:
    """A path that adds rows whose keys the table cannot have.

    Args:
        table: Full name in SQL, quoted.
        validate_from: Snapshot in which the keys were found absent; None if the table had none.
        guard: No row of the table fulfils it; a writer that adds one conflicts.
        keeps_values: Whether some change lacks the value of a column.
        distribution: How rows are shuffled to the tasks that write them, see `distribution_of`.
    """

    table: str
    validate_from: int | None
    guard: SparkColumn
    keeps_values: bool
    distribution: str


@dataclass(frozen=True)
class Merge:
    """A path that joins the changes with the table by key.

    Args:
        table: Full name in SQL, quoted.
        key: The key's columns; none: each change adds a row.
        null_safe: Whether some key part of the batch is null. `<=>` shuffles the whole table, `=` does not.
        bounds: Key ranges of the batch: literals by which Iceberg skips files and row groups.
        has_deletes: Whether some change deletes.
        has_upserts: Whether some change writes a row.
        keeps_values: Whether some change lacks the value of a column, whose stored value stays.
        replaces_all: Whether rows that the batch does not contain are deleted (TRUNCATE).
    """

    table: str
    key: tuple[str, ...]
    null_safe: bool
    bounds: Mapping[str, Bounds]
    has_deletes: bool
    has_upserts: bool
    keeps_values: bool
    replaces_all: bool


def distribution_of(state: TableState) -> str:
    """Return how appended rows are shuffled, as the table's properties say; by default they are not.

    Rows of a table that its definition partitions go to one task for each partition. With buckets of the key alone each task
    may as well write a file into each bucket.
    """
    return state.properties.get("write.distribution-mode", "none")


def append(
    how: Append, changes: Changes, deduplicated: DataFrame, columns: Sequence[ColumnType], properties: Mapping[str, str]
) -> None:
    """Write the applied rows of `deduplicated` as new rows; `columns` are the table's, in its order."""
    new = deduplicated.filter(F.col(APPLIED) & (F.col(OP) == Op.UPSERT.value))
    rows = new.selectExpr(*as_stored(changes, columns, keeps_values=how.keeps_values))
    writer = (
        rows.writeTo(how.table)
        .option("isolation-level", "serializable")
        .option("fanout-enabled", "false")
        .option("distribution-mode", how.distribution)
    )
    if how.validate_from is not None:
        writer = writer.option("validate-from-snapshot-id", str(how.validate_from))
    for name, value in properties.items():
        writer = writer.option(f"snapshot-property.{name}", value)
    writer.overwrite(how.guard)


def merge(  # noqa: PLR0913 - a session, a plan and what it works on
    spark: SparkSession,
    how: Merge,
    changes: Changes,
    deduplicated: DataFrame,
    columns: Sequence[ColumnType],
    properties: Mapping[str, str],
) -> None:
    """Run the MERGE; `columns` are the table's."""
    rows = deduplicated.filter(APPLIED).selectExpr(
        OP, KEPT, *as_stored(changes, columns, keeps_values=how.keeps_values)
    )
    with temp_view(rows, _SOURCE), snapshot_properties(spark, properties):
        spark.sql(merge_statement(how, [c.name for c in columns]))


def merge_statement(how: Merge, columns: Sequence[str]) -> str:
    """Write the text of the MERGE; without a key no row of the table matches, and Spark reads none."""
    clauses = []
    if how.has_deletes:
        clauses.append(f"WHEN MATCHED AND s.{OP} = '{Op.DELETE.value}' THEN DELETE")
    if how.has_upserts:
        if how.key:
            clauses.append(f"WHEN MATCHED THEN UPDATE SET {_assignments(how, columns)}")
        names = ", ".join(quoted(name) for name in columns)
        values = ", ".join(f"s.{quoted(name)}" for name in columns)
        only_upserts = f" AND s.{OP} = '{Op.UPSERT.value}'" if how.has_deletes else ""
        clauses.append(f"WHEN NOT MATCHED{only_upserts} THEN INSERT ({names}) VALUES ({values})")
    if how.replaces_all:
        clauses.append("WHEN NOT MATCHED BY SOURCE THEN DELETE")
    return f"MERGE INTO {how.table} t USING {_SOURCE} s ON {_same_row(how)} {' '.join(clauses)}"


def _same_row(how: Merge) -> str:
    """Write the condition that row `t` of the table is the one that change `s` is about."""
    equals = "<=>" if how.null_safe else "="
    condition = [f"t.{quoted(name)} {equals} s.{quoted(name)}" for name in how.key] or ["false"]
    if not how.null_safe and not how.replaces_all:
        condition += [f"t.{quoted(name)} BETWEEN {range_literals(b)}" for name, b in how.bounds.items()]
    return " AND ".join(condition)


def unsent(
    spark: SparkSession, how: Append | Merge, changes: Changes, deduplicated: DataFrame, columns: Sequence[ColumnType]
) -> frozenset[str]:
    """Return the columns whose values some change keeps, though the table has no row that could keep them.

    PostgreSQL does not send a large value that an update did not touch, and an update of the key makes a new row.
    """
    names = ", ".join(literal(c.name) for c in columns if c.name not in changes.key)
    if not how.keeps_values or not names:
        return frozenset()
    key = as_stored(changes, [c for c in columns if c.name in changes.key], keeps_values=False)
    kept = f"filter({KEPT}, name -> name IN ({names})) AS {KEPT}"
    keeping = deduplicated.filter(APPLIED).filter(F.col(OP) == Op.UPSERT.value).selectExpr(*key, kept)
    with temp_view(keeping.filter(F.size(KEPT) > 0), _SOURCE):
        text = f"SELECT DISTINCT explode({KEPT}) AS name FROM {_SOURCE} s"
        if isinstance(how, Merge) and not how.replaces_all:
            # A broadcast of the few changes: joined with them at once, the table would be shuffled.
            found = ", ".join(f"t.{quoted(name)}" for name in how.key)
            stored = f"SELECT /*+ BROADCAST(s) */ {found} FROM {how.table} t JOIN {_SOURCE} s ON {_same_row(how)}"
            same = " AND ".join(f"t.{quoted(name)} <=> s.{quoted(name)}" for name in how.key)
            text += f" LEFT ANTI JOIN ({stored}) t ON {same}"
        return frozenset(row.name for row in spark.sql(text).collect())


def _assignments(how: Merge, columns: Sequence[str]) -> str:
    def value(name: str) -> str:
        column = quoted(name)
        if not how.keeps_values or name in how.key:
            return f"s.{column}"
        return f"CASE WHEN array_contains(s.{KEPT}, {literal(name)}) THEN t.{column} ELSE s.{column} END"

    # A table of nothing but its key still needs an assignment.
    assigned = [name for name in columns if name not in how.key] or list(how.key)
    return ", ".join(f"t.{quoted(name)} = {value(name)}" for name in assigned)


def delete_stale(spark: SparkSession, table: str, through_sequence_number: int, properties: Mapping[str, str]) -> None:
    """Delete the rows last changed at or before an Iceberg sequence number, which a new connector snapshot did not contain.

    `abs` keeps Iceberg from treating the metadata column as one of the table's, which its metadata-only delete would do.
    """
    with snapshot_properties(spark, properties):
        spark.sql(f"DELETE FROM {table} WHERE abs(_last_updated_sequence_number) <= {through_sequence_number}")


def rewrite(  # noqa: PLR0913 - a session, a table, and the rows to write
    spark: SparkSession,
    table: str,
    key: Sequence[str],
    rows: DataFrame,
    properties: Mapping[str, str],
    where: Sequence[str],
) -> None:
    """Write the rows with the keys of `rows` again, as they are: their Iceberg sequence numbers become those of this commit.

    All keys fulfil the conditions `where` on the table `t`, by which Iceberg skips files.
    """
    same = " AND ".join([*(f"t.{quoted(name)} = s.{quoted(name)}" for name in key), *where])
    with snapshot_properties(spark, properties), temp_view(rows, _SOURCE):
        kept = f"{quoted(key[0])} = t.{quoted(key[0])}"
        spark.sql(f"MERGE INTO {table} t USING {_SOURCE} s ON {same} WHEN MATCHED THEN UPDATE SET {kept}")


def as_stored(changes: Changes, columns: Sequence[ColumnType], *, keeps_values: bool) -> list[str]:
    """Write the table's columns as expressions over the batch's: exact casts, or the initial value of a column they lack.

    A row that the table lacks has no value to keep. It gets null until a snapshot brings the value, see `unsent`.
    """
    incoming = {c.name: c.type for c in changes.columns}

    def value(column: ColumnType) -> str:
        if column.name not in incoming:
            return column.initial_sql
        known = cast(quoted(column.name), incoming[column.name], column.type)
        if not keeps_values or column.name in changes.key:
            return known
        return f"CASE WHEN array_contains({KEPT}, {literal(column.name)}) THEN NULL ELSE {known} END"

    return [f"{value(c)} AS {quoted(c.name)}" for c in columns]
