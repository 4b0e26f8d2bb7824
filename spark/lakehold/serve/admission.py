"""Decides which statements a client of the server may run: those that read the lake, and those on holds.

A client may read the lake and nothing else that the server's process can reach. So what names files, other catalogs or Java
classes is refused. In addition `QUERY_CONF` switches off Spark's tables that are files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto

from sqlglot import Token, exp

from lakehold.errors import LakeholdError, StatementError
from lakehold.sql.parse.statement import parse_script
from lakehold.sql.query.query_tree import QueryTree
from lakehold.sql.run.one_query import describes, query_tree
from lakehold.sql.statements import (
    AdvanceHold,
    CreateHold,
    DropHold,
    ExplainSubscribe,
    ForSpark,
    ParsedStatement,
    RenameHold,
    SelectAsOf,
    Show,
    ShowCreate,
    ShowCreateHold,
    ShowGrants,
    ShowHolds,
    ShowRoles,
    SubscribeTo,
)
from lakehold.sql.text.cursor import Cursor
from lakehold.sql.text.dialect import StatementText

QUERY_CONF: Mapping[str, str] = {"spark.sql.runSQLOnFiles": "false"}
"""Settings of Spark's session under which queries of clients run."""

MAX_CHARACTERS = 1_000_000

_REACHING_FUNCTIONS = frozenset(
    {"reflect", "try_reflect", "java_method"}
    | {"from_avro", "schema_of_avro", "from_protobuf", "to_protobuf", "from_xml", "schema_of_xml"}
    | {"python_worker_logs"}
)
"""Functions that call any Java method, read a file that an argument names, or show the server's logs."""

_ANSWERED = (
    ExplainSubscribe | Show | ShowCreate | ShowCreateHold | ShowGrants | ShowHolds | ShowRoles
)  # they change nothing, and their answers are short
_ON_HOLDS = CreateHold | AdvanceHold | RenameHold | DropHold
_EXPLAIN_MODES = ("EXTENDED", "CODEGEN", "COST", "FORMATTED")
_ALWAYS_OTHERS = frozenset({"spark_catalog", "global_temp", "session", "system"})


class Kind(Enum):
    """The kinds of statements that clients may run, by how they are answered."""

    SUBSCRIPTION = auto()
    QUERY = auto()
    ANSWER = auto()
    HOLD_CHANGE = auto()


@dataclass(frozen=True)
class Admitted:
    """A statement that a client may run."""

    parsed: ParsedStatement
    kind: Kind

    @property
    def text(self) -> str:
        """Return it as written."""
        return self.parsed.written.text

    @property
    def changes(self) -> bool:
        """Return whether it changes anything in the lake."""
        return self.kind is Kind.HOLD_CHANGE


def admitted(text: str, catalog: str, is_other_catalog: Callable[[str], bool]) -> Admitted:
    """Parse one statement of a client, and check that a client may run it.

    Args:
        text: The statement.
        catalog: Name of the lake's catalog.
        is_other_catalog: Returns whether Spark has another catalog of that name.

    Raises:
        StatementError: The text is not one well-formed statement, or reaches beyond the lake.
        LakeholdError: Clients may not run the statement.
    """
    if len(text) > MAX_CHARACTERS:
        raise LakeholdError(
            "the statement is too long",
            code="statement-too-long",
            detail=f"It has {len(text):,} characters; a client may send {MAX_CHARACTERS:,}.",
        )
    script = parse_script(text, catalog)
    if len(script) != 1:
        start = script[1].written.start if script else 0
        raise StatementError(
            "expected one statement", sql=text or " ", start=start, end_exclusive=len(text), hint="send one at a time"
        )
    (parsed,) = script
    _refuse_what_reaches_further(parsed.written)
    kind = _kind(parsed)
    if isinstance(parsed.statement, ForSpark):
        for tree in queries_in(parsed):
            _refuse_other_catalogs(tree, is_other_catalog)
    return Admitted(parsed, kind)


def _kind(parsed: ParsedStatement) -> Kind:
    first = Cursor(parsed.written).word()
    match parsed.statement:
        case SubscribeTo():
            return Kind.SUBSCRIPTION
        case SelectAsOf():
            return Kind.QUERY
        case statement if isinstance(statement, _ANSWERED):
            return Kind.ANSWER
        case statement if isinstance(statement, _ON_HOLDS):
            return Kind.HOLD_CHANGE
        case ForSpark(verb="") if describes(parsed) or _is_query(parsed):
            return Kind.QUERY
    raise LakeholdError(
        f"a client may not run {first or 'this statement'}",
        code="statement-refused",
        detail="Clients may run SELECT, SUBSCRIBE, SHOW, DESCRIBE, EXPLAIN of these, and CREATE, ALTER and DROP HOLD.",
        hint="Run it with lakehold sql, where the lake is.",
    )


def _is_query(parsed: ParsedStatement) -> bool:
    """Return whether a statement of Spark's is a query; one that begins like a query and is not well formed raises."""
    try:
        query_tree(parsed)
    except StatementError:
        if Cursor(parsed.written).word() in ("SELECT", "WITH", "FROM", "VALUES"):
            raise
        return False
    return True


def queries_in(parsed: ParsedStatement) -> list[QueryTree]:
    """Return the query that a statement of Spark's is or explains; what else it describes has none."""
    if not describes(parsed):
        return [query_tree(parsed)]
    cursor = Cursor(parsed.written)
    if not cursor.accept("EXPLAIN"):
        return []
    any(cursor.accept(mode) for mode in _EXPLAIN_MODES)
    if cursor.at_end:
        raise cursor.error("a query")
    explained = replace(parsed.written, tokens=parsed.written.tokens[cursor.position :])
    return [query_tree(replace(parsed, written=explained))]


def _refuse_what_reaches_further(written: StatementText) -> None:
    cursor = Cursor(written)
    while not cursor.at_end:
        token, opens = cursor.peek(), cursor.source_text(cursor.peek(1)) == "("
        if opens and token.text.lower() in _REACHING_FUNCTIONS:
            raise _reaches(cursor, token, f"a client may not call {token.text.lower()}")
        if opens and cursor.at_words("IDENTIFIER"):
            raise _reaches(cursor, token, "a client must write the names of tables and functions themselves")
        if cursor.at_words("USING") and cursor.is_text(1):
            raise _reaches(cursor, token, "a client may not run programs")
        cursor.advance()


def _refuse_other_catalogs(tree: QueryTree, is_other_catalog: Callable[[str], bool]) -> None:
    for table in tree.tree.find_all(exp.Table):
        parts = [part for part in table.parts if isinstance(part, exp.Identifier)]
        first = parts[0].this if parts else ""
        if len(parts) > 1 and first != tree.written.catalog:
            others = (name for name in {first, first.lower()} if name in _ALWAYS_OTHERS or is_other_catalog(name))
            if next(others, None):
                start = tree.written.start + parts[0].meta["start"]
                token = next(t for t in tree.written.tokens if t.start == start)
                raise _reaches(Cursor(tree.written), token, f"{first} is not in the lake")


def _reaches(cursor: Cursor, token: Token, message: str) -> StatementError:
    return StatementError(
        message,
        sql=cursor.sql,
        start=token.start,
        end_exclusive=token.end + 1,
        code="beyond-the-lake",
        hint="clients read tables of the lake: namespace.table",
    )
