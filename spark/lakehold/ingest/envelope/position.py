"""The upstream position of a change: its place in the database's log, as numbers that can be compared.

A table keeps the highest position that it has applied of each partition, its high-water mark. `docs/reference/envelopes.md`,
"High-water marks of DEBEZIUM", says what that is for. A position is four numbers, compared from the left:

    PostgreSQL   (last commit LSN, LSN, total order in the transaction, delete before create)
    MySQL        (binlog file number, position in it, row in the event, delete before create)

`source.lsn` alone goes backward when transactions overlap; `(lastCommitLsn, lsn)` does not. The first transaction after a
snapshot has no last commit: its own LSN replaces it. That lies above the snapshot's LSN and every earlier commit and below its
own commit, so that it sorts correctly even when a connector starts over. A primary-key update is a delete and a create at one
LSN; without transaction metadata the last number distinguishes them. Snapshot rows sort below any streamed change that begins
at the same point.

The connectors of MySQL and MariaDB repeat an interrupted snapshot at the same binlog position if nothing was logged meanwhile.
Rows with a key are then written again. Without a key they would look like further equal rows, so the position of such a snapshot
row has the attempt in its third number (`lakehold.ingest.deduplicate.change_headers`).
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column
from pyspark.sql import functions as F

from lakehold.ingest.envelope.change_columns import POSITION_TYPE
from lakehold.model.high_water_marks import Position

POSTGRES = ("postgresql",)
MYSQL = ("mysql", "mariadb")
_BEFORE_ANY_STREAMED = -1


def position_of(source: str, transaction: str, op: str) -> str:
    """Write the position as `struct<a,b,c,d bigint>`; null for other connectors and for rows of an ad-hoc snapshot.

    Args:
        source: Name of the column with Debezium's `source`.
        transaction: Name of the column with `transaction`.
        op: Name of the column with `op`.
    """
    # `["24023119","24023128"]` and `mysql-bin.000003`: parsing JSON and matching patterns took half of what decoding takes.
    last_commit = (
        f"CASE WHEN startswith({source}.sequence, '[\"')"
        f" THEN try_cast(substring_index(substring({source}.sequence, 3), '\"', 1) AS bigint) END"
    )
    file_number = f"try_cast(substring_index({source}.file, '.', -1) AS bigint)"

    def position(a: str, b: str, order: str) -> str:
        third = f"CASE WHEN {op} = 'r' THEN {_BEFORE_ANY_STREAMED} ELSE coalesce({order}, 0) END"
        fourth = f"CASE WHEN {op} = 'd' THEN 0L ELSE 1L END"
        return f"named_struct('a', {a}, 'b', {b}, 'c', CAST({third} AS bigint), 'd', {fourth})"

    postgres = position(
        f"CASE WHEN {op} = 'r' THEN {source}.lsn ELSE coalesce({last_commit}, {source}.lsn) END",
        f"{source}.lsn",
        f"{transaction}.total_order",
    )
    mysql = position(file_number, f"{source}.pos", f"{source}.row")
    # Cast, so that all four may be null: Arrow refuses a null structure whose fields may not be.
    return (
        f"CAST(CASE WHEN {is_ad_hoc(source, op)} THEN NULL"
        f" WHEN {source}.connector IN {_listed(POSTGRES)} AND {source}.lsn IS NOT NULL THEN {postgres}"
        f" WHEN {source}.connector IN {_listed(MYSQL)} AND {file_number} IS NOT NULL AND {source}.pos IS NOT NULL"
        f" THEN {mysql} END AS {POSITION_TYPE})"
    )


def is_ad_hoc(source: str, op: str) -> str:
    """Write the condition that a row belongs to an ad-hoc snapshot: it was requested by a signal while the connector streamed.

    Such rows show what exists, not what was deleted, and stay in their place among streamed changes. Rows of an incremental
    snapshot are marked as such; those of a blocking one have a last commit, which rows of the connector's first snapshot
    cannot have.
    """
    incremental = f"{source}.snapshot = 'incremental'"
    blocking = f"{op} = 'r' AND NOT startswith({source}.sequence, '[null')"
    return f"coalesce({incremental} OR {blocking}, false)"


def commits_by_itself(source: str, op: str) -> str:
    """Write the condition that an event is its whole transaction: TRUNCATE of MySQL and MariaDB has a BEGIN and no END.

    Args:
        source: Name of the column with Debezium's `source`.
        op: Name of the column with `op`.
    """
    return f"coalesce({op} = 't' AND {source}.connector IN {_listed(MYSQL)}, false)"


def _listed(texts: tuple[str, ...]) -> str:
    return f"({', '.join(map(repr, texts))})"


def written(position: Position, connectors: Collection[str]) -> str:
    """Format `position` as the database's tools do: PostgreSQL's LSN, or file number and position in MySQL's binlog."""
    a, b, *_ = position
    if any(connector in MYSQL for connector in connectors):
        return f"file {a}, position {b}"
    return f"{b >> 32:X}/{b & 0xFFFFFFFF:X}"


def position_value(position: Position) -> Column:
    """Return `position` as a value of `POSITION_TYPE`."""
    parts = [F.lit(part).cast("bigint").alias(name) for part, name in zip(position, "abcd", strict=True)]
    return F.struct(*parts).cast(POSITION_TYPE)
