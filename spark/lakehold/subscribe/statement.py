"""What a SUBSCRIBE says: values only, in the words of the specification (seed "Subscribe output")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakehold.spark_sql import quoted
from lakehold.subscribe.plain_select import PlainSelect


@dataclass(frozen=True)
class TableReference:
    """A table inside a query's text.

    Attributes:
        full_name: `namespace.table`, without the catalog.
        start: Zero-based offset of its first character in the query's text.
        end_exclusive: Offset behind its last character; an alias is not part of it.
        implied_alias: The name that the query knows it by, where it gives none: what replaces the table under another
            name must be given this alias. Empty where the query has an alias.
    """

    full_name: str
    start: int
    end_exclusive: int
    implied_alias: str = ""


@dataclass(frozen=True)
class Query:
    """A SELECT over tables of the lake.

    Attributes:
        text: As written.
        tables: Every place that names a table, in the order of the text; one that comes twice is here twice.
        columns_at: Where the select list begins, for a query of one table that filters and computes row by row (no
            aggregate, DISTINCT, window, join, set operation, subquery, generator, ORDER BY or LIMIT): it means the same over
            diffs. None for any other.
        plain: What it says, where it only picks columns and compares them with constants.
    """

    text: str
    tables: tuple[TableReference, ...]
    columns_at: int | None = None
    plain: PlainSelect | None = None

    def over(self, tables: Mapping[str, str], views: Mapping[str, str] | None = None, columns: str = "") -> str:
        """The text reading other relations.

        Args:
            tables: SQL that reads the same table, by full name.
            views: SQL that reads a relation of another name, by full name.
            columns: SQL put right behind SELECT, with the blanks it needs; takes `columns_at`.
        """
        parts = []
        for table in self.tables:
            replacement = tables.get(table.full_name)
            if replacement is None:
                alias = f" AS {quoted(table.implied_alias)}" if table.implied_alias else ""
                replacement = (views or {})[table.full_name] + alias
            parts.append((table.start, table.end_exclusive, replacement))
        if columns and self.columns_at is not None:
            parts.append((self.columns_at, self.columns_at, columns))
        text = self.text
        for start, end_exclusive, replacement in sorted(parts, reverse=True):
            text = text[:start] + replacement + text[end_exclusive:]
        return text


@dataclass(frozen=True)
class Raw:
    """Diffs as they are: `mz_timestamp, [mz_progressed,] mz_diff, columns`."""


@dataclass(frozen=True)
class OrderItem:
    """One item of WITHIN TIMESTAMP ORDER BY.

    Attributes:
        expression: SQL over `mz_diff` and the columns; empty for an ordinal.
        ordinal: One-based place among `mz_diff` and the columns; None for an expression.
        direction: `ASC`, `DESC`, with or without `NULLS FIRST` or `NULLS LAST`, in capitals; empty for Spark's default.
    """

    expression: str
    ordinal: int | None = None
    direction: str = ""


@dataclass(frozen=True)
class OrderedWithin:
    """`WITHIN TIMESTAMP ORDER BY …`: raw, in this order within each timestamp."""

    items: tuple[OrderItem, ...]


@dataclass(frozen=True)
class UpsertEnvelope:
    """`ENVELOPE UPSERT (KEY (…))`: `mz_timestamp, [mz_progressed,] mz_state, key, values`."""

    key: tuple[str, ...]


@dataclass(frozen=True)
class DebeziumEnvelope:
    """`ENVELOPE DEBEZIUM (KEY (…))`: `mz_timestamp, [mz_progressed,] mz_state, key, before_*, after_*`."""

    key: tuple[str, ...]


OutputShape = Raw | OrderedWithin | UpsertEnvelope | DebeziumEnvelope


@dataclass(frozen=True)
class Subscribe:
    """One SUBSCRIBE.

    Attributes:
        relation: Full name of a table, or a query.
        shape: What the rows look like; at most one modifier.
        snapshot: Whether the rows that are there at `as_of_ms` come first, stamped with it.
        progress: Whether rows tell how far the output is complete.
        as_of_ms: First timestamp, inclusive; None: the latest that is readable.
        up_to_ms: Where it ends, exclusive; None: at `upper`, or never when it is followed.
    """

    relation: str | Query
    shape: OutputShape = Raw()
    snapshot: bool = True
    progress: bool = False
    as_of_ms: int | None = None
    up_to_ms: int | None = None

    @property
    def tables(self) -> tuple[str, ...]:
        """Full names of the tables it reads, each once."""
        if isinstance(self.relation, str):
            return (self.relation,)
        return tuple(dict.fromkeys(table.full_name for table in self.relation.tables))
