"""A change: the effect of one message on one row, as the columns on which all stages from envelope to merge agree.

`unwrap.py` makes changes of decoded messages, `ingest/deduplicate` decides which of them are applied, `ingest/write` applies
them. A *changes* DataFrame has the user's columns (key columns first when the value lacks them) beside these internal ones:

    _lh_partition int, _lh_offset bigint     the offset of the message
    _lh_op string                            one of `Op`; null where `_lh_error` is set
    _lh_position struct<a,b,c,d bigint>      the upstream log position of the change, compared from `a` to `d`
                                             (`position.py` has what they are); null when the connector gives none
    _lh_source_ms bigint                     when it was committed upstream, epoch milliseconds; null if unknown
    _lh_phase string                         one of `Phase`
    _lh_kept array<string>                   columns whose stored value stays (Debezium's unavailable placeholder)
    _lh_key_bytes binary                     the raw message key
    _lh_connector string                     Debezium's `source.connector`; null where messages are not its events
    _lh_before_missing boolean               an update came without `before`; in a table without a key also a delete without it,
                                             or a row with the placeholder
    _lh_lacks array<string>                  columns that the message's schema lacks; only changes of a table without a key whose
                                             messages have several schemas have it
    _lh_error, _lh_detail string             why the message cannot be applied; null when it can
    _lh_transaction struct<…>                the facts about the record that whole transactions need: its id, its number in the
                                             transaction, … (`header_columns.py`; not Kafka's headers). Null for a record of
                                             none; only sources with a transaction topic have the column
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakehold.tables.column_types import ColumnType

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
LACKS = "_lh_lacks"
ERROR = "_lh_error"
DETAIL = "_lh_detail"
TRANSACTION = "_lh_transaction"

KEYLESS = "keyless"
"""The error of a change without a message key, if the table takes its key from message keys.

Such a change stops the table, and gets no row in `mz_catalog.mz_source_errors`.
"""

NULL_IN_KEY = "null-in-key"
"""The error of a change whose message key has a null, if the table takes its key from there: it stops the table, like `KEYLESS`.

Without a primary key Debezium takes the columns of a unique index, which may hold several rows with nulls.
"""

UNORDERED = "unordered"
"""The error of a change without `transaction.total_order` to a table without a key: it stops the table, like `KEYLESS`.

One INSERT may log several equal rows at one LSN. Only `total_order` distinguishes them from one event that was sent again.
"""

OF_ONE_TABLE = "ad-hoc-snapshot"
"""The error of a row of an ad-hoc snapshot, which shows some tables alone: it stops a table without a key, like `KEYLESS`.

The table may have the row already, and nothing distinguishes it from a further equal row.
"""

ROW_MISSING = "row-missing"
"""The error of a change that removes a row which a table without a key lacks. It stops the table, unless a message in error may
have been the row: then it is recorded."""

POSITION_TYPE = "struct<a:bigint,b:bigint,c:bigint,d:bigint>"


class Op(StrEnum):
    """The effect that a change has on a row, or on all rows (`TRUNCATE`)."""

    UPSERT = "u"
    DELETE = "d"
    TRUNCATE = "t"
    NOTHING = "n"
    """The record changes no row: a tombstone, a logical message, or a TRUNCATE that the table ignores.

    It stays among the changes, as it may heal an earlier error of its key.
    """


class Phase(StrEnum):
    """The part of a connector's life that a change comes from."""

    STREAM = "stream"
    """A change that the connector read from the database's log."""
    SNAPSHOT = "snapshot"
    """A row of a snapshot that the connector took by itself."""
    SNAPSHOT_START = "snapshot-start"
    """The first row of a table in such a snapshot. A single row may be the last one instead."""
    SNAPSHOT_END = "snapshot-end"
    """The last row of a table in such a snapshot."""
    AD_HOC = "ad-hoc"
    """A row of a snapshot that a signal requested while the connector streamed."""


SNAPSHOT_PHASES = (Phase.SNAPSHOT.value, Phase.SNAPSHOT_START.value, Phase.SNAPSHOT_END.value)
"""The phases of rows of a snapshot that the connector took by itself."""


@dataclass(frozen=True)
class Changes:
    """The changes one batch brings to one table.

    Args:
        frame: The DataFrame the module describes.
        key: The key's columns, in order; each is among `columns` and is no struct, list or map. Empty where rows have no key,
            or no message that can be decoded has one.
        compared: Names of the columns in which two rows of a table without a key must agree to be equal: all columns of the
            messages. None for other tables, those of ENVELOPE NONE among them.
        columns: The user's columns in the order the table should have them.
        needs_before: Whether the key is taken from the rows, so that only the row before an update shows whether it changed
            the key.
        knows_rows: Whether some schema or column list gives the columns of rows; without one every message with a row is an
            error.
        lacks_before: Whether at least one schema of the messages has no field `before`.
        left_out: Parts of messages that no table can hold, in sentences for people.
        unknown: New columns whose values in older rows only a connector snapshot of the table shows, such as one with the
            default `random()`.
        renamed: The names of columns by their earlier names.
        numbers: PostgreSQL's numbers of the columns (`attnum`), if lakehold asked the database: they reveal a renamed column.
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
