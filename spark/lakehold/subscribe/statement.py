"""A parsed SUBSCRIBE, as plain values: `sql/parse/subscribe.py` makes them, `subscription_opening` opens them on a lake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lakehold.errors import DefinitionError
from lakehold.nearest import did_you_mean
from lakehold.spark_sql import quoted, spliced
from lakehold.subscribe.column_uses import ColumnUses
from lakehold.subscribe.incremental_plan import Plan, Whole
from lakehold.subscribe.plain_select import PlainSelect
from lakehold.timeline.as_of import LATEST, AsOf


@dataclass(frozen=True)
class TableReference:
    """A table inside a query's text.

    Attributes:
        full_name: `namespace.table`, without the catalog.
        start: Zero-based offset of its first character in the query's text.
        end_exclusive: Offset after its last character; an alias is not included.
        implied_alias: The name by which a query without an alias refers to the table. A relation of another name that
            replaces the table needs this alias. Empty if the query has an alias.
    """

    full_name: str
    start: int
    end_exclusive: int
    implied_alias: str = ""


@dataclass(frozen=True)
class Query:
    """A SELECT over tables of the lake.

    Attributes:
        text: The query as written.
        tables: Every reference to a table, in the order of the text.
        columns_at: Where the select list begins, for a query of one table that filters and computes row by row (no
            aggregate, DISTINCT, window, join, set operation, subquery, generator, ORDER BY or LIMIT). Such a query can
            run over diffs. None for any other query.
        plain: The query's content, if it only selects columns and compares them with constants.
        plan: How the changes of its result are found.
        key: Columns of which each row of its result has other values; empty if none are known.
        uses: How it uses columns of its tables.
    """

    text: str
    tables: tuple[TableReference, ...]
    columns_at: int | None = None
    plain: PlainSelect | None = None
    plan: Plan = field(default_factory=lambda: Whole("it was not planned"), repr=False)
    key: tuple[str, ...] = field(default=(), repr=False)
    uses: ColumnUses = field(default_factory=ColumnUses, repr=False)

    def over(self, tables: Mapping[str, str], views: Mapping[str, str] | None = None, columns: str = "") -> str:
        """Rewrite the text to read other relations.

        Args:
            tables: SQL that reads the same table, by full name of the table.
            views: SQL that reads a relation of another name, by full name of the table that it replaces.
            columns: SQL inserted right after SELECT, with the blanks it needs; requires `columns_at`.
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
        return spliced(self.text, parts)


@dataclass(frozen=True)
class Raw:
    """Unchanged diffs: `mz_timestamp, [mz_progressed,] mz_diff, columns`."""


@dataclass(frozen=True)
class OrderItem:
    """One sort key of WITHIN TIMESTAMP ORDER BY.

    Attributes:
        expression: SQL over `mz_diff` and the columns; empty for an ordinal.
        ordinal: One-based position among `mz_diff` and the columns; None for an expression.
        direction: `ASC`, `DESC`, with or without `NULLS FIRST` or `NULLS LAST`, in capitals; empty for Spark's default.
        texts: What the expression has in double quotes, which Spark reads as texts.
    """

    expression: str
    ordinal: int | None = None
    direction: str = ""
    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class OrderedWithin:
    """The output option `WITHIN TIMESTAMP ORDER BY …`: raw diffs, in this order within each timestamp."""

    items: tuple[OrderItem, ...]


@dataclass(frozen=True)
class UpsertEnvelope:
    """The output option `ENVELOPE UPSERT (KEY (…))`: `mz_timestamp, [mz_progressed,] mz_state, key, values`."""

    key: tuple[str, ...]


@dataclass(frozen=True)
class DebeziumEnvelope:
    """The output option `ENVELOPE DEBEZIUM (KEY (…))`.

    Its columns are `mz_timestamp, [mz_progressed,] mz_state, key, before_*, after_*`.
    """

    key: tuple[str, ...]


@dataclass(frozen=True)
class HistoryEnvelope:
    """The output option `ENVELOPE HISTORY (KEY (…)) [TRACK …]`, which only a subscription has: its table keeps ranges of time.

    Attributes:
        key: The columns of the key.
        track: Columns whose changes begin a new range; empty: all, except those of `untracked`.
        untracked: Columns whose changes update the current range.
    """

    key: tuple[str, ...]
    track: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()

    @property
    def changes(self) -> DebeziumEnvelope:
        """Return the output option whose rows the ranges are made of."""
        return DebeziumEnvelope(self.key)

    def tracked(self, names: Sequence[str], stored: Iterable[str] = ()) -> frozenset[str]:
        """Return which of the columns `names` are tracked.

        Args:
            names: The columns of what is read.
            stored: The columns of the history's table: of these, what is read may have lost those that are not in the key.

        Raises:
            DefinitionError: A column of the envelope does not exist or is ambiguous.
        """
        lost = {name.lower() for name in stored} - {name.lower() for name in names}
        of_key = {find_column(name, names) for name in self.key}
        named = {find_column(name, names) for name in (*self.track, *self.untracked) if name.lower() not in lost}
        values = set(range(len(names))) - of_key
        return frozenset(names[place] for place in (named if self.track else values - named))


OutputShape = Raw | OrderedWithin | UpsertEnvelope | DebeziumEnvelope | HistoryEnvelope


def find_column(name: str, names: Sequence[str]) -> int:
    """Find the column called `name`; an exact match wins over one that differs in case.

    Raises:
        DefinitionError: The column does not exist or is ambiguous.
    """
    exact = [place for place, known in enumerate(names) if known == name]
    found = exact or [place for place, known in enumerate(names) if known.lower() == name.lower()]
    if len(found) == 1:
        return found[0]
    raise DefinitionError(
        f'there are {len(found)} columns "{name}"' if found else f'there is no column "{name}"',
        code="column-ambiguous" if found else "column-missing",
        detail=f"Columns: {', '.join(names)}.",
        hint="" if found else did_you_mean(name, names),
    )


def refuse_history(statement: Subscribe) -> None:
    """Refuse ENVELOPE HISTORY where rows go to a reader.

    Raises:
        DefinitionError: The statement has it.
    """
    if isinstance(statement.shape, HistoryEnvelope):
        raise DefinitionError(
            "ENVELOPE HISTORY is for subscriptions",
            code="envelope-history",
            detail="It keeps ranges of time in a table, where later changes end them.",
            hint="CREATE SUBSCRIPTION name AS SUBSCRIBE … ENVELOPE HISTORY …; to read changes, write ENVELOPE DEBEZIUM.",
        )


def enveloped(envelope: str | None, key: tuple[str, ...]) -> Raw | UpsertEnvelope | DebeziumEnvelope:
    """Return the output option of an envelope's name and key, in any case; without both, raw diffs.

    Raises:
        DefinitionError: There is no such envelope, or only one of name and key is given.
    """
    match (envelope or "").lower(), key:
        case "", ():
            return Raw()
        case "upsert", (_, *_):
            return UpsertEnvelope(key)
        case "debezium", (_, *_):
            return DebeziumEnvelope(key)
        case "" | "upsert" | "debezium", _:
            lacks = "a key" if envelope else "an envelope"
            message, hint = f"changes with {'an envelope' if envelope else 'a key'} need {lacks}", f"Pass {lacks}, too."
        case _:
            message, hint = f'there is no envelope "{envelope}"', 'Pass "upsert" or "debezium".'
    raise DefinitionError(message, code="envelope", hint=hint)


@dataclass(frozen=True)
class Subscribe:
    """One SUBSCRIBE statement.

    Attributes:
        relation: Full name of a table, or a query.
        shape: The output option: an order or an envelope; `Raw` if the statement has neither.
        snapshot: Whether the output begins with all rows at `as_of`, stamped with that timestamp.
        progress: Whether progress rows report how far the output is complete.
        tokens: Whether progress rows have the resume tokens with which a later read continues after them.
        resume: The token with which this one continues.
        as_of: The time of the snapshot; the changes after it (exclusive) follow.
        up_to_ms: End of the output, exclusive. None: it ends at `upper`, or never if it is followed.
        text: The statement as written, but without the name of the lake's catalog and without the token, so that it can
            be kept.
    """

    relation: str | Query
    shape: OutputShape = Raw()
    snapshot: bool = True
    progress: bool = False
    tokens: bool = False
    resume: str | None = None
    as_of: AsOf = LATEST
    up_to_ms: int | None = None
    text: str = field(default="", compare=False, repr=False)

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the full names of the tables that the statement reads, each once."""
        if isinstance(self.relation, str):
            return (self.relation,)
        return tuple(dict.fromkeys(table.full_name for table in self.relation.tables))


@dataclass(frozen=True)
class Changes:
    """The changes of a table as rows that a query can read: `CHANGES(table AS OF t1 UP TO t2, …)`.

    Attributes:
        table: The table's full name.
        as_of: The changes after this time are read.
        up_to_ms: The end, exclusive; None for the end of what can be read now.
        shape: Raw diffs, or an envelope.
        net: Whether all changes are read as one, at the timestamp of the last.
    """

    table: str
    as_of: AsOf
    up_to_ms: int | None = None
    shape: OutputShape = Raw()
    net: bool = False

    @property
    def subscribe(self) -> Subscribe:
        """Return the SUBSCRIBE that has the same rows without NET."""
        return Subscribe(self.table, self.shape, snapshot=False, as_of=self.as_of, up_to_ms=self.up_to_ms)
