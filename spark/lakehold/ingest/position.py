"""Where a change stands upstream: the order that decides what a high-water mark has passed (`envelopes.md`, "Description").

A position is four numbers, compared from the left:

    PostgreSQL   (last commit LSN, LSN, total order in the transaction, delete before create)
    MySQL        (binlog file number, position in it, row in the event, delete before create)

`source.lsn` alone goes backward when transactions overlap; `(lastCommitLsn, lsn)` does not (facts, "What a consumer must get
right"). The first transaction after a snapshot has no last commit: its own LSN stands in, which lies above the snapshot's and
every earlier commit and below its own commit, so that it sorts where it belongs even when a connector starts over. A primary-key
update is a delete and a create at one LSN; without transaction metadata the last number tells them apart. Snapshot rows stand
below any streamed change that begins at the same point.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from lakehold.ingest.changes import POSITION_TYPE
from lakehold.ingest.marks import Position

POSTGRES = ("postgresql",)
MYSQL = ("mysql", "mariadb")
_BEFORE_ANY_STREAMED = -1


def position_of(source: Column, transaction: Column, op: Column) -> Column:
    """The position as `struct<a,b,c,d bigint>`; null for other connectors and for rows of an ad-hoc snapshot."""
    connector, lsn, binlog_position = source.getField("connector"), source.getField("lsn"), source.getField("pos")
    is_snapshot = op == "r"
    last_commit = F.get_json_object(source.getField("sequence"), "$[0]").try_cast("bigint")
    order = F.when(op == "d", 0).otherwise(1)
    ad_hoc = is_ad_hoc(source, op)
    postgres = _struct(
        F.when(is_snapshot, lsn).otherwise(F.coalesce(last_commit, lsn)),
        lsn,
        F.when(is_snapshot, _BEFORE_ANY_STREAMED).otherwise(F.coalesce(transaction.getField("total_order"), F.lit(0))),
        order,
    )
    file_number = F.regexp_extract(source.getField("file"), r"(\d+)$", 1).try_cast("bigint")
    mysql = _struct(
        file_number,
        binlog_position,
        F.when(is_snapshot, _BEFORE_ANY_STREAMED).otherwise(F.coalesce(source.getField("row"), F.lit(0))),
        order,
    )
    return F.when(connector.isin(*POSTGRES) & lsn.isNotNull() & ~ad_hoc, postgres).when(
        connector.isin(*MYSQL) & file_number.isNotNull() & binlog_position.isNotNull() & ~ad_hoc, mysql
    )


def is_ad_hoc(source: Column, op: Column) -> Column:
    """Whether a row is of a snapshot that was asked for while the connector streams, of whatever it was asked for.

    Such rows say what is there, not what is gone, and stand among streamed changes where the topic has them. An incremental
    one says that it is; a blocking one knows the last commit, which the connector's first snapshot cannot.
    """
    incremental = source.getField("snapshot") == "incremental"
    blocking = (op == "r") & ~source.getField("sequence").startswith("[null")
    return F.coalesce(incremental, F.lit(False)) | F.coalesce(blocking, F.lit(False))


def literal(position: Position) -> Column:
    """`position` as a value of `POSITION_TYPE`."""
    a, b, c, d = map(F.lit, position)
    return _struct(a, b, c, d)


def _struct(a: Column, b: Column, c: Column, d: Column) -> Column:
    parts = [part.cast("bigint").alias(name) for part, name in zip((a, b, c, d), "abcd", strict=True)]
    return F.struct(*parts).cast(POSITION_TYPE)
