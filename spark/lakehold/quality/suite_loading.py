"""Loads a suite into Great Expectations: fills in its parameters, and reads each expectation with the arguments it then has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, DataType, DateType, MapType, StructType

from lakehold.errors import LakeholdError
from lakehold.nearest import did_you_mean
from lakehold.quality.fetched_times import in_utc, without_zone
from lakehold.quality.suites import Expectation, Suite, invalid, place_of

if TYPE_CHECKING:
    from great_expectations.core.expectation_validation_result import ExpectationValidationResult
    from great_expectations.expectations.expectation import Expectation as Loaded

_PLACE = "lakehold_place"
"""Key in the metadata of an expectation for its place in the suite: Great Expectations returns results in another order."""

_WITH_EXAMPLES = {"unexpected_rows_expectation": "expect_query_to_find_no_rows"}
"""Great Expectations' types that lakehold evaluates by a type of its own, which keeps some of the rows found."""


def load(
    suite: Suite, parameters: Mapping[str, Any], schema: StructType, query_at: Callable[[str], str] | None = None
) -> tuple[Suite, list[Loaded]]:
    """Return the suite with the values of its parameters, and its expectations as Great Expectations reads them.

    All expectations are read, so that an error in one is found whatever columns the table has.

    Args:
        suite: The expectations.
        parameters: Values of the suite's `$PARAMETER`s.
        schema: The columns of the table.
        query_at: Rewrites a query to read other tables at the time that is checked; None: as they are now.

    Raises:
        DefinitionError: The suite has an expectation that does not exist, with wrong arguments or an unknown parameter.
    """
    import great_expectations as gx

    import lakehold.quality.expectations  # noqa: F401, PLC0415 - registers ours

    filled: list[Expectation] = []
    loaded: list[Loaded] = []
    for place, expectation in enumerate(suite.expectations):
        found = _filled(suite, place, expectation, parameters)
        kwargs = dict(found.kwargs)
        if query_at is not None and isinstance(query := kwargs.get("unexpected_rows_query"), str):
            kwargs["unexpected_rows_query"] = query_at(query)
        config = {
            "type": _WITH_EXAMPLES.get(found.type, found.type),
            "kwargs": kwargs,
            "meta": {**(found.meta or {}), _PLACE: place},
            "severity": found.severity,
        }
        try:
            (read,) = gx.ExpectationSuite(name=suite.table, expectations=[config]).expectations
            _make_bounds_comparable(read, found, schema)
        except Exception as error:
            # Great Expectations raises what pydantic, its registry and each expectation raise.
            raise _unusable(suite, place, error) from error
        filled.append(found)
        loaded.append(read)
    return replace(suite, expectations=tuple(filled)), loaded


def place_in(result: ExpectationValidationResult) -> int:
    """Return the place in the suite of the expectation that has this result."""
    assert result.expectation_config is not None, "what was evaluated has a configuration"
    return int(result.expectation_config.meta[_PLACE])


def type_of(schema: StructType, name: str) -> DataType | None:
    """Return the type of a column, or of a field inside one (`address.city`), whatever its case; None if it is missing."""
    wanted = name.lower()
    for field in schema.fields:
        own = field.name.lower()
        if own == wanted:
            return field.dataType
    for field in schema.fields:
        own = f"{field.name.lower()}."
        if wanted.startswith(own) and (found := _type_within(field.dataType, name[len(own) :])):
            return found
    return None


def _type_within(of: DataType, name: str) -> DataType | None:
    match of:
        case StructType():
            return type_of(of, name)
        case ArrayType():
            return _type_within(of.elementType, name)
        case MapType():
            return of.valueType
        case _:
            return None


def _filled(suite: Suite, place: int, expectation: Expectation, parameters: Mapping[str, Any]) -> Expectation:
    """Replace the `$PARAMETER`s of an expectation by their values."""
    from great_expectations.core.suite_parameters import build_suite_parameters

    try:
        kwargs, _ = build_suite_parameters(dict(expectation.kwargs), dict(parameters))
    except Exception as error:
        # Great Expectations raises what its parser raises.
        reason = str(error).strip().splitlines()[0]
        hint = f"The parameters are {' and '.join(parameters)}."
        raise invalid(suite.origin, f"{place_of(place, expectation)}: {reason}.", hint) from error
    return replace(expectation, kwargs=kwargs)


def _make_bounds_comparable(read: Loaded, expectation: Expectation, schema: StructType) -> None:
    """Give bounds without a zone the zone UTC.

    Values are compared in Spark, in UTC, but aggregates such as the maximum here: those of dates have no zone.
    """
    kind = type_of(schema, str(expectation.kwargs.get("column", "")))
    is_date = isinstance(kind, DateType) and not expectation.type.startswith("expect_column_values_")
    for name in ("min_value", "max_value"):
        bound = getattr(read, name, None)
        if (comparable := without_zone(bound) if is_date else in_utc(bound)) is not bound:
            setattr(read, name, comparable)


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
