"""Checks that a query gives the same rows each time it is read: SUBSCRIBE compares its results at two times."""

from __future__ import annotations

import re

from sqlglot import exp

from lakehold.errors import StatementError
from lakehold.sql.query.query_tree import QueryTree
from lakehold.sql.text.cursor import Cursor

_RANDOM = "is random"
_CLOCK = "depends on the clock"
_SESSION = "depends on the session"
_PLACE = "depends on where rows are stored and computed"
_OUTSIDE = "runs code that may do anything"

_REASONS = {
    _RANDOM: """
        rand randn randstr random shuffle uniform uuid
        kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float
        kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float
    """,
    _CLOCK: "curdate current_date current_time current_timestamp localtimestamp now",
    _SESSION: """
        current_catalog current_database current_schema current_timezone current_user session_user user version
    """,
    _PLACE: """
        distributed_id distributed_sequence_id input_file_block_length input_file_block_start input_file_name
        monotonically_increasing_id spark_partition_id
    """,
    _OUTSIDE: "java_method python_worker_logs reflect try_reflect",
}
_HINTS = {
    _RANDOM: "leave it out",
    _CLOCK: "write a time, or filter what the subscription gives",
    _SESSION: "write the value itself",
    _PLACE: "leave it out",
    _OUTSIDE: "leave it out",
}
REFUSED = {name: reason for reason, names in _REASONS.items() for name in names.split()}
"""Spark's functions whose results differ between two reads of equal data, and the reasons."""

_WITHOUT_BRACKETS = frozenset(
    {"current_date", "current_time", "current_timestamp", "current_user", "localtimestamp", "session_user", "user"}
)
_INITIALIZATION_VECTOR_AT = 5
"""The number of the argument without which `aes_encrypt` uses a random initialization vector."""

OF_TODAY = re.compile(r"\s*(now|today|tomorrow|yesterday)(\s.*)?", re.IGNORECASE | re.DOTALL)
"""Text for which Spark reads the clock where it casts the text to a date or a timestamp, also without being told to."""

_TEMPORAL = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"})
_TO_TEMPORAL = _TEMPORAL | {
    "CAST",
    "TO_DATE",
    "TO_TIMESTAMP",
    "TO_TIMESTAMP_LTZ",
    "TO_TIMESTAMP_NTZ",
    "TRY_CAST",
    "TRY_TO_DATE",
    "TRY_TO_TIMESTAMP",
}
_NAMES_OF_DATES = """
ADD_MONTHS CONVERT_TIMEZONE DATE_ADD DATE_DIFF DATE_FORMAT DATE_PART DATE_SUB DATE_TRUNC DATEADD DATEDIFF DATEPART DAY
DAYNAME DAYOFMONTH DAYOFWEEK DAYOFYEAR EXTRACT FROM_UTC_TIMESTAMP HOUR LAST_DAY MINUTE MONTH MONTHNAME MONTHS_BETWEEN
NEXT_DAY QUARTER SECOND TIMESTAMPADD TIMESTAMPDIFF TO_UTC_TIMESTAMP TRUNC UNIX_DATE UNIX_MICROS UNIX_MILLIS
UNIX_SECONDS WEEKDAY WEEKOFYEAR YEAR
"""
_OF_DATES = frozenset(_NAMES_OF_DATES.split())
"""Functions for which Spark casts text to a date or a timestamp."""


def refuse_unrepeatable(query: QueryTree) -> None:
    """Refuse a query that may give other rows although its tables have not changed.

    Raises:
        StatementError: The query has an unrepeatable function, TABLESAMPLE, or LIMIT or OFFSET without ORDER BY.
    """
    cursor = Cursor(query.written)
    is_ordered, calls = [False], [""]
    while not cursor.at_end:
        named = query.named.get(cursor.peek().start)
        if cursor.source_text(cursor.peek(1)) == "(":
            if not isinstance(named, exp.TableAlias):
                _refuse_call(cursor)
        elif named is None or (isinstance(named, exp.Column) and not named.table):
            _refuse_bare_function(cursor)
        if named is None:
            _refuse_selection(cursor, is_ordered=is_ordered[-1])
        _refuse_today(cursor, calls[-1])
        text = cursor.source_text(cursor.peek())
        if text == "(":
            is_ordered.append(False)
            before = cursor.source_text(cursor.peek(-1)).upper()
            calls.append(before if before[:1].isalpha() else calls[-1])
        elif text == ")":
            is_ordered.pop()
            calls.pop()
        elif cursor.at_words("ORDER", "BY"):
            is_ordered[-1] = True
        cursor.advance()


def _refuse_call(cursor: Cursor) -> None:
    name = _name(cursor)
    reason = REFUSED.get(name, "")
    if name == "unix_timestamp" and cursor.source_text(cursor.peek(2)) == ")":
        reason = _CLOCK
    if name == "aes_encrypt" and _arguments(cursor) < _INITIALIZATION_VECTOR_AT:
        reason = _RANDOM
    if reason:
        raise _not_the_same(cursor, reason, _HINTS[reason])


def _refuse_bare_function(cursor: Cursor) -> None:
    """Refuse an unrepeatable function that is called without brackets.

    Only Spark knows whether a column has this name. A column is accepted if its table is written before it.
    """
    name = _name(cursor)
    if name in _WITHOUT_BRACKETS and cursor.source_text(cursor.peek(1)) != ".":
        hint = f"{_HINTS[REFUSED[name]]}; if {name} is a column, write its table in front: t.{name}"
        raise _not_the_same(cursor, REFUSED[name], hint)


def _name(cursor: Cursor) -> str:
    """Return the next word or quoted name in lowercase; empty if something else comes next."""
    token = cursor.peek()
    return token.text.lower() if cursor.word() or cursor.source_text(token)[0] == "`" else ""


def _arguments(cursor: Cursor) -> int:
    """Count the arguments of the call whose name comes next."""
    at = cursor.position
    cursor.advance()
    cursor.advance()
    count = 1
    cursor.take_until(lambda: cursor.source_text(cursor.peek()) == ",")
    while cursor.accept_symbol(","):
        count += 1
        cursor.take_until(lambda: cursor.source_text(cursor.peek()) == ",")
    cursor.rewind(at)
    return count


def _refuse_selection(cursor: Cursor, *, is_ordered: bool) -> None:
    """Refuse clauses that select rows by chance, or by the order in which they happen to come."""
    word = cursor.word()
    if word == "TABLESAMPLE":
        raise _not_the_same(cursor, _RANDOM, "choose rows by their values in WHERE")
    if word in ("LIMIT", "OFFSET") and cursor.word(1) != "ALL" and not is_ordered:
        message = f"{word} without ORDER BY returns arbitrary rows"
        raise cursor.error_at(cursor.peek(), message, hint="add ORDER BY, by columns that distinguish all rows")


def _refuse_today(cursor: Cursor, call: str) -> None:
    """Refuse `DATE 'today'`, `CAST('now' AS TIMESTAMP)` and `date_sub('today', 7)`, for which Spark reads the clock."""
    if not cursor.is_text() or not OF_TODAY.fullmatch(cursor.peek().text):
        return
    before = [cursor.source_text(cursor.peek(-place)).upper() for place in (1, 2)]
    is_converted = (before[0] == "(" and before[1] in _TO_TEMPORAL) or call in _OF_DATES
    if before[0] in _TEMPORAL or is_converted or cursor.source_text(cursor.peek(1)) == "::":
        raise _not_the_same(cursor, _CLOCK, _HINTS[_CLOCK])


def _not_the_same(cursor: Cursor, reason: str, hint: str) -> StatementError:
    text = cursor.source_text(cursor.peek())
    message = f"{text} {reason}: a query whose changes are read must give the same rows each time"
    return cursor.error_at(cursor.peek(), message, hint=hint)
