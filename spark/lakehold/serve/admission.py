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
from lakehold.serve.client_functions import (
    BEFORE_BRACKETS,
    CLIENT_FUNCTIONS,
    ICEBERG_FUNCTIONS,
)
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

MAX_CHARACTERS = 100_000
"""The longest statement of a client. Parsing one of `1, 1, …` takes the processor for two seconds."""

_ANSWERED = (
    ExplainSubscribe | Show | ShowCreate | ShowCreateHold | ShowGrants | ShowHolds | ShowRoles
)  # they change nothing, and their answers are short
_ON_HOLDS = CreateHold | AdvanceHold | RenameHold | DropHold
_EXPLAIN_MODES = ("EXTENDED", "CODEGEN", "COST", "FORMATTED")
_DESCRIBING = ("SHOW", "DESCRIBE", "DESC")
_QUERY_WORDS = ("SELECT", "WITH", "FROM", "VALUES")
_BEFORE_NAMESPACES = ("IN", "FROM", "NAMESPACE", "DATABASE", "SCHEMA", "CATALOG")
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
    check_length(text)
    script = parse_script(text, catalog)
    if len(script) != 1:
        start = script[1].written.start if script else 0
        raise StatementError(
            "expected one statement", sql=text or " ", start=start, end_exclusive=len(text), hint="send one at a time"
        )
    (parsed,) = script
    kind = _kind(parsed)
    _refuse_what_reaches_further(parsed)
    queries = queries_in(parsed) if isinstance(parsed.statement, ForSpark) else []
    for tree in queries:
        _refuse_other_catalogs(tree, is_other_catalog)
    if not queries and Cursor(parsed.written).word() in _DESCRIBING:
        _refuse_names_of_catalogs(parsed.written, is_other_catalog)
    return Admitted(parsed, kind)


def check_length(text: str) -> None:
    """Check that a client may send a text of this length.

    Raises:
        LakeholdError: It is too long.
    """
    if len(text) > MAX_CHARACTERS:
        raise LakeholdError(
            "the statement is too long",
            code="statement-too-long",
            detail=f"It has {len(text):,} characters; a client may send {MAX_CHARACTERS:,}.",
        )


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
        if Cursor(parsed.written).word() in _QUERY_WORDS:
            raise
        return False
    return True


def queries_in(parsed: ParsedStatement) -> list[QueryTree]:
    """Return the query that a statement of Spark's is, explains or describes; other descriptions have none."""
    if not describes(parsed):
        return [query_tree(parsed)]
    cursor = Cursor(parsed.written)
    if cursor.accept("EXPLAIN"):
        any(cursor.accept(mode) for mode in _EXPLAIN_MODES)
        if cursor.at_end:
            raise cursor.error("a query")
    elif cursor.accept("SHOW") or not _steps_to_described_query(cursor):
        return []
    described = replace(parsed.written, tokens=parsed.written.tokens[cursor.position :])
    return [query_tree(replace(parsed, written=described))]


def _steps_to_described_query(cursor: Cursor) -> bool:
    """Step over `DESCRIBE [QUERY]`; return whether a query follows."""
    cursor.advance()
    cursor.accept("QUERY")
    return cursor.source_text(cursor.peek()) == "(" or cursor.word() in _QUERY_WORDS


def _refuse_what_reaches_further(parsed: ParsedStatement) -> None:
    cursor = Cursor(parsed.written)
    may_call = isinstance(parsed.statement, ForSpark | SelectAsOf | SubscribeTo | ExplainSubscribe)
    may_call = may_call and not cursor.at_words("SHOW")  # in which brackets hold properties or values of partitions
    while not cursor.at_end:
        token, opens = cursor.peek(), cursor.source_text(cursor.peek(1)) == "("
        if opens and cursor.at_words("IDENTIFIER"):
            raise _reaches(cursor, token, "a client must write the names of tables and functions themselves")
        if opens and may_call and not _may_be_called(cursor):
            raise _reaches(
                cursor,
                token,
                f"a client may not call {token.text.lower()}",
                "clients call functions that are Spark's own",
            )
        if cursor.at_words("USING") and cursor.is_text(1):
            raise _reaches(cursor, token, "a client may not run programs")
        cursor.advance()


def _may_be_called(cursor: Cursor) -> bool:
    """Return whether the cursor is at no call, although a bracket follows, or at one of a function that clients may call."""
    name = cursor.peek().text.lower()
    is_quoted = cursor.source_text(cursor.peek()).startswith("`")
    if not is_quoted and (not cursor.word() or cursor.word() in BEFORE_BRACKETS):
        return True
    if cursor.position and cursor.source_text(cursor.peek(-1)) == ".":
        return name in ICEBERG_FUNCTIONS and cursor.position > 1 and cursor.peek(-2).text.lower() == "system"
    return name in CLIENT_FUNCTIONS or _is_alias(cursor)


def _is_alias(cursor: Cursor) -> bool:
    """Return whether the next word is an alias with names of columns: of a table, or of a subquery of WITH, before its AS."""
    at = 2
    while cursor.word(at) or cursor.source_text(cursor.peek(at)).startswith("`"):
        if cursor.source_text(cursor.peek(at + 1)) == ")":
            before = cursor.source_text(cursor.peek(-1)).upper() if cursor.position else ""
            if before in ("WITH", "RECURSIVE", ","):
                return cursor.word(at + 2) == "AS"
            is_name = before.startswith("`") or before.isidentifier()
            return before in (")", "AS") or (is_name and before not in BEFORE_BRACKETS)
        at += 2
    return False


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


def _refuse_names_of_catalogs(written: StatementText, is_other_catalog: Callable[[str], bool]) -> None:
    """Refuse another catalog before a dot, or as a namespace, in a statement that describes what exists."""
    cursor = Cursor(written)
    before = ""
    while not cursor.at_end:
        token, text = cursor.peek(), cursor.source_text(cursor.peek())
        is_name = before != "." and not cursor.is_text() and (text.startswith("`") or cursor.word() != "")
        may_be_catalog = cursor.source_text(cursor.peek(1)) == "." or before in _BEFORE_NAMESPACES
        if is_name and may_be_catalog and token.text != written.catalog:
            for name in {token.text, token.text.lower()}:
                if name in _ALWAYS_OTHERS or is_other_catalog(name):
                    raise _reaches(cursor, token, f"{token.text} is not in the lake")
        if text.upper() != "EXTENDED" or before not in _BEFORE_NAMESPACES:
            before = text.upper()
        cursor.advance()


def _reaches(
    cursor: Cursor, token: Token, message: str, hint: str = "clients read tables of the lake: namespace.table"
) -> StatementError:
    return StatementError(
        message,
        sql=cursor.sql,
        start=token.start,
        end_exclusive=token.end + 1,
        code="beyond-the-lake",
        hint=hint,
    )
