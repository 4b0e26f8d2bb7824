"""Reads statements that change tables of MySQL and MariaDB: the tables they name, and what they may do to rows. Pure.

`schema_history.py` calls it for each statement in a connector's schema history. Debezium sends a message for each row that
INSERT, UPDATE or DELETE changes, and none for rows that ALTER TABLE changes: lakehold snapshots such a table again. A clause
of ALTER TABLE that is not understood counts as one that removes rows: a snapshot too many harms nobody. So does a statement
in which the tokenizer does not find where a string ends.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from lakehold.upstream.mysql.statement_tokens import (
    phrase_of,
    possible_table_names,
    roughly_tokenized,
    split_at_commas,
    table_name,
    tokenized,
    without_phrases,
    words_of,
)

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
        verb: The first word of the statement; REPLACE: of a CREATE OR REPLACE TABLE.
    """

    names: frozenset[str]
    databases: frozenset[str] = frozenset()
    clauses: tuple[tuple[Token, ...], ...] = ()
    ignores: bool = False
    verb: str = "ALTER"


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
_SENT = frozenset({"CREATE", "TRUNCATE"})
"""First words of statements whose effect on rows comes as messages."""
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
        *("PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL", "VALIDATION", "WITHOUT", "WITH"),
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


def table_statement(text: str, database: str) -> TableStatement | None:
    """Read a statement.

    Args:
        text: The statement.
        database: The database that the session uses, for names without one.

    Returns:
        None: The statement is of another kind, such as CREATE INDEX.
    """
    if "/*!" in text or "/*M!" in text:
        text = _COMMENTS.sub(lambda found: found[1] or " ", text)
    try:
        return _statement(tokenized(text), database)
    except SqlglotError:
        tokens = roughly_tokenized(text)
        found = _statement(tokens, database)
        return found and replace(found, names=found.names | possible_table_names(tokens, database), clauses=())


def _statement(tokens: Sequence[Token], database: str) -> TableStatement | None:
    if words_of(tokens[:2]) == ["SET", "STATEMENT"] and "FOR" in (words := words_of(tokens)):
        tokens = tokens[words.index("FOR") + 1 :]
    words = words_of(tokens)
    match words[:1]:
        case ["ALTER"]:
            return _alter(tokens[1:], database)
        case ["CREATE" | "TRUNCATE" as verb]:
            replaces = words[1:3] == ["OR", "REPLACE"]
            rest = tokens[3 if replaces else 1 :]
            name = frozenset({table_name(_named(without_phrases(rest, ("TABLE",))), database)})
            is_table = verb == "TRUNCATE" or words_of(rest[:1]) == ["TABLE"]
            return TableStatement(name, verb="REPLACE" if replaces else verb) if is_table else None
        case ["DROP" as verb] if words[1:2] in (["DATABASE"], ["SCHEMA"]):
            dropped = frozenset(token.text.lower() for token in _named(tokens[2:])[:1])
            return TableStatement(frozenset(), dropped, verb=verb)
        case ["DROP" | "RENAME" as verb] if words[1:2] in (["TABLE"], ["TABLES"]):
            return TableStatement(possible_table_names(tokens[2:], database), verb=verb)
    return None


def effect(statement: TableStatement, columns: Columns) -> Effect:
    """Return what a statement may do to the rows of a table that it names, whose columns are `columns`."""
    if statement.verb in _SENT:
        return Effect.NONE
    if not statement.clauses or statement.ignores:
        return Effect.REMOVES
    dropped = _dropped_columns(statement)
    return max(_effect(clause, columns, dropped) for clause in statement.clauses)


def redefines(statement: TableStatement) -> bool:
    """Return whether a statement may change the columns of a table or its key."""
    return not statement.clauses or any(map(_redefines, statement.clauses))


def _redefines(clause: Sequence[Token]) -> bool:
    match phrase_of(clause):
        case ["ADD", word, *rest] if word in _OF_INDEXES:
            return not {"PRIMARY", "UNIQUE"}.isdisjoint((word, *rest))
        case ["CONVERT", word, *_]:
            return word == "TO"
        case ["ADD" | "DROP", "PARTITION", *_]:
            return False
        case [word, *_]:
            return word not in _KEEP_ROWS
    return False


def reuses_a_name(statement: TableStatement, columns: Columns) -> bool:
    """Return whether a column gets the name that another one has before the statement, as when two swap their names.

    Debezium renames one column after the other, and so loses the one whose name is reused.
    """
    had = {each.lower() for each in columns.before} - _dropped_columns(statement)
    return any(old != new and new in had for old, new in filter(None, map(_renamed, statement.clauses)))


def _renamed(clause: Sequence[Token]) -> tuple[str, str] | None:
    """Return the old and the new name of the column that a clause renames."""
    match phrase_of(clause)[:2]:
        case ["RENAME", "COLUMN"]:
            old, _, new = ([token.text.lower() for token in _named(clause[2:])] + [""] * 3)[:3]
            return old, new
        case ["CHANGE", *_]:
            old, new = [*_column_names(clause[1:]), "", ""][:2]
            return old, new
    return None


def _alter(tokens: Sequence[Token], database: str) -> TableStatement | None:
    words = words_of(tokens)
    at = next((at for at, word in enumerate(words) if word not in _MODIFIERS), 0)
    if words[at : at + 1] != ["TABLE"]:
        return None
    rest = _named(tokens[at + 1 :])
    length = 3 if [token.token_type for token in rest[1:2]] == [TokenType.DOT] else 1
    clauses = tuple(split_at_commas(_without_wait(rest[length:])))
    others = [token for clause in clauses if _names_tables(clause) for token in clause]
    names = frozenset({table_name(rest, database)}) | possible_table_names(others, database)
    return TableStatement(names, clauses=clauses or ((),), ignores="IGNORE" in words[:at])


def _without_wait(tokens: Sequence[Token]) -> Sequence[Token]:
    """Return tokens without MariaDB's NOWAIT or WAIT n, which no comma separates from the first clause."""
    return tokens[{"NOWAIT": 1, "WAIT": 2}.get(next(iter(words_of(tokens[:1])), ""), 0) :]


def _names_tables(clause: Sequence[Token]) -> bool:
    """Return whether a clause may name other tables: EXCHANGE and CONVERT PARTITION, RENAME TO."""
    words = words_of(clause[:2])
    return words[:1] in (["EXCHANGE"], ["CONVERT"]) or (
        words[:1] == ["RENAME"] and words[1:] not in (["COLUMN"], ["INDEX"], ["KEY"])
    )


def _effect(clause: Sequence[Token], columns: Columns, dropped: Collection[str]) -> Effect:  # noqa: PLR0911, PLR0912 - one a clause
    match phrase_of(clause):
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
        case [word, *rest] if word == "ENGINE" or (word in _KEEP_ROWS and "ENGINE" in rest):
            # No comma needs to separate it from other options of the table.
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
    words = phrase_of(definition)
    has_default = any(pair[0] == "DEFAULT" and pair[1] != "NULL" for pair in itertools.pairwise(words))
    is_null = found is not None and found.get("optional") and not has_default and not _fills(definition)
    return Effect.NONE if is_null and name not in columns.seen else Effect.CHANGES


def _fills(definition: Sequence[Token]) -> bool:
    """Return whether the server computes a column's values; the schema history does not say so of every such column."""
    return not _COMPUTED.isdisjoint(phrase_of(definition))


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
    words = phrase_of(clause)[:2]
    is_column = words[:1] == ["DROP"] and not {*words[1:]} & {*_OF_INDEXES, "PARTITION", "SYSTEM", "PERIOD"}
    return _column(clause[1:]) if is_column else None


def _added(clause: Sequence[Token]) -> list[Sequence[Token]]:
    """Return the definitions of the columns that ADD adds."""
    rest = without_phrases(clause[1:], ("COLUMN",), ("IF", "NOT", "EXISTS"))
    return [*split_at_commas(rest[1:-1])] if words_of(rest[:1]) == ["("] else [rest]


def _column(tokens: Sequence[Token]) -> str:
    return next(iter(_column_names(tokens)), "")


def _column_names(tokens: Sequence[Token]) -> list[str]:
    rest = without_phrases(tokens, ("COLUMN",), ("IF", "EXISTS"), ("IF", "NOT", "EXISTS"))
    return [token.text.lower() for token in rest[:2]]


def _named(tokens: Sequence[Token]) -> Sequence[Token]:
    return without_phrases(tokens, ("IF", "EXISTS"), ("IF", "NOT", "EXISTS"))
