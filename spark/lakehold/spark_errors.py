"""Errors of Spark, translated into errors that a person can read."""

from __future__ import annotations

import re
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TypeVar

from lakehold.errors import LakeholdError, SparkEnded, UpstreamUnavailable
from lakehold.executor_python import executor_lacks
from lakehold.iceberg.store_errors import store_failed, store_hint
from lakehold.spark_endpoint import names_lost_session, names_lost_statement

_CONDITION = re.compile(r"^\[(?P<condition>[A-Z][A-Z0-9_.]*)\]\s*")
POSITION = re.compile(r"[;(]?\s*\(?line (?P<line>\d+),? pos (?P<column>\d+)\)?")
"""The position in a statement, as Spark's messages write it."""
_SENTENCE_END = re.compile(r"(?<=\.)\s+(?=[A-Z])")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+")
_OF_VALUES = re.compile(r"SQLSTATE: (?:22\w{3}|P0001)")
"""The SQLSTATEs of wrong data, and of `raise_error`."""
_JVM_CLASS = re.compile(r"^:?\s*(?:[a-z_][\w$]*\.)+[A-Z][\w$]*(?:Exception|Error):\s*")
_STAGE_FAILED = re.compile(r"Job aborted due to stage failure: .*?\(TID \d+\) \(.*?\): ")
_RAISED_IN_PYTHON = re.compile(r"^.*Traceback \(most recent call last\):\n(?:[ \t].*\n)+(?P<error>\S.*)", re.M)
"""A traceback of a Python function that ran in Spark, up to the error; after errors that caused it, its own comes last."""
_SPARKS_MODULES = frozenset({"pyspark", "py4j", "grpc"})
_HINTS = {
    "TABLE_OR_VIEW_NOT_FOUND": "SHOW TABLES lists the tables that sources feed, SHOW TABLES IN a namespace all of its tables; "
    "DROP TABLE IF EXISTS skips a table that does not exist."
}
"""Hints that Spark does not give, by its error condition."""
_STOPPED = re.compile(r"methods on a stopped SparkContext|SparkContext was shut down")
_CLOCKS_DIFFER = re.compile(
    r"Invalid update timestamp \d+: before .*|\[BUG\] Expected sorted (?:snapshot|previous metadata) log entries"
)
"""How Iceberg refuses a table whose times go back by more than a minute."""
_NO_ANSWER = re.compile(
    r"^An error occurred while calling [\w.$]+$|Answer from Java side is empty|while trying to connect to the Java server"
)
"""What Py4J says when the Java process ends during a call: there is no error of Java's."""
_OVER_CONNECT = ("pyspark.errors.exceptions.connect", "grpc")
_OF_GRPC = re.compile(r'<_\w+ of RPC that terminated with:.*?details = "(?P<details>.+?)"$', re.S | re.M)
_SILENT = re.compile(r"<_\w+ of RPC that terminated with:\s*status = StatusCode\.UNAVAILABLE")
"""What Spark Connect's client raises once it has given up its retries: the server, or the network to it, is gone."""
_CONFLICT = re.compile(
    r"conflicted with another|CommitFailed|ValidationException|found new (delete|conflicting)"
    r"|metadata location \S+ has changed|metadata refresh is required|requirement failed|missing required files"
    r"|still referenced by refs",
    re.IGNORECASE,
)
_CALL_FAILED = "An error occurred while calling"

T = TypeVar("T")

_silencing = threading.Lock()
_silent: list[bool] = []
"""For each block that silences PySpark's log now, whether it was silent before; blocks of threads and generators overlap."""


@contextmanager
def readable() -> Iterator[None]:
    """Translate errors that Spark raises inside into readable ones; other errors pass unchanged."""
    try:
        with without_pyspark_log():
            yield
    except Exception as error:
        if not is_sparks(error):
            raise
        raise session_lost(error) or explained(str(error)) from None


def readable_each(items: Iterator[T]) -> Generator[T, None, None]:
    """Yield `items` and translate the errors of reading them as `readable` does, but not what happens between two of them."""
    try:
        while True:
            try:
                with readable():
                    item = next(items)
            except StopIteration:
                return
            yield item
            # A row that its reader has dropped takes no memory while the next one is read.
            del item
    finally:
        if isinstance(items, Generator):
            with readable():
                items.close()


def is_sparks(error: Exception) -> bool:
    """Return whether Spark raised the error, in a classic session or over Spark Connect, or its Java process has ended."""
    return type(error).__module__.partition(".")[0] in _SPARKS_MODULES or _is_of_java(error)


def is_conflict(message: str) -> bool:
    """Return whether Iceberg refused a commit because another writer committed first; nothing was changed then."""
    return _CONFLICT.search(message) is not None


def is_of_values(error: Exception) -> bool:
    """Return whether Spark could not compute a value of some row, as with a division by zero, so that other rows may not fail."""
    return is_sparks(error) and _OF_VALUES.search(str(error)) is not None


def session_lost(error: Exception) -> UpstreamUnavailable | None:
    """Return the error for a Spark that ended, or a Spark Connect server that lost session or statement or does not answer."""
    if not is_sparks(error):
        return None
    if _has_ended(error):
        return SparkEnded(
            "the Spark of this process has ended",
            detail="Its Java process was killed, as one without memory is, or the cluster ended the application.",
            hint="Run the command again: that starts another Spark, and nothing is done twice. If it ends again, give it more "
            "memory (LAKEHOLD_SPARK_DRIVER_MEMORY), or look into the cluster's log.",
        )
    return _without_session(str(error))


def _has_ended(error: Exception) -> bool:
    """Return whether the driver of a classic session, which is a Java process of this one, works no more."""
    return _is_of_java(error) or (
        not type(error).__module__.startswith(_OVER_CONNECT)
        and (_STOPPED.search(str(error)) or _NO_ANSWER.search(str(error))) is not None
    )


def _is_of_java(error: Exception) -> bool:
    """Return whether the error is that of a connection to Spark's Java process, which Py4J does not translate."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return (
        isinstance(error, ConnectionError)
        and last is not None
        and last.tb_frame.f_globals["__name__"].startswith("py4j")
    )


def _without_session(whole: str) -> UpstreamUnavailable | None:
    if names_lost_session(whole):
        return UpstreamUnavailable(
            "the Spark Connect server does not know the session any more",
            code="spark-unreachable",
            detail="It was started again, or it heard nothing of the session for too long.",
            hint="Run it again: that opens another session, and nothing is done twice. Only a session that a program gave to "
            "lakehold has to be replaced by that program.",
        )
    if names_lost_statement(whole):
        return UpstreamUnavailable(
            "the Spark Connect server has given up a statement whose rows were not read",
            code="spark-statement",
            detail="Its reader paused for longer than the server waits, which is five minutes unless it is configured otherwise.",
            hint="Run it again, and take all rows before you work on them for long; or have the server wait longer: "
            "spark.connect.execute.manager.detachedTimeout.",
        )
    if _SILENT.match(whole):
        of_grpc = _OF_GRPC.match(whole)
        return UpstreamUnavailable(
            "the Spark Connect server does not answer any more",
            code="spark-unreachable",
            detail=f"Its client says: {of_grpc['details']}." if of_grpc else "",
            hint="See whether its process runs and its port can be reached, or start it again. Then run this again: nothing is "
            "done twice.",
        )
    if not _STOPPED.search(whole):
        return None
    return UpstreamUnavailable(
        "Spark stopped while the statement ran",
        code="spark-unreachable",
        hint="Of a server, lakehold spark status shows the end of its log; lakehold spark up starts it again.",
    )


def _clocks_differ(whole: str) -> LakeholdError | None:
    found = _CLOCKS_DIFFER.search(whole)
    if not found:
        return None
    return LakeholdError(
        "the clocks of machines that write this table differ by more than a minute",
        code="clocks-differ",
        detail=f"Iceberg says: {found[0].removeprefix('[BUG] ')}",
        hint="Synchronize the clocks of Spark's driver and of all machines that run lakehold or write the table; then run the "
        "command again. If the driver's clock was right, wait until it reaches the table's time.",
    )


def described(error: Exception) -> str:
    """Describe an error of Spark in sentences, for the detail of another error."""
    cause = explained(str(error))
    return f"Spark says: {cause.message}. {cause.detail}".rstrip()


def advice(error: Exception) -> str:
    """Return how to solve an error of Spark or of a store; empty: nothing better is known than to try again."""
    whole = str(error)
    known = executor_lacks(whole) or _clocks_differ(whole)
    return known.hint if known else store_hint(whole)


@contextmanager
def without_pyspark_log() -> Iterator[None]:
    """Silence PySpark's logging inside: it logs each error with its JVM stack trace before raising it."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415 - loaded with the session, and only then

    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    with _silencing:
        _silent.append(logger.disabled)
        logger.disabled = True
    try:
        yield
    finally:
        with _silencing:
            # The last block to end, in whatever order they do, restores what was before the first.
            logger.disabled = _silent.pop()


def explained(whole: str) -> LakeholdError:
    """Translate the text of an error of Spark into a `LakeholdError`.

    The first line without class names and SQLSTATE becomes the message, its condition the code, and its advice the
    detail.
    """
    if known := _without_session(whole) or _clocks_differ(whole):
        return known
    if of_grpc := _OF_GRPC.match(whole):
        whole = of_grpc["details"]
    lines = [line.strip() for line in whole.splitlines() if line.strip() and _CALL_FAILED not in line]
    line = _JVM_CLASS.sub("", lines[0] if lines else "Spark failed")
    line = _JVM_CLASS.sub("", _STAGE_FAILED.sub("", line))
    if store_hint(whole):
        return store_failed(_STAGE_FAILED.sub("", whole))
    if missing := executor_lacks(whole):
        return missing
    if raised := [*_RAISED_IN_PYTHON.finditer(whole)]:
        line = f"a Python function failed: {raised[-1]['error']}"
    condition = _CONDITION.match(line)
    code = condition["condition"] if condition else "spark"
    sentences = _SQLSTATE.sub("", POSITION.sub("", _CONDITION.sub("", line))).rstrip(" ;")
    first, *rest = _SENTENCE_END.split(sentences, maxsplit=1)
    message, detail = f"{first[:1].lower()}{first[1:]}".rstrip("."), " ".join(rest)
    return LakeholdError(message, code=code, detail=detail, hint=_HINTS.get(code, ""))
