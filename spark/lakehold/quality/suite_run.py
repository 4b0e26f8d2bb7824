"""Runs a suite on a DataFrame with Great Expectations' Spark engine, in classic and Connect sessions."""

from __future__ import annotations

import importlib.util
import logging
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame

from lakehold.errors import EnvironmentMissing, LakeholdError
from lakehold.nearest import did_you_mean
from lakehold.quality.dates_beyond import fetching_dates_beyond
from lakehold.quality.describe import columns_of, examples_of, expected_text, found_text
from lakehold.quality.suites import EQUALS_DATABASE, GENERATED, Expectation, Suite, invalid, place_of
from lakehold.quality.verdict import Outcome

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite
    from great_expectations.core.expectation_validation_result import ExpectationValidationResult
    from great_expectations.datasource.fluent.interfaces import Batch

EXAMPLES_MOST = 5
"""Violating values that are shown, at most."""

_PLACE = "lakehold_place"
"""Key in the metadata of an expectation for its place in the suite: Great Expectations returns results in another order."""

_VIEW = "tmp_view"
"""The view through which Great Expectations' queries read the batch; all queries of a session use this name."""

_one_at_a_time = threading.Lock()


def run_suite(
    suite: Suite,
    frame: DataFrame,
    parameters: Mapping[str, Any],
    key: Sequence[str] = (),
    compare: Callable[[Mapping[str, Any]], Outcome] | None = None,
) -> tuple[Outcome, ...]:
    """Run a suite on a DataFrame, and return its outcomes in the suite's order.

    An expectation about a missing column fails without running.

    Args:
        suite: The expectations.
        frame: A table at a time.
        parameters: Values of the suite's `$PARAMETER`s.
        key: Columns that identify the rows that are wrong.
        compare: Evaluates the expectation that the table equals its database, by its arguments; None: only the present can be.

    Raises:
        EnvironmentMissing: Great Expectations is not installed.
        DefinitionError: The suite has an expectation that does not exist, or with wrong arguments.
        LakeholdError: An expectation could not be evaluated.
    """
    outcomes = {
        place: _without_column(expectation, missing)
        for place, expectation in enumerate(suite.expectations)
        if (missing := _missing(expectation, frame.columns))
    }
    compared = {place: e.kwargs for place, e in enumerate(suite.expectations) if e.type == EQUALS_DATABASE}
    with ExitStack() as quiet:
        quiet.enter_context(_one_at_a_time)
        quiet.enter_context(_silence())
        quiet.enter_context(fetching_dates_beyond(frame))
        loaded = _load(suite, skipped=outcomes.keys() | compared.keys())
        batch = _batch(suite.table, frame)
        results = batch.validate(
            loaded,
            result_format={"result_format": "SUMMARY", "partial_unexpected_count": EXAMPLES_MOST},
            expectation_parameters=dict(parameters),
        ).results
        failed = [_place(result) for result in results if not result.success and not _exception(result.exception_info)]
        keys = _keys(batch, loaded, failed, key, parameters) if key and failed else {}
        frame.sparkSession.catalog.dropTempView(_VIEW)
    for result in results:
        place = _place(result)
        outcomes[place] = _outcome(suite, place, result, keys.get(place, ()))
    for place, arguments in compared.items():
        outcomes[place] = compare(arguments) if compare is not None else _only_the_present(arguments)
    return tuple(outcomes[place] for place in sorted(outcomes))


def _load(suite: Suite, skipped: Collection[int]) -> ExpectationSuite:
    import great_expectations as gx

    import lakehold.quality.expectations  # noqa: F401, PLC0415 - registers ours

    loaded = gx.ExpectationSuite(name=suite.table)
    for place, expectation in enumerate(suite.expectations):
        # Read all expectations, so that an error in one is found whatever columns the table has.
        config = {
            "type": expectation.type,
            "kwargs": dict(expectation.kwargs),
            "meta": {**(expectation.meta or {}), _PLACE: place},
            "severity": expectation.severity,
        }
        try:
            (read,) = gx.ExpectationSuite(name=suite.table, expectations=[config]).expectations
        except Exception as error:
            # Great Expectations raises what pydantic, its registry and each expectation raise.
            raise _unusable(suite, place, error) from error
        if place not in skipped:
            loaded.expectations.append(read)
    return loaded


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


def _keys(
    batch: Batch, suite: ExpectationSuite, places: Collection[int], key: Sequence[str], parameters: Mapping[str, Any]
) -> dict[int, tuple[Mapping[str, Any], ...]]:
    """Return keys of some violating rows, by the place of their expectation.

    Each needs another job: this runs only for expectations that failed.
    """
    import great_expectations as gx

    again = gx.ExpectationSuite(name=suite.name)
    again.expectations += [e for e in suite.expectations if e.meta is not None and e.meta[_PLACE] in places]
    results = batch.validate(
        again,
        result_format={
            "result_format": "BASIC",
            "partial_unexpected_count": EXAMPLES_MOST,
            "include_unexpected_rows": True,
        },
        expectation_parameters=dict(parameters),
    ).results
    rows = {_place(result): result.result.get("unexpected_rows") or () for result in results}
    return {place: tuple({name: row[name] for name in key} for row in found) for place, found in rows.items()}


def _place(result: ExpectationValidationResult) -> int:
    assert result.expectation_config is not None, "what was evaluated has a configuration"
    return int(result.expectation_config.meta[_PLACE])


def _missing(expectation: Expectation, columns: Sequence[str]) -> list[str]:
    known = {name.lower() for name in columns}
    return [name for name in columns_of(expectation.kwargs) if name.lower() not in known]


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
    assert result.expectation_config is not None, "what was evaluated has a configuration"
    kwargs = result.expectation_config.kwargs
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
        expected_text(expectation.type, kwargs),
        found_text(result.result),
        () if result.success else examples_of(result.result, EXAMPLES_MOST),
        keys,
    )


def _exception(info: Mapping[str, Any] | None) -> str:
    """Return the first line of the exception that an expectation raised; empty without one."""
    for entry in (info or {}, *(v for v in (info or {}).values() if isinstance(v, Mapping))):
        if entry.get("raised_exception"):
            return str(entry.get("exception_message")).strip().split("\n")[0]
    return ""


def _unusable(suite: Suite, place: int, error: Exception) -> LakeholdError:
    from great_expectations.expectations.registry import list_registered_expectation_implementations

    expectation = suite.expectations[place]
    known = list_registered_expectation_implementations()
    if expectation.type not in known:
        hint = did_you_mean(expectation.type, known)
        return invalid(suite.origin, f"{place_of(place, expectation)} is not a known expectation.", hint)
    errors = getattr(error, "errors", None)
    if callable(errors) and (found := errors()):
        argument = ".".join(str(part) for part in found[0]["loc"])
        return invalid(suite.origin, f'{place_of(place, expectation)}, argument "{argument}": {found[0]["msg"]}.')
    return invalid(suite.origin, f"{place_of(place, expectation)}: {str(error).strip().splitlines()[0]}")


def _where(suite: Suite) -> str:
    return "" if suite.origin == GENERATED else f'The file is "{suite.origin}". '


@contextmanager
def _silence() -> Iterator[None]:
    """Suppress warnings of Great Expectations, and PySpark's logging of errors.

    An error of Spark is reported once, by the exception.
    """
    if importlib.util.find_spec("great_expectations") is None:
        raise EnvironmentMissing(
            "Great Expectations is not installed",
            code="great-expectations-missing",
            detail="Checks run its suites.",
            hint='Install lakehold with its extra: "lakehold[quality]".',
        )
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.disabled = before
