"""Generated suites for tables without a file: from the schema, the key and the descriptions of columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakehold.quality.suites import Expectation, Suite

FUTURE = "future"
"""Parameter of suites, which `{"$PARAMETER": "future"}` refers to: the first instant that is the future (ISO 8601, UTC)."""

FUTURE_MS = "future_ms"
"""Parameter of suites: the first instant that is the future, as epoch milliseconds."""

_INSTANT = "timestamp"
"""Spark's type for an instant. Its other one, without a zone, is up to 14 hours ahead of UTC somewhere."""

_HAPPENED = re.compile(
    r"(.*_)?(changed|created|deleted|ingested|inserted|modified|observed|received|recorded|updated)"
    r"(_(at|on|time|ts|timestamp))?",
    re.IGNORECASE,
)
"""Names of columns that record when something happened. Others may lie in the future: `deliver_on`, `expires_at`."""

_ONE_OF = re.compile(r"one of:? (?P<values>[^.;]+)", re.IGNORECASE)
_SEPARATOR = re.compile(r",\s*(?:or\s+)?|\s+or\s+")
_VALUE = re.compile(r"'(?P<single>[^']*)'|\"(?P<double>[^\"]*)\"|(?P<bare>[\w-]+)")


@dataclass(frozen=True)
class TableDescription:
    """The description of a table from which a suite is generated.

    Attributes:
        full_name: `namespace.table`.
        types: Column to Spark's type, as Spark writes it (`decimal(12,2)`).
        key: The columns that identify rows; empty if the table has no known key.
        docs: Column to description.
    """

    full_name: str
    types: Mapping[str, str]
    key: Sequence[str] = ()
    docs: Mapping[str, str] = field(default_factory=dict)


def generated_suite(table: TableDescription) -> Suite:
    """Generate the suite that follows from a table's description.

    - All columns exist and have their types.
    - The key is unique, and none of its columns is null.
    - A text column whose description begins with `One of a, b or c` has these values or null.
    - An instant whose column's name says that something happened (`changed_at`, `created`) does not lie in the future.
    """
    expectations = [Expectation("expect_columns_to_have_types", {"types": dict(table.types)})]
    if table.key:
        expectations.append(Expectation("expect_key_to_be_unique", {"key": list(table.key)}))
        expectations += map(_not_null, table.key)
    for name, of in table.types.items():
        values = _values(table.docs.get(name, "")) if of == "string" else ()
        if values:
            kwargs = {"column": name, "value_set": list(values)}
            expectations.append(Expectation("expect_column_values_to_be_in_set", kwargs))
        if of == _INSTANT and _HAPPENED.fullmatch(name):
            expectations.append(_not_from(FUTURE, name))
        elif of == "bigint" and name == "mz_timestamp":
            expectations.append(_not_from(FUTURE_MS, name))
    return Suite(table.full_name, tuple(expectations))


def _not_null(column: str) -> Expectation:
    if "`" in column:
        return Expectation("expect_key_to_have_no_null", {"key": [column]})
    return Expectation("expect_column_values_to_not_be_null", {"column": column})


def _not_from(parameter: str, column: str) -> Expectation:
    kwargs = {"column": column, "max_value": {"$PARAMETER": parameter}, "strict_max": True}
    return Expectation("expect_column_values_to_be_between", kwargs)


def _values(doc: str) -> tuple[str, ...]:
    """Return the values that a description lists; none if an item is more than a word or a quoted text."""
    listed = _ONE_OF.match(doc)
    parts = _SEPARATOR.split(listed["values"].strip()) if listed else []
    found = [_VALUE.fullmatch(part) for part in parts]
    if None in found:
        return ()
    return tuple(next(value for value in match.groups() if value is not None) for match in found if match)
