"""Reads statements that change tables of MySQL and MariaDB: the tables they name, and what they may do to rows. Pure.

`schema_history.py` calls it for each statement in a connector's schema history. Debezium sends a message for each row that
INSERT, UPDATE or DELETE changes, and none for rows that ALTER TABLE changes: lakehold snapshots such a table again. A clause
of ALTER TABLE that is not understood counts as one that removes rows: a snapshot too many harms nobody. So does a statement
in which the tokenizer does not find where a string ends.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import sqlglot
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

Structure = Mapping[str, Mapping[str, Any]]
"""The columns of a table by name, as the schema history describes them: `typeName`, `length`, `optional` and so on."""


class Effect(IntEnum):
    """The effect that a statement may have, without messages, on the rows of a table that exists before and after it.

    NONE: every row stays as it was. CHANGES: rows may have other values. REMOVES: rows may also be gone.
    """

    NONE = 0
    CHANGES = 1
    REMOVES = 2


@dataclass(frozen=True)
class TableStatement:
    """A statement that changes the definition of tables.

    Attributes:
        names: Names of tables, `database.table` in lower case; some of them may be of something else.
        databases: Names of databases that the statement drops, in lower case.
        clauses: The clauses of an ALTER TABLE, as tokens; none: another statement, which removes rows.
        ignores: Whether an ALTER IGNORE TABLE removes rows that break a new unique index.
        replaces: Whether the statement is a CREATE OR REPLACE TABLE.
    """

    names: frozenset[str]
    databases: frozenset[str] = frozenset()
    clauses: tuple[tuple[Token, ...], ...] = ()
    ignores: bool = False
    replaces: bool = False


@dataclass(frozen=True)
class Columns:
    """The columns of a table around a statement.

    Attributes:
        before: The columns before the statement.
        after: The columns after it.
        seen: Names of columns that the table has ever had, in lower case.
    """

    before: Structure = field(default_factory=dict)
    after: Structure = field(default_factory=dict)
    seen: Collection[str] = ()


_MODIFIERS = frozenset({"ONLINE", "IGNORE", "OFFLINE"})
_QUOTED = frozenset({TokenType.IDENTIFIER, TokenType.STRING})
_OF_INDEXES = frozenset(
    {"INDEX", "KEY", "CONSTRAINT", "FOREIGN", "CHECK", "PRIMARY", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR"}
)
_KEEP_ROWS = frozenset(
    {
        *(
            "ALTER",
            "COMMENT",
            "AUTO_INCREMENT",
            "DEFAULT",
            "CHARACTER",
            "CHARSET",
            "COLLATE",
            "ROW_FORMAT",
            "KEY_BLOCK_SIZE",
        ),
        *(
            "ALGORITHM",
            "LOCK",
            "FORCE",
            "ENABLE",
            "DISABLE",
            "ORDER",
            "CHECK",
            "ANALYZE",
            "OPTIMIZE",
            "REBUILD",
            "REPAIR",
        ),
        *(
            "REORGANIZE",
            "COALESCE",
            "PARTITION",
            "REMOVE",
            "STATS_AUTO_RECALC",
            "STATS_PERSISTENT",
            "STATS_SAMPLE_PAGES",
        ),
        *("AVG_ROW_LENGTH", "CHECKSUM", "DELAY_KEY_WRITE", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS", "PAGE_CHECKSUM"),
        *("PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL", "WAIT", "NOWAIT", "VALIDATION", "WITHOUT", "WITH"),
    }
)
"""First words of clauses that change no value of a row."""
_COMPUTED = frozenset({"AS", "GENERATED", "AUTO_INCREMENT", "SERIAL", "TIMESTAMP"})
_ENGINES = frozenset({"INNODB", "ARIA", "MYISAM", "ROCKSDB"})
_WHOLE_NUMBERS = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT")
_DECIDES_VALUES = ("typeName", "typeExpression", "charsetName", "length", "scale", "enumValues")
_COMMENTS = re.compile(
    r"""('(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`[^`]*`)"""
    r"|(?:--\s|#)[^\n]*|/\*(?!M?!).*?\*/|/\*M?!(?:[0-9]{5,6})?|\*/",
    re.DOTALL,
)
"""Strings and names in quotes (the first group), comments, and the marks around a comment that a server executes."""
_FIRST_COMMENTS = re.compile(r"(?:\s|/\*.*?\*/|(?:--\s|#)[^\n]*\n)*", re.DOTALL)
_PART = re.compile(r"`([^`]+)`|([^\s`'\"(),.;=]+)|([.])")


def table_statement(text: str, database: str) -> TableStatement | None:
    """Read a statement.

    Args:
        text: The statement.
        database: The database that the session uses, for names without one.

    Returns:
        None: The statement is of another kind, such as CREATE TABLE or TRUNCATE TABLE.
    """
    if "/*!" in text or "/*M!" in text:
        text = _COMMENTS.sub(lambda found: found[1] or " ", text)
    try:
        return _statement(_tokens(text), database)
    except SqlglotError:
        tokens = _rough_tokens(text)
        found = _statement(tokens, database)
        return found and replace(found, names=found.names | _names(tokens, database), clauses=())


def _statement(tokens: Sequence[Token], database: str) -> TableStatement | None:
    if _words(tokens[:2]) == ["SET", "STATEMENT"] and "FOR" in (words := _words(tokens)):
        tokens = tokens[words.index("FOR") + 1 :]
    words = _words(tokens)
    match words[:1]:
        case ["ALTER"]:
            return _alter(tokens[1:], database)
        case ["CREATE"] if words[1:4] == ["OR", "REPLACE", "TABLE"]:
            return TableStatement(frozenset({_name(_named(tokens[4:]), database)}), replaces=True)
        case ["DROP"] if words[1:2] in (["DATABASE"], ["SCHEMA"]):
            return TableStatement(frozenset(), frozenset(token.text.lower() for token in _named(tokens[2:])[:1]))
        case ["DROP" | "RENAME"] if words[1:2] in (["TABLE"], ["TABLES"]):
            return TableStatement(_names(tokens[2:], database))
    return None


def _tokens(text: str) -> Sequence[Token]:
    tokens = sqlglot.tokenize(text, read="mysql")
    if len(tokens) > 1 and tokens[0].text.upper() == "RENAME" and tokens[1].token_type is TokenType.STRING:
        # The rest of such a statement is one token.
        tokens = [tokens[0], *sqlglot.tokenize(tokens[1].text, read="mysql")]
    return tokens


def _rough_tokens(text: str) -> Sequence[Token]:
    """Split a text at spaces and punctuation; words in strings are tokens, too.

    With the SQL mode NO_BACKSLASH_ESCAPES a string may end in a backslash: the tokenizer then does not find where a string ends.
    """
    begin = _FIRST_COMMENTS.match(text)
    found = _PART.finditer(text, begin.end() if begin else 0)
    kinds = {1: TokenType.IDENTIFIER, 2: TokenType.VAR, 3: TokenType.DOT}
    return [Token(kinds[part.lastindex or 2], part[part.lastindex or 0]) for part in found]


def effect(statement: TableStatement, columns: Columns) -> Effect:
    """Return what a statement may do to the rows of a table that it names, whose columns are `columns`."""
    if not statement.clauses or statement.ignores:
        return Effect.REMOVES
    dropped = _dropped_columns(statement)
    return max(_effect(clause, columns, dropped) for clause in statement.clauses)


def reuses_a_name(statement: TableStatement, columns: Columns) -> bool:
    """Return whether a column gets the name that another one has before the statement, as when two swap their names.

    Debezium renames one column after the other, and so loses the one whose name is reused.
    """
    had = {each.lower() for each in columns.before} - _dropped_columns(statement)
    return any(old != new and new in had for old, new in filter(None, map(_renamed, statement.clauses)))


def _renamed(clause: Sequence[Token]) -> tuple[str, str] | None:
    """Return the old and the new name of the column that a clause renames."""
    match _phrase(clause)[:2]:
        case ["RENAME", "COLUMN"]:
            old, _, new = ([token.text.lower() for token in _named(clause[2:])] + [""] * 3)[:3]
            return old, new
        case ["CHANGE", *_]:
            old, new = [*_column_names(clause[1:]), "", ""][:2]
            return old, new
    return None


def _alter(tokens: Sequence[Token], database: str) -> TableStatement | None:
    words = _words(tokens)
    at = next((at for at, word in enumerate(words) if word not in _MODIFIERS), 0)
    if words[at : at + 1] != ["TABLE"]:
        return None
    rest = _named(tokens[at + 1 :])
    length = 3 if [token.token_type for token in rest[1:2]] == [TokenType.DOT] else 1
    clauses = tuple(_split(rest[length:]))
    others = [token for clause in clauses if _names_tables(clause) for token in clause]
    names = frozenset({_name(rest, database)}) | _names(others, database)
    return TableStatement(names, clauses=clauses or ((),), ignores="IGNORE" in words[:at])


def _names_tables(clause: Sequence[Token]) -> bool:
    """Return whether a clause may name other tables: EXCHANGE and CONVERT PARTITION, RENAME TO."""
    words = _words(clause[:2])
    return words[:1] in (["EXCHANGE"], ["CONVERT"]) or (
        words[:1] == ["RENAME"] and words[1:] not in (["COLUMN"], ["INDEX"], ["KEY"])
    )


def _effect(clause: Sequence[Token], columns: Columns, dropped: Collection[str]) -> Effect:  # noqa: PLR0911, PLR0912 - one a clause
    match _phrase(clause):
        case []:
            return Effect.NONE
        case ["ADD", "PARTITION", *_]:
            return Effect.NONE
        case ["ADD" | "DROP", word, *_] if word in _OF_INDEXES:
            return Effect.NONE
        case ["DROP", "PARTITION" | "SYSTEM" | "PERIOD", *_]:
            return Effect.REMOVES
        case ["DROP", *_]:
            # Readers keep what the column had. It is filled again if a column of its name is added.
            return Effect.NONE
        case ["ADD", "SYSTEM" | "PERIOD", *_]:
            return Effect.REMOVES
        case ["ADD", *_]:
            return max((_of_new_column(each, columns, dropped) for each in _added(clause)), default=Effect.CHANGES)
        case ["MODIFY", *_]:
            return Effect.CHANGES if _fills(clause) else _of_type(_column(clause[1:]), columns)
        case ["CHANGE", *_]:
            old, new = [*_column_names(clause[1:]), "", ""][:2]
            return _of_type(old, columns) if old == new and not _fills(clause) else Effect.CHANGES
        case ["RENAME", "INDEX" | "KEY", *_]:
            return Effect.NONE
        case ["RENAME", "COLUMN", *_]:
            return Effect.CHANGES
        case ["CONVERT", "TO", *_]:
            return Effect.CHANGES
        case ["ENGINE", *_]:
            return Effect.NONE if {token.text.upper() for token in clause} & _ENGINES else Effect.REMOVES
        case [word, *_] if word in _KEEP_ROWS:
            return Effect.NONE
    return Effect.REMOVES


def _of_new_column(definition: Sequence[Token], columns: Columns, dropped: Collection[str]) -> Effect:
    name = _column(definition)
    had = {each.lower() for each in columns.before}
    if name in had and name not in dropped:
        return Effect.NONE  # IF NOT EXISTS
    found = _described(columns.after, name)
    words = _phrase(definition)
    has_default = any(pair[0] == "DEFAULT" and pair[1] != "NULL" for pair in itertools.pairwise(words))
    is_null = found is not None and found.get("optional") and not has_default and not _fills(definition)
    return Effect.NONE if is_null and name not in columns.seen else Effect.CHANGES


def _fills(definition: Sequence[Token]) -> bool:
    """Return whether the server computes a column's values; the schema history does not say so of every such column."""
    return not _COMPUTED.isdisjoint(_phrase(definition))


def _of_type(name: str, columns: Columns) -> Effect:
    before, after = _described(columns.before, name), _described(columns.after, name)
    if before is None or after is None or before.get("generated"):
        return Effect.CHANGES
    is_stricter = before.get("optional") and not after.get("optional")
    return Effect.CHANGES if is_stricter or not _holds(before, after) else Effect.NONE


def _holds(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether a column of another type has every value as it was."""
    differ = {part for part in _DECIDES_VALUES if before.get(part) != after.get(part)}
    if not differ:
        return True
    old, new = (str(each.get("typeName", "")).upper() for each in (before, after))
    numbers = [(*name.split(" "), "")[:2] for name in (old.replace("INTEGER", "INT"), new.replace("INTEGER", "INT"))]
    if all(kind in _WHOLE_NUMBERS for kind, _ in numbers):
        (was, sign), (now, new_sign) = numbers
        return sign == new_sign and _WHOLE_NUMBERS.index(now) >= _WHOLE_NUMBERS.index(was)
    if old == new == "VARCHAR" and differ == {"length"}:
        return int(after["length"]) >= int(before["length"])
    values = before.get("enumValues") or []
    return (
        old == new == "ENUM"
        and differ <= {"enumValues", "length"}
        and (after.get("enumValues") or [])[: len(values)] == values
    )


def _described(columns: Structure, name: str) -> Mapping[str, Any] | None:
    return next((column for each, column in columns.items() if each.lower() == name), None)


def _dropped_columns(statement: TableStatement) -> set[str]:
    return {*filter(None, map(_dropped_column, statement.clauses))}


def _dropped_column(clause: Sequence[Token]) -> str | None:
    words = _phrase(clause)[:2]
    is_column = words[:1] == ["DROP"] and not {*words[1:]} & {*_OF_INDEXES, "PARTITION", "SYSTEM", "PERIOD"}
    return _column(clause[1:]) if is_column else None


def _added(clause: Sequence[Token]) -> list[Sequence[Token]]:
    """Return the definitions of the columns that ADD adds."""
    rest = _after(clause[1:], ("COLUMN",), ("IF", "NOT", "EXISTS"))
    return [*_split(rest[1:-1])] if _words(rest[:1]) == ["("] else [rest]


def _column(tokens: Sequence[Token]) -> str:
    return next(iter(_column_names(tokens)), "")


def _column_names(tokens: Sequence[Token]) -> list[str]:
    rest = _after(tokens, ("COLUMN",), ("IF", "EXISTS"), ("IF", "NOT", "EXISTS"))
    return [token.text.lower() for token in rest[:2]]


def _named(tokens: Sequence[Token]) -> Sequence[Token]:
    return _after(tokens, ("IF", "EXISTS"), ("IF", "NOT", "EXISTS"))


def _after(tokens: Sequence[Token], *phrases: Sequence[str]) -> Sequence[Token]:
    """Return tokens without the phrases at their beginning."""
    for phrase in phrases:
        if _words(tokens[: len(phrase)]) == [*phrase]:
            tokens = tokens[len(phrase) :]
    return tokens


def _name(tokens: Sequence[Token], database: str) -> str:
    """Return the name at the beginning of some tokens, with its database."""
    first, dot, second = ([token.text.lower() for token in tokens[:3]] + [""] * 3)[:3]
    return f"{first}.{second}" if dot == "." else f"{database.lower()}.{first}"


def _names(tokens: Sequence[Token], database: str) -> frozenset[str]:
    """Return what may be names of tables."""
    return frozenset(_name(tokens[at:], database) for at in range(len(tokens)))


def _split(tokens: Sequence[Token]) -> Iterator[tuple[Token, ...]]:
    """Split tokens at commas outside of parentheses."""
    depth, part = 0, list[Token]()
    for token in tokens:
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if token.token_type == TokenType.COMMA and depth == 0:
            yield tuple(part)
            part = []
        else:
            part.append(token)
    if part:
        yield tuple(part)


def _phrase(tokens: Sequence[Token]) -> list[str]:
    """Return keywords one by one, where `PRIMARY KEY` and others are one token."""
    return " ".join(_words(tokens)).split(" ") if tokens else []


def _words(tokens: Sequence[Token]) -> list[str]:
    """Return keywords in upper case; a quoted name is none of them."""
    return [f"`{token.text}`" if token.token_type in _QUOTED else token.text.upper() for token in tokens]
