"""Runs a suite on a DataFrame with Great Expectations' Spark engine, in classic and Connect sessions."""

from __future__ import annotations

import importlib.util
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, TextIO, cast

from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from lakehold.errors import EnvironmentMissing, LakeholdError
from lakehold.quality.describe import columns_of, examples_of, expected_text, found_text, is_of_no_value
from lakehold.quality.fetched_times import as_in_rows, fetching_in_utc
from lakehold.quality.suite_loading import load, place_in, type_of
from lakehold.quality.suites import EQUALS_DATABASE, GENERATED, Expectation, Suite, place_of
from lakehold.quality.verdict import Outcome

if TYPE_CHECKING:
    from great_expectations.core.expectation_validation_result import ExpectationValidationResult
    from great_expectations.datasource.fluent.interfaces import Batch
    from great_expectations.expectations.expectation import Expectation as Loaded

EXAMPLES_MOST = 5
"""Violating values that are shown, at most."""

_VIEW = "tmp_view"
"""The view through which Great Expectations' queries read the batch; all queries of a session use this name."""

_one_at_a_time = threading.Lock()


def run_suite(  # noqa: PLR0913 - a suite, a table at a time, and what else is known of both
    suite: Suite,
    frame: DataFrame,
    parameters: Mapping[str, Any],
    key: Sequence[str] = (),
    compare: Callable[[Mapping[str, Any]], Outcome] | None = None,
    query_at: Callable[[str], str] | None = None,
) -> tuple[Outcome, ...]:
    """Run a suite on a DataFrame, and return its outcomes in the suite's order.

    An expectation about a missing column fails without running.

    Args:
        suite: The expectations.
        frame: A table at a time.
        parameters: Values of the suite's `$PARAMETER`s.
        key: Columns that identify the rows that are wrong.
        compare: Evaluates the expectation that the table equals its database, by its arguments; None: only the present can be.
        query_at: Rewrites a query to read other tables at the time of `frame`; None: as they are now.

    Raises:
        EnvironmentMissing: Great Expectations is not installed.
        DefinitionError: The suite has an expectation that does not exist, or with wrong arguments.
        LakeholdError: An expectation could not be evaluated.
    """
    with ExitStack() as quiet:
        quiet.enter_context(_one_at_a_time)
        quiet.enter_context(_silence())
        quiet.enter_context(fetching_in_utc(frame))
        suite, expectations = load(suite, parameters, frame.schema, query_at)
        outcomes = {
            place: _without_column(expectation, missing)
            for place, expectation in enumerate(suite.expectations)
            if (missing := _missing(expectation, frame.schema))
        }
        compared = {place: e.kwargs for place, e in enumerate(suite.expectations) if e.type == EQUALS_DATABASE}
        evaluated = [e for place, e in enumerate(expectations) if place not in outcomes and place not in compared]
        batch = _batch(suite.table, frame)
        results = _results(batch, evaluated, {"result_format": "SUMMARY"})
        failed = {place_in(r) for r in results if not r.success and not _exception(r.exception_info)}
        again = [e for place, e in enumerate(expectations) if place in failed] if key else []
        keys = _keys(batch, again, key) if again else {}
        frame.sparkSession.catalog.dropTempView(_VIEW)
    if any(is_of_no_value(r.result) for r in results) and frame.isEmpty():
        # No row of an empty table is wrong, so neither is its maximum, which it does not have.
        for result in results:
            result.success = result.success or is_of_no_value(result.result)
    for result in results:
        place = place_in(result)
        outcomes[place] = _outcome(suite, place, result, keys.get(place, ()))
    for place, arguments in compared.items():
        outcomes[place] = compare(arguments) if compare is not None else _only_the_present(arguments)
    return tuple(outcomes[place] for place in sorted(outcomes))


def _batch(name: str, frame: DataFrame) -> Batch:
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    # This logger sets its own level, which would override the program's settings of logging.
    logging.getLogger("great_expectations.data_context.types.base").setLevel(logging.NOTSET)
    context = gx.get_context(mode="ephemeral")
    context.enable_analytics(False)
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    # Persisting would keep the whole table in memory to save reading a few of its columns again.
    asset = context.data_sources.add_spark("lake", persist=False).add_dataframe_asset(name)
    return asset.add_batch_definition_whole_dataframe("snapshot").get_batch({"dataframe": frame})


def _results(
    batch: Batch, expectations: Sequence[Loaded], result_format: Mapping[str, Any]
) -> list[ExpectationValidationResult]:
    import great_expectations as gx

    suite = gx.ExpectationSuite(name=batch.data_asset.name)
    suite.expectations += expectations
    wanted = {**result_format, "partial_unexpected_count": EXAMPLES_MOST}
    return batch.validate(suite, result_format=wanted).results


def _keys(batch: Batch, failed: Sequence[Loaded], key: Sequence[str]) -> dict[int, tuple[Mapping[str, Any], ...]]:
    """Return keys of some violating rows, by the place of their expectation.

    Each needs another job: this runs only for expectations that failed.
    """
    results = _results(batch, failed, {"result_format": "BASIC", "include_unexpected_rows": True})
    rows = {place_in(result): result.result.get("unexpected_rows") or () for result in results}
    return {
        place: tuple({name: as_in_rows(row[name]) for name in key} for row in found) for place, found in rows.items()
    }


def _missing(expectation: Expectation, schema: StructType) -> list[str]:
    return [name for name in columns_of(expectation.kwargs) if type_of(schema, name) is None]


def _without_column(expectation: Expectation, missing: Sequence[str]) -> Outcome:
    return Outcome(
        expectation.type,
        ", ".join(columns_of(expectation.kwargs)),
        False,
        expected_text(expectation.type, expectation.kwargs),
        f"no column {', '.join(missing)}",
    )


def _only_the_present(arguments: Mapping[str, Any]) -> Outcome:
    return Outcome(
        EQUALS_DATABASE,
        "",
        False,
        expected_text(EQUALS_DATABASE, arguments),
        "not compared: a database shows the present only, and this is a time in the past",
    )


def _outcome(
    suite: Suite, place: int, result: ExpectationValidationResult, keys: tuple[Mapping[str, Any], ...]
) -> Outcome:
    expectation = suite.expectations[place]
    if message := _exception(result.exception_info):
        raise LakeholdError(
            f'the suite of table "{suite.table}" could not be evaluated',
            code="check-failed",
            detail=f"{_where(suite)}{place_of(place, expectation)}: {message}",
            hint="Correct the expectation, or read the error above." if suite.origin != GENERATED else "",
        )
    return Outcome(
        expectation.type,
        ", ".join(columns_of(expectation.kwargs)),
        bool(result.success),
        expected_text(expectation.type, expectation.kwargs),
        found_text(result.result),
        () if result.success else tuple(map(as_in_rows, examples_of(result.result, EXAMPLES_MOST))),
        keys,
    )


def _exception(info: Mapping[str, Any] | None) -> str:
    """Return the first line of the exception that an expectation raised; empty without one."""
    for entry in (info or {}, *(v for v in (info or {}).values() if isinstance(v, Mapping))):
        if entry.get("raised_exception"):
            return str(entry.get("exception_message")).strip().split("\n")[0]
    return ""


def _where(suite: Suite) -> str:
    return "" if suite.origin == GENERATED else f'The file is "{suite.origin}". '


class _WithoutThisThread:
    """Standard output without what this thread prints: other threads of the program print as before."""

    def __init__(self, stdout: TextIO) -> None:
        self._stdout = stdout
        self._thread = threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self._thread else self._stdout.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stdout, name)


@contextmanager
def _silence() -> Iterator[None]:
    """Suppress what Great Expectations prints, its warnings, and PySpark's logging of errors.

    An error of Spark is reported once, by the exception.
    """
    if importlib.util.find_spec("great_expectations") is None:
        raise EnvironmentMissing(
            "Great Expectations is not installed",
            code="great-expectations-missing",
            detail="Checks run its suites.",
            hint="Install lakehold with its extra `quality`: pip install '.[quality]' in the checkout.",
        )
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings(), redirect_stdout(cast(TextIO, _WithoutThisThread(sys.stdout))):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.disabled = before
