"""Descriptions of expectations and of their results, as short texts for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

_ABOUT = ("column", "column_A", "column_B", "column_list", "key")
"""Arguments that name columns."""

_ABOUT_ROWS = frozenset({"mostly", "row_condition", "condition_parser"})
"""Arguments that say in which of the rows an expectation is to hold."""

_NOT_SHOWN = frozenset({*_ABOUT, *_ABOUT_ROWS, "batch_id", "unexpected_rows_query"})


def columns_of(kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns that an expectation needs."""
    found: list[str] = []
    for name in _ABOUT:
        value = kwargs.get(name)
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += (part for part in value if isinstance(part, str))
    return tuple(found)


def expected_text(type_: str, kwargs: Mapping[str, Any]) -> str:
    """Describe an expectation; an unknown type gives its name and arguments."""
    return f"{_expected(type_, kwargs)}{_in_rows(kwargs)}"


def _expected(type_: str, kwargs: Mapping[str, Any]) -> str:
    describe = _DESCRIBED.get(type_)
    if describe is not None:
        return describe(kwargs)
    shown = [f"{name}={_plain(v)}" for name, v in kwargs.items() if name not in _NOT_SHOWN and v is not None]
    words = type_.removeprefix("expect_").replace("_", " ")
    return f"{words} ({', '.join(shown)})" if shown else words


def _in_rows(kwargs: Mapping[str, Any]) -> str:
    """Describe the rows in which an expectation is to hold; empty for all."""
    condition, share = kwargs.get("row_condition"), kwargs.get("mostly")
    where = f" where {_plain(condition)}" if condition else ""
    return f"{where}, in at least {share * 100:g}% of the rows" if isinstance(share, float) and share < 1 else where


def found_text(result: Mapping[str, Any]) -> str:
    """Describe the result of an expectation, from Great Expectations' format SUMMARY."""
    if "details" in result and "found" in result["details"]:
        return str(result["details"]["found"])
    if "unexpected_count" in result:
        return f"{result['unexpected_count']} of {result.get('element_count', '?')} rows"
    if is_of_no_value(result):
        return "no value"
    if "observed_value" in result:
        return _plain(result["observed_value"])
    return ""


def is_of_no_value(result: Mapping[str, Any]) -> bool:
    """Return whether an aggregate, such as a maximum, had no value to be computed of."""
    return "observed_value" in result and result["observed_value"] is None


def examples_of(result: Mapping[str, Any], most: int) -> tuple[Any, ...]:
    """Return values or rows that do not meet an expectation, without repeats.

    A null is no example: the expectation itself says that nulls are wrong.
    """
    found: list[Any] = []
    for value in result.get("partial_unexpected_list") or ():
        if value is not None and value not in found:
            found.append(value)
    return tuple(found[:most])


def examples_text(examples: Sequence[Any]) -> str:
    """Format examples in one line."""
    return ", ".join(_plain(example) for example in examples)


def keys_text(keys: Iterable[Mapping[str, Any]]) -> str:
    """Format the keys of rows in one line."""
    return "; ".join(", ".join(f"{name} {_plain(value)}" for name, value in key.items()) for key in keys)


def _between(kwargs: Mapping[str, Any]) -> str:
    low, high = kwargs.get("min_value"), kwargs.get("max_value")
    parts = []
    if low is not None:
        parts.append(f"{'above' if kwargs.get('strict_min') else 'at least'} {_plain(low)}")
    if high is not None:
        parts.append(f"{'below' if kwargs.get('strict_max') else 'at most'} {_plain(high)}")
    return " and ".join(parts)


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(_plain(value) for value in values)


def _plain(value: Any) -> str:
    match value:
        case None | bool() | int() | float() | list() | tuple() | dict():
            return json.dumps(value, default=_plain, ensure_ascii=False)
        case bytes() | bytearray():
            return f"X'{value.hex()}'"
        case _:
            return str(value)


_DESCRIBED: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "expect_column_values_to_not_be_null": lambda _: "no null",
    "expect_column_values_to_be_in_set": lambda kwargs: f"one of {_listed(kwargs['value_set'])}",
    "expect_column_values_to_be_between": _between,
    "expect_column_values_to_be_unique": lambda _: "unique",
    "expect_compound_columns_to_be_unique": lambda _: "unique",
    "expect_key_to_be_unique": lambda _: "unique",
    "expect_key_to_have_no_null": lambda _: "no null",
    "expect_columns_to_have_types": lambda kwargs: f"{len(kwargs['types'])} columns of their types",
    "expect_table_to_equal_its_database": lambda kwargs: f"the rows of {kwargs.get('upstream') or 'its database'}",
    "unexpected_rows_expectation": lambda kwargs: f"no rows of {kwargs['unexpected_rows_query']}",
}
