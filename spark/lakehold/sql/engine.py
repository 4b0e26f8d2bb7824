"""Spark's part of a script: runs text, and turns what Spark throws into an error a person can read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from lakehold.errors import LakeholdError, StatementError
from lakehold.sql.effects import RunOnSpark
from lakehold.sql.result import Result
from lakehold.sql.statements import Drop, ForSpark, ObjectKind, Statement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONDITION = re.compile(r"^\[(?P<condition>[A-Z][A-Z0-9_.]*)\]\s*")
_POSITION = re.compile(r"[;(]?\s*\(?line (?P<line>\d+),? pos (?P<column>\d+)\)?")
_SENTENCE_END = re.compile(r"(?<=\.)\s+(?=[A-Z])")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+")
_JVM_CLASS = re.compile(r"^:?\s*(?:[a-z_][\w$]*\.)+[A-Z][\w$]*(?:Exception|Error):\s*")
_WORD = re.compile(r"\w+")
_STAGE_FAILED = re.compile(r"Job aborted due to stage failure: .*?\(TID \d+\) \(.*?\): ")
_SPARKS_MODULES = frozenset({"pyspark", "py4j", "grpc"})
_HINTS = {
    "TABLE_OR_VIEW_NOT_FOUND": "SHOW TABLES lists the tables that sources feed, SHOW TABLES IN a namespace all of its tables; "
    "DROP TABLE IF EXISTS passes over one that is not there."
}
"""What Spark's advice leaves out, by its condition."""
_CALL_FAILED = "An error occurred while calling"


def run_on_spark(spark: SparkSession, statement: RunOnSpark) -> Result:
    """Run one statement and fetch what it returns.

    Raises:
        LakeholdError: Spark refused or failed; a `StatementError` when it says where.
    """
    text = statement.sql[statement.start : statement.end_exclusive]
    try:
        with _without_pyspark_log():
            frame = spark.sql(text)
            columns = tuple(frame.columns)
            return Result(columns, [tuple(row) for row in frame.collect()] if columns else [])
    except Exception as error:  # noqa: BLE001 - classic Spark and Connect have no common class for what the JVM throws
        raise _readable(error, statement) from None


def in_full(statement: Statement, spark: Callable[[], SparkSession]) -> Statement:
    """`statement`, the table that it changes named `namespace.table`, as Spark finds it: USE may say the namespace.

    Args:
        statement: One that names its table so, or names none, stays as it is.
        spark: Gives the session; asked for only if it does not.
    """
    match statement:
        case Drop(ObjectKind.TABLE, name) if name.count(".") != 1:
            return replace(statement, name=_full_name(name, spark()))
        case ForSpark(_, name) if name and name.count(".") != 1:
            return replace(statement, target=_full_name(name, spark()))
        case _:
            return statement


def _full_name(name: str, spark: SparkSession) -> str:
    ((catalog, namespace),) = spark.sql("SELECT current_catalog(), current_schema()").collect()
    if "." in name:
        return name.removeprefix(f"{catalog}.")
    return f"{namespace}.{name}" if namespace else name


@contextmanager
def readable() -> Iterator[None]:
    """What Spark throws inside becomes an error that a person can read, as far as it is Spark's."""
    try:
        with _without_pyspark_log():
            yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _SPARKS_MODULES:
            raise
        raise _explained(str(error)) from None


@contextmanager
def _without_pyspark_log() -> Iterator[None]:
    """PySpark logs an error with its JVM stack trace to stderr before it raises it: once, readably, is enough."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415 - loaded with the session, and only then

    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _readable(error: Exception, statement: RunOnSpark) -> LakeholdError:
    """Spark's first line without class names and SQLSTATE; its condition becomes the code, its advice the detail."""
    whole = str(error)
    found = _explained(whole)
    position = _POSITION.search(whole)
    if position is None:
        return found
    start = _offset(statement, int(position["line"]), int(position["column"]))
    word = _WORD.match(statement.sql, start)
    end_exclusive = word.end() if word else start + 1
    return StatementError(
        found.message,
        sql=statement.sql,
        start=start,
        end_exclusive=end_exclusive,
        code=found.code,
        detail=found.detail,
        hint=found.hint,
    )


def _explained(whole: str) -> LakeholdError:
    lines = [line.strip() for line in whole.splitlines() if line.strip() and _CALL_FAILED not in line]
    line = _JVM_CLASS.sub("", lines[0] if lines else "Spark failed")
    line = _JVM_CLASS.sub("", _STAGE_FAILED.sub("", line))
    condition = _CONDITION.match(line)
    code = condition["condition"] if condition else "spark"
    sentences = _SQLSTATE.sub("", _POSITION.sub("", _CONDITION.sub("", line))).rstrip(" ;")
    first, *rest = _SENTENCE_END.split(sentences, maxsplit=1)
    message, detail = f"{first[:1].lower()}{first[1:]}".rstrip("."), " ".join(rest)
    return LakeholdError(message, code=code, detail=detail, hint=_HINTS.get(code, ""))


def _offset(statement: RunOnSpark, line: int, column: int) -> int:
    """Where line (from 1) and column (from 0) of the statement stand in the whole script."""
    start = statement.start
    for _ in range(line - 1):
        start = statement.sql.find("\n", start) + 1
    return min(start + column, statement.end_exclusive)
