"""A change: the effect of one message on one row, as the columns on which all stages from envelope to merge agree.

A *changes* DataFrame has the user's columns (key columns first when the value lacks them) beside these internal ones:

    _lh_partition int, _lh_offset bigint     the offset of the message
    _lh_op string                            one of `Op`; null where `_lh_error` is set
    _lh_position struct<a,b,c,d bigint>      the upstream log position of the change; null when the connector gives none
    _lh_source_ms bigint                     when it was committed upstream, epoch milliseconds; null if unknown
    _lh_phase string                         one of `Phase`
    _lh_kept array<string>                   columns whose stored value stays (Debezium's unavailable placeholder)
    _lh_key_bytes binary                     the raw message key
    _lh_connector string                     Debezium's `source.connector`; null where messages are not its events
    _lh_before_missing boolean               an update came without `before`
    _lh_error, _lh_detail string             why the message cannot be applied; null when it can
    _lh_transaction struct<…>                header for whole transactions (`transactions.record_headers`), or null;
                                             only sources with a transaction topic have the column
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakehold.ingest.decode.types import ColumnType

PARTITION = "_lh_partition"
OFFSET = "_lh_offset"
OP = "_lh_op"
POSITION = "_lh_position"
SOURCE_MS = "_lh_source_ms"
PHASE = "_lh_phase"
KEPT = "_lh_kept"
KEY_BYTES = "_lh_key_bytes"
CONNECTOR = "_lh_connector"
BEFORE_MISSING = "_lh_before_missing"
ERROR = "_lh_error"
DETAIL = "_lh_detail"
TRANSACTION = "_lh_transaction"

KEYLESS = "keyless"
"""The error of a change without a message key, if the table takes its key from there: it stops the table, and is not recorded."""

UNORDERED = "unordered"
"""The error of a change to a table without a key that may be a repetition: it stops the table, like `KEYLESS`."""

OF_ONE_TABLE = "ad-hoc-snapshot"
"""The error of a row of an ad-hoc snapshot, which a table without a key may have already: it stops the table, like `KEYLESS`."""

ROW_MISSING = "row-missing"
"""The error of a change that removes a row which a table without a key lacks. It stops the table, unless a message in error may
have been the row: then it is recorded."""

POSITION_TYPE = "struct<a:bigint,b:bigint,c:bigint,d:bigint>"


class Op(StrEnum):
    """The effect that a change has on a row."""

    UPSERT = "u"
    DELETE = "d"
    TRUNCATE = "t"
    NOTHING = "n"


class Phase(StrEnum):
    """The part of a connector's life that a change comes from."""

    STREAM = "stream"
    SNAPSHOT = "snapshot"
    SNAPSHOT_END = "snapshot-end"
    AD_HOC = "ad-hoc"


SNAPSHOT_PHASES = (Phase.SNAPSHOT.value, Phase.SNAPSHOT_END.value)
"""The phases of rows of a connector's own snapshots."""


@dataclass(frozen=True)
class Changes:
    """The changes one batch brings to one table.

    Args:
        frame: The DataFrame the module describes.
        key: The key's columns, in order; each is among `columns` and has single values. None where rows have no key, or
            no message that can be decoded has one.
        compared: Names of the columns by which rows of a table without a key are equal: those that messages have. None for
            other tables, those of ENVELOPE NONE among them.
        columns: The user's columns in the order the table should have them.
        needs_before: Whether the key is taken from the rows, so that only the row before an update shows whether it changed
            the key.
        knows_rows: Whether some schema or column list gives the columns of rows; without one every message with a row is an
            error.
        lacks_before: Whether a schema of the messages has no `before`.
        left_out: Parts of messages that no table can hold, in sentences.
        unknown: New columns whose values in older rows only a snapshot of the table shows.
        renamed: The names of columns by their earlier names.
        numbers: The numbers of the columns in the database, if it was asked.
        unfilled: New columns that may have values in older rows, about which no database can be asked.
        partial: Columns that some of the messages lack.
    """

    frame: DataFrame
    key: tuple[str, ...]
    columns: tuple[ColumnType, ...]
    compared: tuple[str, ...] | None = None
    needs_before: bool = False
    knows_rows: bool = True
    lacks_before: bool = False
    left_out: tuple[str, ...] = ()
    unknown: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)
    unfilled: frozenset[str] = frozenset()
    partial: frozenset[str] = frozenset()

    @property
    def is_multiset(self) -> bool:
        """Return whether rows have no key, and a change adds a row or removes one of the equal rows."""
        return self.compared is not None
