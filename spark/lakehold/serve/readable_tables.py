"""The tables that a token may read, and what a statement reads besides.

A statement is refused by the names in its text, before anything is looked up: so its error tells nothing about other tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from lakehold.errors import LakeholdError, PermissionDenied
from lakehold.nearest import suggested_name
from lakehold.serve.admission import Admitted, queries_in
from lakehold.sql.query.queries import COMPUTED_TABLES, is_common_table
from lakehold.sql.query.query_tree import QueryTree
from lakehold.sql.run.one_query import describes
from lakehold.sql.statements import (
    AdvanceHold,
    CreateHold,
    DropHold,
    ExplainSubscribe,
    ForSpark,
    ParsedStatement,
    RenameHold,
    SelectAsOf,
    SubscribeTo,
)
from lakehold.sql.text.cursor import Cursor
from lakehold.state.holds import Holds

_TABLE_PARTS = 2

_OF_TABLE = re.compile(
    r"(all_)?(data_|delete_)?files|(all_)?manifests|(all_)?entries|snapshots|history|refs|partitions|position_deletes|"
    r"metadata_log_entries|(branch|tag)_.+|(at_timestamp|snapshot_id)_\d+",
    re.I,
)
"""What Iceberg reads of a table by a name after its own; any other name is that of a table in a namespace of the table's name."""


@dataclass(frozen=True)
class ReadableTables:
    """The tables that a token may read.

    Attributes:
        patterns: Full names, and `namespace.*` for all tables of a namespace.
    """

    patterns: frozenset[str]

    def has_schema(self, namespace: str) -> bool:
        """Return whether any table of a namespace may be read."""
        return any(pattern.rpartition(".")[0] == namespace for pattern in self.patterns)

    def has(self, full_name: str) -> bool:
        """Return whether a table may be read."""
        return not self.patterns.isdisjoint((full_name, f"{full_name.rpartition('.')[0]}.*"))

    def conceal_others(self, error: LakeholdError) -> None:
        """Remove the hint of an error that suggests a table which may not be read: columns have no namespace."""
        name = suggested_name(error.hint)
        if name is not None and "." in name and not self.has(name):
            error.hint = ""

    def check(self, statement: Admitted, holds: Callable[[], Holds]) -> None:
        """Check that a statement reads these tables only, and concerns only holds on them.

        Args:
            statement: The statement.
            holds: Returns the holds of the lake.

        Raises:
            PermissionDenied: It does not.
        """
        match statement.parsed.statement:
            case CreateHold(hold):
                self._check_names(hold.tables)
            case AdvanceHold(name) | RenameHold(name) | DropHold(name):
                self._check_hold(name, holds())
            case SubscribeTo(subscribe) | ExplainSubscribe(subscribe):
                self._check_names(subscribe.tables)
            case SelectAsOf(query):
                self._check_names([table.full_name for table in query.tables])
            case ForSpark() as found if not describes(statement.parsed) or queries_in(statement.parsed):
                self._check_names([placed.changes.table for placed in found.changes])
                self._check_query(statement.parsed)
            case _:
                raise self._refused("a token that is limited to tables may not run this statement")

    def _check_names(self, full_names: Sequence[str]) -> None:
        for name in full_names:
            if not self.has(name):
                raise self._refused(f'the token may not read "{name}"')

    def _check_hold(self, name: str, holds: Holds) -> None:
        called = [hold for hold in holds if name in (hold.name, hold.full_name)]
        if not called or not all(self.has(table.full_name) for hold in called for table in hold.tables):
            raise self._refused(f'the token may not change a hold "{name}"')

    def _check_query(self, parsed: ParsedStatement) -> None:
        """Check each name of a table in a query that Spark reads; sqlglot does not see those inside `TABLE (…)`."""
        for query in queries_in(parsed):
            cursor = Cursor(query.written)
            while not cursor.at_end:
                if cursor.word() in COMPUTED_TABLES and cursor.source_text(cursor.peek(1)) == "(":
                    raise self._refused(f"the token may not read {cursor.word()} (…)")
                cursor.advance()
            self._check_names([*_tables(query, parsed)])

    def _refused(self, message: str) -> PermissionDenied:
        return PermissionDenied(
            message,
            code="tables-refused",
            detail=f"Its tables: {', '.join(sorted(self.patterns))}.",
            hint="Read these with SELECT or SUBSCRIBE, by namespace.table as written here. Whoever serves the lake can add "
            "others to the file of tokens.",
        )


def _tables(query: QueryTree, parsed: ParsedStatement) -> Iterator[str]:
    """Yield the full name of each table in a query; that of its metadata, such as `shop.t.snapshots`, is the table's own."""
    statement = parsed.statement
    changes = {placed.start for placed in statement.changes} if isinstance(statement, ForSpark) else set()
    for table in query.tree.find_all(exp.Table):
        parts = [part for part in table.parts if isinstance(part, exp.Identifier)]
        if not parts or is_common_table(table) or query.written.start + parts[0].meta["start"] in changes:
            continue
        names = [part.this for part in parts]
        if len(names) > _TABLE_PARTS and names[0] == query.written.catalog:
            del names[0]
        if len(names) == _TABLE_PARTS + 1 and _OF_TABLE.fullmatch(names[-1]):
            del names[-1]
        yield ".".join(f"`{name}`" if "." in name else name for name in names)
