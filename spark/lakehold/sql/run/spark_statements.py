"""Statements that Spark runs: lakehold passes the text on, and turns Spark's exceptions into errors a person can read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from lakehold.definitions import ObjectKind
from lakehold.errors import LakeholdError, StatementError
from lakehold.nearest import did_you_mean
from lakehold.spark_errors import POSITION, explained, readable, session_lost, without_pyspark_log
from lakehold.sql.plan.statement_effects import RunOnSpark
from lakehold.sql.result import Result
from lakehold.sql.run.changes_as_views import changes_as_views, without_view_names
from lakehold.sql.statements import AlterOptions, Drop, ForSpark, PlacedChanges, RetainHistory, ShowCreate, Statement
from lakehold.sql.text.dialect import too_deep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

S = TypeVar("S", bound=Statement)

_QUOTED_NAME = re.compile(r"`[^`]+`(\.`[^`]+`)*")
_WORD = re.compile(r"\w+")
_FUNCTION = re.compile(r"CREATE\s(OR\s+REPLACE\s+)?\s*(TEMP(ORARY)?\s+)?FUNCTION\b", re.IGNORECASE)
_OUT_OF_STACK = ("StackOverflowError", "FAILED_TO_PARSE_TOO_COMPLEX")
"""Texts in the errors of Java and Spark about a statement whose brackets nest too deeply."""


def run_on_spark(
    spark: SparkSession, statement: RunOnSpark, views: Mapping[PlacedChanges, DataFrame] | None = None
) -> Result:
    """Run one statement and fetch what it returns.

    Args:
        spark: The session.
        statement: The statement.
        views: The rows of each `CHANGES(…)` in it.

    Raises:
        LakeholdError: Spark refused or failed. If Spark reports a position, this is a `StatementError`.
    """
    from lakehold.subscribe.row_values import fetched  # noqa: PLC0415 - loads Spark, which few statements need

    with opened_on_spark(spark, statement, views or {}) as frame:
        columns = tuple(frame.columns)
        return Result(columns, fetched(frame) if columns else [])


@contextmanager
def opened_on_spark(
    spark: SparkSession, statement: RunOnSpark, views: Mapping[PlacedChanges, DataFrame]
) -> Iterator[DataFrame]:
    """Open one statement as a data frame that can be read inside the block; arguments and errors as in `run_on_spark`."""
    try:
        with without_pyspark_log(), changes_as_views(spark, statement, views) as text:
            yield spark.sql(text)
    except LakeholdError:
        raise
    except Exception as error:  # noqa: BLE001 - classic Spark and Connect have no common class for what the JVM throws
        raise _translated(error, statement) from None


@contextmanager
def suggesting(tables: Callable[[], Iterable[str]]) -> Iterator[None]:
    """Add the table that was probably meant to Spark's error about a table that does not exist.

    Args:
        tables: Returns the full names of the lake's tables; called only for that error.
    """
    try:
        yield
    except LakeholdError as error:
        name = _QUOTED_NAME.search(error.message)
        if error.code == "TABLE_OR_VIEW_NOT_FOUND" and name is not None:
            error.hint = did_you_mean(name[0].replace("`", ""), tables(), error.hint)
        raise


def with_full_name(statement: S, lake: str, spark: Callable[[], SparkSession], has_session: Callable[[], bool]) -> S:
    """Complete the name of the table or view that `statement` changes or shows, as Spark resolves it after USE.

    The name of a table outside of the lake begins with its catalog: it is no full name of the lake.

    Args:
        statement: It stays as it is if it names its table completely, or names none.
        lake: Name of the lake's catalog.
        spark: Returns the session, whose catalog and namespace complete the name.
        has_session: Returns whether the session is open: the catalog of a new one is the lake's.
    """
    match statement:
        case (
            Drop(ObjectKind.TABLE, name, in_lake=False)
            | ShowCreate(ObjectKind.TABLE, name, in_lake=False)
            | RetainHistory(name, in_lake=False)
        ) if "." not in name or (name.count(".") == 1 and has_session()):
            return replace(statement, name=_full_name(name, lake, spark()))
        case (
            Drop(ObjectKind.MATERIALIZED_VIEW, name)
            | ShowCreate(ObjectKind.MATERIALIZED_VIEW, name)
            | AlterOptions(ObjectKind.MATERIALIZED_VIEW, name)
        ) if "." not in name:
            return replace(statement, name=_full_name(name, lake, spark()))
        case ForSpark(_, names) if any("." not in name for name in names):
            completed = (name if "." in name else _full_name(name, lake, spark()) for name in names)
            return replace(statement, targets=tuple(completed))
        case _:
            return statement


def _full_name(name: str, lake: str, spark: SparkSession) -> str:
    with readable():
        ((catalog, namespace),) = spark.sql("SELECT current_catalog(), current_schema()").collect()
    within = f"{namespace}.{name}" if namespace and "." not in name else name
    return within if catalog == lake else f"{catalog}.{within}"


def _translated(error: Exception, statement: RunOnSpark) -> LakeholdError:
    """Convert an exception of Spark's to an error with its message, and with its place in the script if it has one."""
    whole = without_view_names(str(error)) if statement.changes else str(error)
    if any(text in whole for text in _OUT_OF_STACK):
        return too_deep(statement.sql, statement.start)
    if type(error).__name__ == "UnsupportedOperationException" and _FUNCTION.match(statement.sql, statement.start):
        return LakeholdError(
            "an SQL function with parameters cannot be created in a lake's session",
            code="function-parameters",
            detail="Iceberg's extension of Spark does not read the parameters of SQL functions.",
            hint="Write its expression into the query, or register a Python function: lake.spark.udf.register(…).",
        )
    found = session_lost(error) or explained(whole)
    position = POSITION.search(whole)
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


def _offset(statement: RunOnSpark, line: int, column: int) -> int:
    """Convert a line (from 1) and a column (from 0) of the statement to an offset in the whole script."""
    start = statement.start
    for _ in range(line - 1):
        start = statement.sql.find("\n", start) + 1
    return min(start + column, statement.end_exclusive)
